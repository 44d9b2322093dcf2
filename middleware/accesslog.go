package middleware

import (
	"time"

	"github.com/gin-gonic/gin"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"plantstore/models"
)

// AccessLog logs one line for each request when it has been answered: never a
// header, a query or a body, for they may hold secrets. Of a token it has the name.
func AccessLog(log *zap.Logger) gin.HandlerFunc {
	return func(c *gin.Context) {
		start := time.Now()
		// Deferred, so that an answer that was broken off has its line too.
		defer func() {
			level := zapcore.InfoLevel
			if c.Writer.Status() >= 500 {
				level = zapcore.ErrorLevel
			}
			who := "" // nobody, or nobody yet
			if identity := IdentityOf(c); identity != nil {
				who = identity.Name
			}
			log.Log(level, "request",
				zap.String("request_id", RequestIDOf(c)),
				zap.String("method", c.Request.Method),
				zap.String("path", models.HideTokens(c.Request.URL.Path)),
				zap.Int("status", c.Writer.Status()),
				zap.Duration("duration", time.Since(start)),
				zap.Int("bytes", max(c.Writer.Size(), 0)),
				zap.String("client", c.ClientIP()),
				zap.String("token", who))
		}()
		c.Next()
	}
}
