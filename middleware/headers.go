package middleware

import (
	"github.com/gin-gonic/gin"
)

// Headers sets the headers that every answer has.
func Headers() gin.HandlerFunc {
	return func(c *gin.Context) {
		c.Header("X-Content-Type-Options", "nosniff")
		c.Header("Cache-Control", "no-store")
	}
}
