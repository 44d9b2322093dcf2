package database

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

// Every calls do after each period, until ctx ends.
func Every(ctx context.Context, period time.Duration, do func()) {
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if ctx.Err() == nil { // both may have happened
				do()
			}
		}
	}
}

// Sleep waits for pause, and reports whether ctx has not ended before.
func Sleep(ctx context.Context, pause time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(pause):
		return true
	}
}

// every calls do now and every interval, in the background, until db is closed.
func (db *DB) every(interval time.Duration, do func(context.Context)) {
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		do(ctx)
		Every(ctx, interval, func() { do(ctx) })
	})
	db.closers = append(db.closers, func() {
		stop()
		running.Wait()
	})
}
