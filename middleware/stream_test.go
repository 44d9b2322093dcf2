package middleware_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gin-gonic/gin"

	"plantstore/auth"
	"plantstore/middleware"
)

// fullWriter is the writer of a response whose client does not read: a flush ends at the
// deadline.
type fullWriter struct {
	*httptest.ResponseRecorder
	ended chan struct{}
	once  sync.Once
}

func (w *fullWriter) FlushError() error {
	<-w.ended
	return os.ErrDeadlineExceeded
}

func (w *fullWriter) SetReadDeadline(time.Time) error { return nil }

func (w *fullWriter) SetWriteDeadline(deadline time.Time) error {
	if !deadline.IsZero() && time.Until(deadline) <= 0 {
		w.once.Do(func() { close(w.ended) })
	}
	return nil
}

// TestFlushEndsWithItsToken: a stream whose client does not read ends soon after its token.
func TestFlushEndsWithItsToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		revoked := func(context.Context, string) (*auth.Identity, error) { return nil, auth.ErrInvalidToken }
		var outcome error
		e := gin.New()
		e.Use(middleware.Handle(middleware.Bearer(asTold, 0)), middleware.Handle(middleware.Stream(revoked)))
		e.GET("/", func(c *gin.Context) { outcome = middleware.Flush(c) })
		begin := time.Now()
		e.ServeHTTP(&fullWriter{ResponseRecorder: httptest.NewRecorder(), ended: make(chan struct{})}, RequestOf(t, "a"))
		if took := time.Since(begin); !errors.Is(outcome, os.ErrDeadlineExceeded) || took > 5*time.Second {
			t.Errorf("got %v after %s", outcome, took)
		}
	})
}

// TestSlowCheckOfTheToken: a request does not wait for a check of its token that is under way when
// it ends, such as one that fetches the keys of JWTs from an issuer that hangs.
func TestSlowCheckOfTheToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		checked := make(chan struct{})
		defer close(checked)
		slow := func(context.Context, string) (*auth.Identity, error) {
			select {
			case <-checked:
			case <-time.After(10 * time.Second):
			}
			return nil, auth.ErrCannotVerify
		}
		e := gin.New()
		e.Use(middleware.Handle(middleware.Bearer(asTold, 0)), middleware.Handle(middleware.Stream(slow)))
		e.GET("/", func(*gin.Context) { time.Sleep(time.Second) })
		begin := time.Now()
		e.ServeHTTP(&fullWriter{ResponseRecorder: httptest.NewRecorder(), ended: make(chan struct{})}, RequestOf(t, "a"))
		if took := time.Since(begin); took > time.Second {
			t.Errorf("the request took %s, of which its handler took one second", took)
		}
	})
}
