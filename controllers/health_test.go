package controllers

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestUntilDrain: draining ends what waits, and lets what comes then wait only shortly.
func TestUntilDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, begin := NewHealth(nil, nil), time.Now()
		before, cancel := h.untilDrain(t.Context(), time.Minute)
		defer cancel()
		time.AfterFunc(time.Second, h.Drain)
		<-before.Done()
		if waited := time.Since(begin); waited != time.Second {
			t.Errorf("ended after %v, want 1s", waited)
		}
		for timeout, want := range map[time.Duration]time.Duration{0: 0, time.Minute: drainPause} {
			begin := time.Now()
			after, cancel := h.untilDrain(t.Context(), timeout)
			<-after.Done()
			cancel()
			if waited := time.Since(begin); waited != want {
				t.Errorf("with a timeout of %v: ended after %v, want %v", timeout, waited, want)
			}
		}
	})
}
