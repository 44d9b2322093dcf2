package controllers

import (
	"context"

	"github.com/gin-gonic/gin"

	"plantstore/database"
	"plantstore/middleware"
)

// wrote records a write of plants with the outcome err, so that later reads see it, and sets
// Write-Position. It returns err.
func (h *Plants) wrote(c *gin.Context, err error) error {
	if at := h.store.Wrote(contextOf(c), err); at != 0 && err == nil {
		middleware.SetHeader(c, middleware.PositionHeader, at.String())
	}
	return err
}

// readContext returns the context for a read of plants, which sees what the request asks for.
func readContext(c *gin.Context) (context.Context, error) {
	ctx := contextOf(c)
	lines := c.Request.Header[middleware.PositionHeader]
	if lines == nil {
		return ctx, nil
	}
	at, ok := database.ParsePosition(lines[0])
	if !ok || len(lines) > 1 {
		return nil, problemf(codeParameter, "%s must be copied from the response to a write", middleware.PositionHeader)
	}
	return database.WithPosition(ctx, at), nil
}
