package middleware

import (
	"errors"
	"net/http"

	"github.com/gin-gonic/gin"
	"go.uber.org/zap"

	"plantstore/auth"
	"plantstore/database/background"
)

// errPanic is the error of a request that panicked. The log has the cause.
var errPanic = errors.New("panic")

// Recovery logs a panic with its stack and turns it into an error.
func Recovery(log *zap.Logger) gin.HandlerFunc {
	return func(c *gin.Context) {
		defer func() {
			cause := recover()
			if cause == nil {
				return
			}
			if cause == http.ErrAbortHandler { //nolint:errorlint // as net/http compares it
				panic(cause)
			}
			log.Error("panic",
				RequestIDField(c),
				TraceIDField(c),
				zap.String("route", c.FullPath()),
				zap.String("cause", auth.Redact(background.DescribePanic(cause))),
				zap.StackSkip("stack", 1))
			fail(c, errPanic)
		}()
		c.Next()
	}
}
