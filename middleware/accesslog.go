package middleware

import (
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
