package middleware

import (
	"fmt"
	"net/http"

	"github.com/gin-gonic/gin"
	"go.uber.org/zap"

	"plantstore/models"
)

// Recovery turns a panic into an error, and logs it with its stack. An answer
// that has begun cannot be taken back: its connection is broken off instead, so
// that the client does not take a part for the whole.
func Recovery(log *zap.Logger) gin.HandlerFunc {
	return func(c *gin.Context) {
		defer func() {
			cause := recover()
			if cause == nil {
				return
			}
			if cause == http.ErrAbortHandler { //nolint:errorlint // net/http compares it so, too
				panic(cause)
			}
			log.Error("panic",
				zap.String("request_id", RequestIDOf(c)),
				zap.String("path", models.HideTokens(c.Request.URL.Path)),
				zap.Any("cause", cause),
				zap.StackSkip("stack", 1))
			if c.Writer.Written() {
				panic(http.ErrAbortHandler)
			}
			Fail(c, fmt.Errorf("panic: %v", cause))
		}()
		c.Next()
	}
}

// Fail ends the request with err, which the controllers' error handler answers.
func Fail(c *gin.Context, err error) {
	_ = c.Error(err)
	c.Abort()
}
