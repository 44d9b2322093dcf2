package middleware_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"plantstore/auth"
	"plantstore/database/limit"
	"plantstore/middleware"
)

// heldWriter is the writer of a response whose client does not read until read is closed.
type heldWriter struct {
	*httptest.ResponseRecorder
	writing, read chan struct{}
	deadlines     int
	deadline      time.Time // the last one
}

func (w *heldWriter) Write(p []byte) (int, error) {
	w.writing <- struct{}{}
	<-w.read
	return w.ResponseRecorder.Write(p)
}

func (w *heldWriter) SetReadDeadline(time.Time) error { return nil }

func (w *heldWriter) SetWriteDeadline(deadline time.Time) error {
	w.deadlines++
	w.deadline = deadline
	return nil
}

// asTold takes the token of a request for the name of its client.
func asTold(_ context.Context, token string) (*auth.Identity, error) {
	return &auth.Identity{Name: token}, nil
}

// sendAll returns a handler that sends size bytes after first, with the error of the write.
func sendAll(size int, first ...middleware.Handler) (handler http.Handler, outcome chan error) {
	outcome = make(chan error, 1)
	e := gin.New()
	e.Use(middleware.Handle(middleware.Bearer(asTold, 0)))
	for _, h := range first {
		e.Use(middleware.Handle(h))
	}
	e.GET("/", func(c *gin.Context) {
		_, err := c.Writer.Write(make([]byte, size))
		outcome <- err
	})
	return e, outcome
}

func RequestOf(t *testing.T, client string) *http.Request {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	r.Header.Set("Authorization", "Bearer "+client)
	return r
}

// TestSendLimit has clients that do not read: each may keep two parts in memory, but no more than
// it leaves, and all of them four.
func TestSendLimit(t *testing.T) {
	const part = middleware.Small + 1
	handler, outcome := sendAll(part, middleware.SendLimit(limit.NewShares(4*part, 2*part)))
	w := &heldWriter{writing: make(chan struct{}), read: make(chan struct{})}
	for _, test := range []struct {
		name, client string
		rejected     bool
	}{
		{"the first part", "a", false},
		{"the second part", "a", false},
		{"more than a client's share", "a", true},
		{"another client", "b", false},
		{"more than it would leave", "b", true},
		{"the last part", "c", false},
		{"more than all", "d", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			held := &heldWriter{ResponseRecorder: httptest.NewRecorder(), writing: w.writing, read: w.read}
			go handler.ServeHTTP(held, RequestOf(t, test.client))
			select {
			case <-w.writing:
				if test.rejected {
					t.Error("got a response, want none")
				}
			case err := <-outcome:
				if !test.rejected || !errors.Is(err, limit.ErrShare) {
					t.Errorf("got %v", err)
				}
			}
		})
	}
	close(w.read)
	for range 4 {
		if err := <-outcome; err != nil {
			t.Error(err)
		}
	}
	w.writing = make(chan struct{}, 1)
	go handler.ServeHTTP(&heldWriter{ResponseRecorder: httptest.NewRecorder(), writing: w.writing, read: w.read}, RequestOf(t, "a"))
	if err := <-outcome; err != nil {
		t.Errorf("after the others were read: %v", err)
	}
}

// endedWriter is a heldWriter that tells when its deadline is set to a time that has passed.
type endedWriter struct {
	*heldWriter
	ended chan struct{}
}

func (w *endedWriter) SetWriteDeadline(deadline time.Time) error {
	if !deadline.IsZero() && time.Until(deadline) <= 0 {
		close(w.ended)
	}
	return nil
}

// TestShare: a body that many responses share counts when it is no longer kept for them.
func TestShare(t *testing.T) {
	const most = 64 << 10 // of a client
	for _, test := range []struct {
		name       string
		size       int
		kept, ends bool
	}{
		{"a kept body", 2 * most, true, false},
		{"no longer kept", most, false, false},
		{"no longer kept, and no room", 2 * most, false, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			kept, forget := context.WithCancel(t.Context())
			defer forget()
			outcome := make(chan error, 1)
			e := gin.New()
			for _, h := range []middleware.Handler{middleware.Bearer(asTold, 0), middleware.Stream(asTold), middleware.SendLimit(limit.NewShares(2*most, most))} {
				e.Use(middleware.Handle(h))
			}
			e.GET("/", func(c *gin.Context) {
				middleware.RequestOf(c).Kept = kept
				_, err := c.Writer.Write(make([]byte, test.size))
				outcome <- err
			})
			w := &endedWriter{&heldWriter{httptest.NewRecorder(), make(chan struct{}, 100), make(chan struct{}), 0, time.Time{}}, make(chan struct{})}
			go e.ServeHTTP(w, RequestOf(t, "a"))
			<-w.writing
			if !test.kept {
				forget()
			}
			if test.ends {
				<-w.ended
			}
			close(w.read)
			if err := <-outcome; errors.Is(err, limit.ErrShare) != test.ends || err != nil && !test.ends {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestStreamParts: a client has some time for each part of a stream, however long that is.
func TestStreamParts(t *testing.T) {
	handler, outcome := sendAll(100<<10, middleware.Stream(asTold))
	w := &heldWriter{ResponseRecorder: httptest.NewRecorder(), writing: make(chan struct{}, 100), read: make(chan struct{})}
	close(w.read)
	handler.ServeHTTP(w, RequestOf(t, "a"))
	if err := <-outcome; err != nil || w.Body.Len() != 100<<10 {
		t.Errorf("sent %d bytes, %v", w.Body.Len(), err)
	}
	if parts := len(w.writing); parts != 7 || w.deadlines < parts {
		t.Errorf("got %d parts and %d deadlines, want 7 parts with a deadline each", parts, w.deadlines)
	}
}

// TestTimeToRespond: what replaces the time limits of a request leaves some time for the end of
// its response, and no more.
func TestTimeToRespond(t *testing.T) {
	bulk := middleware.BulkOptions{Timeout: time.Hour, MinBytesPerSecond: 1, Grace: time.Minute}
	for name, test := range map[string]struct {
		limits middleware.Handler
		most   time.Duration
	}{
		"bulk":     {middleware.Bulk(bulk, asTold), bulk.Grace},
		"a stream": {middleware.Stream(asTold), middleware.StreamTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			handler, outcome := sendAll(1, test.limits)
			w := &heldWriter{ResponseRecorder: httptest.NewRecorder(), writing: make(chan struct{}, 1), read: make(chan struct{})}
			close(w.read)
			handler.ServeHTTP(w, RequestOf(t, "a"))
			if err := <-outcome; err != nil {
				t.Error(err)
			}
			if left := time.Until(w.deadline); left <= test.most-time.Second || left > test.most {
				t.Errorf("got %s, want %s", left, test.most)
			}
		})
	}
}
