// Package limit bounds how much runs at a time, in all and for each client. [Turns] makes an
// operation wait for its turn; [Shares] rejects at once what exceeds a share.
package limit

import (
	"context"
	"time"
)

// client is a context for operations of a client: a single object, where context.WithValue makes two.
type client struct {
	context.Context //nolint:containedctx // it is a context
	name            string
}

// clientKey is the key of a context's *client.
type clientKey struct{}

func (c *client) Value(key any) any {
	if key == (clientKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// WithClient returns a context for operations of the client name.
func WithClient(ctx context.Context, name string) context.Context { return &client{ctx, name} }

// Client returns the name of ctx's client, or an empty name.
func Client(ctx context.Context) string {
	if c, ok := ctx.Value(clientKey{}).(*client); ok {
		return c.name
	}
	return ""
}

// waitShare is the part of its time limit for which an operation may wait for a turn: 1/waitShare.
const waitShare = 6

// Wait returns how long an operation with a time limit may wait for its turn. In the queue of a
// batch, or for a lock, it may wait until only that time is left, in which it must run.
func Wait(timeout time.Duration) time.Duration { return timeout / waitShare }
