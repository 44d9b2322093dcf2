package controllers

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/gin-gonic/gin"

	"plantstore/database"
)

// readyTimeout limits the ping of the database: probes give up early.
const readyTimeout = time.Second

// Health responds to the probes of orchestrators and load balancers, which have no
// token.
type Health struct {
	ping     func(context.Context) error
	draining atomic.Bool
}

// NewHealth returns the probes of a service; ping reaches its database.
func NewHealth(ping func(context.Context) error) *Health { return &Health{ping: ping} }

// Drain makes the service unready for good, before it stops.
func (h *Health) Drain() { h.draining.Store(true) }

// Live reports that the process is alive.
func (*Health) Live(c *gin.Context) error { return respond(c, http.StatusOK, gin.H{"status": "ok"}) }

// Ready reports whether the service can serve requests: its database responds, and it
// is not about to stop.
func (h *Health) Ready(c *gin.Context) error {
	if h.draining.Load() {
		return errStopping
	}
	ctx, cancel := context.WithTimeout(c.Request.Context(), readyTimeout)
	defer cancel()
	if err := h.ping(ctx); err != nil {
		return fmt.Errorf("ready: %w: %w", database.ErrUnavailable, err)
	}
	return respond(c, http.StatusOK, gin.H{"status": "ok"})
}
