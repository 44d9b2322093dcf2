package middleware

import (
	"crypto/rand"

	"github.com/gin-gonic/gin"

	"plantstore/models"
)

// RequestIDHeader carries the id by which an answer is found in the logs. This is
// the form that net/http has it in, which need not be converted.
const RequestIDHeader = "X-Request-Id"

const maxRequestIDLength = 64

// RequestID answers with the client's request id where it is one to 64 of
// [A-Za-z0-9._-], and with a random one otherwise.
func RequestID() gin.HandlerFunc {
	return func(c *gin.Context) {
		id := c.GetHeader(RequestIDHeader)
		if !isRequestID(id) || models.HideTokens(id) != id { // what is no id must not be logged as one
			id = rand.Text()
		}
		c.Header(RequestIDHeader, id)
	}
}

// RequestIDOf returns the id of the request that c answers.
func RequestIDOf(c *gin.Context) string { return c.Writer.Header().Get(RequestIDHeader) }

func isRequestID(id string) bool {
	if len(id) == 0 || len(id) > maxRequestIDLength {
		return false
	}
	for i := range len(id) {
		switch b := id[i]; {
		case 'A' <= b && b <= 'Z', 'a' <= b && b <= 'z', '0' <= b && b <= '9', b == '.', b == '_', b == '-':
		default:
			return false
		}
	}
	return true
}
