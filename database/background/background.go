// Package background runs functions beside requests.
package background

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"
)

// Recover sets err, when deferred, to a panic of the function, which it names, with the stack. A
// panic in a goroutine of its own would end the process.
func Recover(function string, err *error) {
	if cause := recover(); cause != nil {
		*err = fmt.Errorf("panic in %s: %s\n%s", function, DescribePanic(cause), debug.Stack())
	}
}

// DescribePanic describes the value of a panic: an error or a text as it is, any other value by
// its type, since it may contain a whole request with its headers.
func DescribePanic(cause any) string {
	switch cause := cause.(type) {
	case error:
		return cause.Error()
	case string:
		return cause
	}
	return fmt.Sprintf("a value of type %T", cause)
}

// Every calls do after each pause of period, until ctx ends.
func Every(ctx context.Context, period time.Duration, do func()) {
	for Sleep(ctx, period) {
		do()
	}
}

// Start calls do now and every period, in a goroutine, until stop is called, which waits for its end.
func Start(period time.Duration, do func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		do(ctx)
		Every(ctx, period, func() { do(ctx) })
	})
	return func() {
		cancel()
		running.Wait()
	}
}

// Sleep waits for pause, and reports whether ctx has not ended before.
func Sleep(ctx context.Context, pause time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(pause):
		return ctx.Err() == nil // both may have happened
	}
}
