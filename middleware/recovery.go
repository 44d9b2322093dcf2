package middleware

import (
	"errors"
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
				zap.String("cause", causeOf(cause)),
				zap.StackSkip("stack", 1))
			if c.Writer.Written() {
				panic(http.ErrAbortHandler)
			}
			Fail(c, errPanic)
		}()
		c.Next()
	}
}

// errPanic is what a request failed with that has panicked. The log has the rest.
var errPanic = errors.New("panic")

// causeOf says why something has panicked: what the value says where it is there to
// say something, and nothing but its type where it may be anything, a whole request
// with its headers included.
func causeOf(value any) string {
	switch value := value.(type) {
	case error:
		return models.HideTokens(value.Error())
	case string:
		return models.HideTokens(value)
	}
	return fmt.Sprintf("a value of type %T", value)
}
