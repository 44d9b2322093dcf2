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

// key is the key of what a request's steps tell each other in its context.
type key int

const (
	basePathKey  key = iota
	bodyLeftKey      // whether the body was not read up to its end
	createdIDKey     // the id of what the request creates
	errorCodeKey     // that of the response
	identityKey
	quietKey     // whether the request is not worth a line at the usual level
	requestIDKey // what the log has instead of the id
	streamKey
	traceIDKey
)

func fail(c *gin.Context, err error) {
	_ = c.Error(err)
	c.Abort()
}
