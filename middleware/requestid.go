package middleware

import (
	"cmp"
	"crypto/rand"
	"regexp"
	"slices"

	"github.com/gin-gonic/gin"
	"go.uber.org/zap"

	"plantstore/auth"
)

// RequestIDHeader carries the id by which a request is found in the logs.
const RequestIDHeader = "X-Request-ID"

// requestID matches the ids that clients may choose.
var requestID = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// RequestID returns the client's request id in the response if it is 1 to 64 of
// [A-Za-z0-9._-], and a random one otherwise. The log has … instead of an id with a part of a
// token: of the request's own, or of tokens. The response must not depend on that, or it
// would tell anybody what parts tokens have.
func RequestID(tokens ...string) gin.HandlerFunc {
	return func(c *gin.Context) {
		id := c.GetHeader(RequestIDHeader)
		switch {
		case !requestID.MatchString(id):
			id = rand.Text()
		case auth.HasToken(id, slices.Concat(c.Request.Header["Authorization"], tokens)...):
			c.Set(requestIDKey, other)
		}
		SetHeader(c, RequestIDHeader, id)
	}
}

// RequestIDOf returns the id of c's request.
func RequestIDOf(c *gin.Context) string { return HeaderOf(c, RequestIDHeader) }

// RequestIDField is the field for the id of c's request.
func RequestIDField(c *gin.Context) zap.Field {
	return zap.String("request_id", cmp.Or(c.GetString(requestIDKey), RequestIDOf(c)))
}
