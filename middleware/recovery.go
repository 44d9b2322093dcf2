package middleware

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/gin-gonic/gin"
	"go.uber.org/zap"

	"plantstore/auth"
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
				TraceID(c),
				zap.String("route", c.FullPath()),
				zap.String("cause", causeOf(cause)),
				zap.StackSkip("stack", 1))
			if c.Writer.Written() {
				panic(http.ErrAbortHandler)
			}
			fail(c, errPanic)
		}()
		c.Next()
	}
}

// causeOf describes the value of a panic: an error or a text as it is, any other value
// by its type, since it may contain a whole request with its headers.
func causeOf(value any) string {
	switch value := value.(type) {
	case error:
		return auth.Redact(value.Error())
	case string:
		return auth.Redact(value)
	}
	return fmt.Sprintf("a value of type %T", value)
}
