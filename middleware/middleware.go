// Package middleware holds the steps of every request before and after its controller.
package middleware

import "github.com/gin-gonic/gin"

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
