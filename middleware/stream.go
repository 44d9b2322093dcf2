package middleware

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"plantstore/auth"
)

// streamCheckPeriod is checkPeriod for requests of which there are many.
const streamCheckPeriod = 2 * time.Second

// streamPatience is how long a client of a stream may take to read a part of it.
const streamPatience = 10 * time.Second

// Stream lets a request wait, and its response last, for longer than the server's time
// limits allow, until verify no longer accepts its token. The response is sent by [SendPart],
// or after [StartPart].
func Stream(verify auth.Verifier) Handler {
	return func(c *gin.Context) error {
		control := http.NewResponseController(c.Writer)
		// Beyond its deadline for reading, net/http takes the client for gone.
		if err := errors.Join(control.SetReadDeadline(time.Time{}), control.SetWriteDeadline(time.Time{})); err != nil {
			return fmt.Errorf("set the deadline: %w", err)
		}
		ctx, end := watchToken(c.Request.Context(), c, verify, streamCheckPeriod)
		defer end()
		c.Next()
		return endOfToken(ctx, c)
	}
}

// StartPart limits how long the client may take to read what is sent next.
func StartPart(c *gin.Context) error {
	if err := http.NewResponseController(c.Writer).SetWriteDeadline(time.Now().Add(streamPatience)); err != nil {
		return err
	}
	if ctx := c.Request.Context(); ctx.Err() != nil { // after the deadline was set, as the end of the token sets it, too
		return context.Cause(ctx)
	}
	return nil
}

// SendPart sends a part of a response at once. It fails if the client does not read.
func SendPart(c *gin.Context, part []byte) error {
	if err := StartPart(c); err != nil {
		return err
	}
	if _, err := c.Writer.Write(part); err != nil {
		return err
	}
	plain := http.ResponseWriter(c.Writer)
	for { // Gin's Flush has no error
		inner, ok := plain.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			break
		}
		plain = inner.Unwrap()
	}
	if err := http.NewResponseController(plain).Flush(); err != nil {
		return err
	}
	return http.NewResponseController(plain).SetWriteDeadline(time.Time{}) // HTTP/2 enforces a deadline even between parts
}
