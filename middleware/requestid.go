package middleware

import (
	"crypto/rand"
	"regexp"
	"slices"

	"github.com/gin-gonic/gin"

	"plantstore/auth"
)

// RequestIDHeader carries the id by which a request is found in the logs.
const RequestIDHeader = "X-Request-ID"

// requestID matches the ids that clients may choose.
var requestID = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// RequestID returns the client's request id in the response if it is 1 to 64 of
// [A-Za-z0-9._-], and a random one otherwise. The id is logged, so it must have no part
// of a token either: of the request's own, or of tokens.
func RequestID(tokens ...string) gin.HandlerFunc {
	return func(c *gin.Context) {
		id := c.GetHeader(RequestIDHeader)
		if !requestID.MatchString(id) || auth.HasToken(id, slices.Concat(c.Request.Header["Authorization"], tokens)...) {
			id = rand.Text()
		}
		SetHeader(c, RequestIDHeader, id)
	}
}

// RequestIDOf returns the id of c's request.
func RequestIDOf(c *gin.Context) string { return HeaderOf(c, RequestIDHeader) }
