package operate

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"plantstore/tests/service"
)

// TestMemoryOfIdleConnections holds 10,000 connections open after a request on each.
func TestMemoryOfIdleConnections(t *testing.T) {
	const connections, limit = 10_000, 400 << 20
	needFiles(t, connections+500)
	s := service.StartPlain(t, "PLANTSTORE_SERVER_MAX_CONNECTIONS="+strconv.Itoa(connections), "PLANTSTORE_SERVER_MAX_CONNECTIONS_PER_ADDRESS="+strconv.Itoa(connections), "PLANTSTORE_SERVER_IDLE_TIMEOUT=10m")
	before := s.Memory(t)

	open := make([]net.Conn, connections)
	defer func() {
		for _, conn := range open {
			if conn != nil {
				_ = conn.Close()
			}
		}
	}()
	const workers = 64
	var group sync.WaitGroup
	for worker := range workers {
		group.Go(func() {
			for i := worker; i < connections; i += workers {
				var err error
				if open[i], err = storeOn(s, int64(i)); err != nil {
					t.Errorf("connection %d: %v", i, err)
					return
				}
			}
		})
	}
	group.Wait()
	after := s.Memory(t)
	t.Logf("%d idle connections: %d MiB, %d MiB without, %.1f KiB each", connections, after>>20, before>>20, float64(after-before)/connections/1024)
	if after > limit {
		t.Errorf("got %d MiB with %d idle connections, want at most %d", after>>20, connections, limit>>20)
	}
	// All connections are still open and served.
	for _, conn := range open {
		if !t.Failed() {
			askHealth(t, conn)
		}
	}
	for _, conn := range open {
		if !t.Failed() {
			readHealth(t, conn)
		}
	}
}

// TestGzipBomb sends 64 KiB that expand to 64 MiB, in one member and in four.
func TestGzipBomb(t *testing.T) {
	t.Parallel()
	const growth = 64 << 20
	s := service.StartPlain(t)
	blank := strings.Repeat("\n", 1<<24)
	var bomb bytes.Buffer
	w := gzip.NewWriter(&bomb)
	for range 4 {
		_, err := io.WriteString(w, blank)
		service.Must(t, err)
	}
	service.Must(t, w.Close())
	for name, body := range map[string]string{"one member": bomb.String(), "4 members": strings.Repeat(service.Gzipped(t, blank), 4)} {
		t.Run(name, func(t *testing.T) {
			before := s.Memory(t)
			done, most := make(chan service.Response), 0
			go func() {
				r, err := s.Try("POST", "/plants/import", strings.NewReader(body), service.As(service.Token, "Content-Type", service.InNDJSON, "Content-Encoding", "gzip")...)
				if err != nil {
					t.Error(err)
				}
				done <- r
			}()
			ticker := time.NewTicker(10 * time.Millisecond)
			defer ticker.Stop()
			for {
				select {
				case r := <-done:
					r.CheckError(t, 41301)
					t.Logf("%d bytes took %d MiB", len(body), (most-before)>>20)
					if most-before > growth {
						t.Errorf("memory grew by %d MiB, want at most %d", (most-before)>>20, growth>>20)
					}
					return
				case <-ticker.C:
					most = max(most, s.Memory(t))
				}
			}
		})
	}
}

// storeOn creates a plant on a connection of its own, and keeps it open.
func storeOn(s *service.Service, id int64) (net.Conn, error) {
	conn, err := net.DialTimeout("tcp", strings.TrimPrefix(s.URL, "http://"), service.Patience)
	if err != nil {
		return nil, err
	}
	if err := conn.SetDeadline(time.Now().Add(service.Patience)); err != nil {
		return conn, err
	}
	body := service.BodyOf(id)
	if _, err := fmt.Fprintf(conn, "POST /plants HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s", service.Token, len(body), body); err != nil {
		return conn, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return conn, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && (resp.StatusCode != http.StatusOK || resp.Close) {
		err = fmt.Errorf("%s %s", resp.Status, text)
	}
	return conn, err
}
