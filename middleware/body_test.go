package middleware_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"plantstore/database/limit"
	"plantstore/middleware"
)

// stalledBody is a body of which a client has sent size bytes, and sends the end later.
type stalledBody struct {
	size       int
	sent, rest chan struct{}
}

func (b *stalledBody) Read(p []byte) (int, error) {
	if b.size == 0 {
		b.sent <- struct{}{}
		<-b.rest
		return 0, io.EOF
	}
	n := min(len(p), b.size)
	b.size -= n
	return n, nil
}

// TestReceiveLimit has clients that do not send the rest of their bodies: each may keep two parts
// in memory, all of them four.
func TestReceiveLimit(t *testing.T) {
	const part = 64 << 10
	outcome := make(chan error, 10)
	e := gin.New()
	e.Use(middleware.Handle(middleware.Bearer(asTold, 0)), middleware.Handle(middleware.ReceiveLimit(4*part)))
	e.GET("/", func(c *gin.Context) {
		_, err := io.ReadAll(c.Request.Body)
		outcome <- err
	})
	sent, rest := make(chan struct{}), make(chan struct{})
	var served sync.WaitGroup
	serve := func(client string, size int, length int64) {
		r := RequestOf(t, client)
		r.Body, r.ContentLength = io.NopCloser(&stalledBody{size, sent, rest}), length
		e.ServeHTTP(httptest.NewRecorder(), r)
	}
	for _, test := range []struct {
		name, client string
		size         int
		length       int64
		rejected     bool
	}{
		{"the first part", "a", part, part + 1, false},
		{"the second part, of unknown length", "a", part, -1, false},
		{"more than a client's share", "a", part, part + 1, true},
		{"more than it, of unknown length", "a", part, -1, true},
		{"another client", "b", part, part + 1, false},
		{"more than it would leave", "b", part, 2 * part, true},
		{"half of what is left", "c", part / 2, part, false},
		{"more than half of it", "d", part / 2, part, true},
		{"a small body", "d", middleware.Small - 1, middleware.Small, false},
		{"an announcement", "d", 0, part, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			served.Go(func() { serve(test.client, test.size, test.length) })
			select {
			case <-sent:
				if test.rejected {
					t.Error("the body was received")
				}
			case err := <-outcome:
				if !test.rejected || !errors.Is(err, limit.ErrShare) {
					t.Errorf("got %v", err)
				}
			}
		})
	}
	close(rest)
	for range 6 {
		if err := <-outcome; err != nil {
			t.Error(err)
		}
	}
	served.Wait() // a share is given back after its handler has returned
	go serve("a", 2*part, -1)
	select {
	case <-sent:
	case err := <-outcome:
		t.Errorf("after the others have ended: %v", err)
	}
}

// TestResponseAfterADiscardedBody: a client that sends the rest of a rejected body too slowly gets
// its response, although the time of the request ends meanwhile.
func TestResponseAfterADiscardedBody(t *testing.T) {
	e := gin.New()
	e.Use(func(c *gin.Context) {
		c.Next()
		c.Status(http.StatusUnauthorized)
	}, middleware.DiscardBody)
	e.POST("/", func(c *gin.Context) { _ = c.Error(errors.New("rejected")) })
	server := httptest.NewUnstartedServer(e)
	server.Config.WriteTimeout = 100 * time.Millisecond // discardTime is 1s
	server.Start()
	defer server.Close()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n{"); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusUnauthorized {
		t.Errorf("got %d, want %d", response.StatusCode, http.StatusUnauthorized)
	}
}
