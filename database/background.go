package database

import (
	"context"
	"sync"
	"time"
)

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
