package database

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"
)

// Recover sets err, when deferred, to a panic of the function, which it names, with the stack. A
// panic in a goroutine of its own would end the process. Of a value that is neither an error nor a
// text it shows only the type, as the value may hold what a client sent.
func Recover(function string, err *error) {
	cause := recover()
	switch cause.(type) {
	case nil:
		return
	case error, string:
	default:
		cause = fmt.Sprintf("a value of type %T", cause)
	}
	*err = fmt.Errorf("panic in %s: %v\n%s", function, cause, debug.Stack())
}

// every calls do now and every interval, in the background, until db is closed.
func (db *DB) every(interval time.Duration, do func(context.Context)) {
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			do(ctx)
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
		}
	})
	db.closers = append(db.closers, func() {
		stop()
		running.Wait()
	})
}
