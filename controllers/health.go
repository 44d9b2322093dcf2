package controllers

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/gin-gonic/gin"
	"golang.org/x/time/rate"

	"plantstore/database/fault"
	"plantstore/middleware"
	"plantstore/models"
)

// Health responds to the probes of orchestrators and load balancers, which have no
// token.
type Health struct {
	ready    func(context.Context) error
	canStore func() error    // a temporary file; or nil
	checks   rate.Sometimes  // of canStore: probes need no token, and may come often
	full     atomic.Bool     // canStore failed
	serving  context.Context //nolint:containedctx // ends when the service drains
	drain    context.CancelFunc
}

// NewHealth returns the probes of a service. ready reports whether its database can be written, and canStore,
// unless it is nil, whether imports and exports can store temporary files.
func NewHealth(ready func(context.Context) error, canStore func() error) *Health {
	h := &Health{ready: ready, canStore: canStore, checks: rate.Sometimes{Interval: time.Second}}
	h.serving, h.drain = context.WithCancel(context.Background())
	return h
}

// NotReady returns an error for which [Health.Ready] responds with the reason.
func NotReady(reason string) error { return problemf(codeUnavailable, "%s", reason) }

// Drain makes the service unready for good, before it stops.
func (h *Health) Drain() { h.drain() }

// drainPause is how long a request that arrives while the service drains waits: clients that send
// the next request at once would keep the service busy.
const drainPause = time.Second

// untilDrain returns a context that ends with ctx, after timeout, or when the service drains.
func (h *Health) untilDrain(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if h.Draining() {
		return context.WithTimeout(ctx, min(timeout, drainPause))
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	stop := context.AfterFunc(h.serving, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

// Draining reports whether Drain was called.
func (h *Health) Draining() bool { return h.serving.Err() != nil }

// Live reports that the process is alive.
func (*Health) Live(c *gin.Context) error {
	middleware.RequestOf(c).Quiet = true
	return respond(c, http.StatusOK, ready{Status: "ok"})
}

// Ready reports whether the service can serve requests: a write would succeed, and the
// service is not about to stop.
func (h *Health) Ready(c *gin.Context) error {
	middleware.RequestOf(c).Quiet = true // the log has the cause of a failure
	if err := h.check(c.Request.Context()); err != nil {
		return err
	}
	status := ready{Status: "ok"}
	h.checks.Do(func() { h.full.Store(h.canStore != nil && h.canStore() != nil) })
	if h.full.Load() { // all else works
		status.Warning = "imports and exports fail: " + models.ErrTemporary.Error()
	}
	return respond(c, http.StatusOK, status)
}

// ready is the response of a service that is ready.
type ready struct {
	Status  string `json:"status"`
	Warning string `json:"warning,omitzero"`
}

func (h *Health) check(ctx context.Context) error {
	if h.Draining() {
		return errStopping
	}
	return h.ready(ctx)
}

// Fault returns why the service is not ready, in few variants, or an empty string.
func (h *Health) Fault(ctx context.Context) string {
	err := h.check(ctx)
	if err == nil {
		return ""
	}
	if errors.Is(err, errStopping) {
		return errStopping.Error()
	}
	return fault.Reason(err)
}
