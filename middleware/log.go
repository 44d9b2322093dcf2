package middleware

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"plantstore/auth"
)

// AccessLog logs a line for each request, after its response. The line has no header,
// query or body, which may contain secrets, and the sender's name instead of the token.
func AccessLog(log *zap.Logger) gin.HandlerFunc {
	return func(c *gin.Context) {
		start := time.Now()
		// Deferred, so that an aborted response is logged, too.
		defer func() {
			level := zapcore.InfoLevel
			if c.Writer.Status() >= 500 {
				level = zapcore.ErrorLevel
			}
			sender := ""
			if identity := IdentityOf(c); identity != nil {
				sender = identity.Name
			}
			log.Log(level, "request",
				zap.String("request_id", RequestIDOf(c)),
				zap.String("method", c.Request.Method),
				zap.String("path", auth.Redact(c.Request.URL.Path)),
				zap.Int("status", c.Writer.Status()),
				zap.Duration("duration", time.Since(start)),
				zap.Int("bytes", max(c.Writer.Size(), 0)),
				zap.String("client", c.ClientIP()),
				zap.String("token", sender))
		}()
		c.Next()
	}
}

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
				zap.String("request_id", RequestIDOf(c)),
				zap.String("path", auth.Redact(c.Request.URL.Path)),
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

// errPanic is the error of a request that panicked. The log has the cause.
var errPanic = errors.New("panic")

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
