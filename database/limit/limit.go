// Package limit bounds how much runs at a time, in all and for each client. [Turns] makes an
// operation wait for its turn; [Shares] rejects at once what exceeds a share.
package limit

import (
	"context"
	"time"
)

// clientKey is the key of the name of a context's client.
type clientKey struct{}

// WithClient returns a context for operations of the client name.
func WithClient(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, clientKey{}, name)
}

// Client returns the name of ctx's client, or an empty name.
func Client(ctx context.Context) string {
	name, _ := ctx.Value(clientKey{}).(string)
	return name
}

// waitShare is the part of its time limit for which an operation may wait for a turn: 1/waitShare.
const waitShare = 6

// Wait returns how long an operation with a time limit may wait for its turn. In the queue of a
// batch, or for a lock, it may wait until only that time is left, in which it must run.
func Wait(timeout time.Duration) time.Duration { return timeout / waitShare }
