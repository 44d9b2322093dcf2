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
	if at := h.store.Wrote(contextOf(c), err); err == nil {
		setPosition(c, at)
	}
	return err
}

// seen is wrote for a client that gets changes of the feed, which is that of the primary.
func (h *Changes) seen(c *gin.Context) { setPosition(c, h.feed.Seen(contextOf(c))) }

// setPosition sets Write-Position to at, unless that is 0.
func setPosition(c *gin.Context, at database.Position) {
	if at != 0 {
		middleware.SetHeader(c, middleware.PositionHeader, at.String())
	}
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
		return nil, problemf(codeParameter, "%s must be copied from the response to a write, or with changes", middleware.PositionHeader)
	}
	return database.WithPosition(ctx, at), nil
}
