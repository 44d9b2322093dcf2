package middleware

import (
	"errors"
	"net/http"

	"github.com/gin-gonic/gin"
	"go.uber.org/zap"

	"plantstore/auth"
	"plantstore/database"
)

// errPanic is the error of a request that panicked. The log has the cause.
var errPanic = errors.New("panic")

// Recovery logs a panic with its stack and turns it into an error. If the response has
// begun, it aborts the connection instead, so that the client does not mistake a part
// for the whole.
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
				zap.String("cause", auth.Redact(database.DescribePanic(cause))),
				zap.StackSkip("stack", 1))
			if c.Writer.Written() {
				panic(http.ErrAbortHandler)
			}
			fail(c, errPanic)
		}()
		c.Next()
	}
}
