package controllers

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/gin-gonic/gin"

	"plantstore/middleware"
	"plantstore/models"
)

// readyTimeout bounds the question to the database: probes give up early.
const readyTimeout = time.Second

// Health answers the probes of orchestrators and load balancers, which carry no
// token.
type Health struct {
	ping     func(context.Context) error
	draining atomic.Bool
}

// NewHealth returns the probes of a service whose database answers ping.
func NewHealth(ping func(context.Context) error) *Health { return &Health{ping: ping} }

// Drain makes the service unready, for good: it is about to stop.
func (h *Health) Drain() { h.draining.Store(true) }

type healthStatus struct {
	Status string `json:"status"`
}

// Live tells that the process answers.
func (h *Health) Live(c *gin.Context) { answer(c, 200, healthStatus{"ok"}) }

// Ready tells whether requests will be served: the database answers, and the
// service is not about to stop.
func (h *Health) Ready(c *gin.Context) {
	if h.draining.Load() {
		middleware.Fail(c, problemf(codeDatabaseTimeout, "the service is stopping"))
		return
	}
	ctx, cancel := context.WithTimeout(c.Request.Context(), readyTimeout)
	defer cancel()
	if err := h.ping(ctx); err != nil {
		middleware.Fail(c, fmt.Errorf("ready: %w: %w", models.ErrUnavailable, err))
		return
	}
	answer(c, 200, healthStatus{"ok"})
}
