package middleware

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestTransfer(t *testing.T) {
	o := BulkOptions{MinBytesPerSecond: 1000, Grace: 10 * time.Second}
	for _, test := range []struct {
		name  string
		took  time.Duration // the transfer before
		bytes int
		want  time.Duration // until the deadline of the next one
	}{
		{"at first, the client may stall for the time of grace", 0, 0, 10 * time.Second},
		{"a client that is as fast as it must be keeps it", 4 * time.Second, 4000, 10 * time.Second},
		{"a fast client gains nothing", time.Second, 1 << 20, 10 * time.Second},
		{"a slow one loses", 4 * time.Second, 1000, 7 * time.Second},
		{"no transfer lasts beyond the end", 0, 1 << 30, 10 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var deadline time.Time
				end := time.Now().Add(time.Minute)
				in := &transfer{limits: o, ctx: t.Context(), end: end, left: o.Grace, setDeadline: func(d time.Time) error { deadline = d; return nil }}
				if _, err := in.do(func([]byte) (int, error) { time.Sleep(test.took); return test.bytes, nil }, nil); err != nil {
					t.Fatal(err)
				}
				// HTTP/2 ends a stream at its deadline, even between transfers.
				if !deadline.Equal(end) {
					t.Errorf("between transfers, got the deadline %s before the end", end.Sub(deadline))
				}
				var got time.Duration
				if _, err := in.do(func([]byte) (int, error) { got = time.Until(deadline); return 0, nil }, nil); err != nil || got != test.want {
					t.Errorf("got %s, %v, want %s", got, err, test.want)
				}
			})
		})
	}
	t.Run("it ends with the request", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		in := &transfer{limits: o, ctx: ctx, end: time.Now().Add(time.Minute), left: o.Grace, setDeadline: func(time.Time) error { return nil }}
		if _, err := in.do(func([]byte) (int, error) { t.Error("called"); return 0, nil }, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
}
