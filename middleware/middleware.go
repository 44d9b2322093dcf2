// Package middleware holds the steps of every request before and after its controller.
package middleware

import (
	"errors"

	"github.com/gin-gonic/gin"
	"go.uber.org/zap"

	"plantstore/auth"
	"plantstore/database/background"
)

// Handler handles a request, or rejects it with an error, to which the controllers'
// error table responds. A middleware that returns nil passes the request on.
type Handler func(*gin.Context) error

// Handle returns h for Gin. An error ends the request.
func Handle(h Handler) gin.HandlerFunc {
	return func(c *gin.Context) {
		if err := h(c); err != nil {
			fail(c, err)
		}
	}
}

func fail(c *gin.Context, err error) {
	_ = c.Error(err)
	c.Abort()
}

// errPanic is the error of a request that panicked. The log has the cause.
var errPanic = errors.New("panic")

// Recovery logs a panic with its stack and turns it into an error.
func Recovery(log *zap.Logger) gin.HandlerFunc {
	return gin.CustomRecoveryWithWriter(nil, func(c *gin.Context, cause any) {
		log.Error("panic", RequestIDField(c), TraceIDField(c), zap.String("route", c.FullPath()),
			zap.String("cause", auth.Redact(background.DescribePanic(cause))), zap.StackSkip("stack", 1))
		fail(c, errPanic)
	})
}
