package operate

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"plantstore/tests/service"
)

// needFiles ends the test if it, and thus the service, may not open n files, including
// connections. The Go runtime has already raised the soft limit to the hard limit.
func needFiles(t *testing.T, n uint64) {
	t.Helper()
	var limit syscall.Rlimit
	service.Must(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	if limit.Cur < n {
		t.Fatalf("got a limit of %d open files, want %d: raise ulimit -Hn", limit.Cur, n)
	}
}

// drip sends text and then one byte twice per second until the service closes the
// connection. It returns the time until then, and the response.
func drip(s *service.Service, text string) (took time.Duration, said string, err error) {
	begin := time.Now()
	conn, err := net.DialTimeout("tcp", strings.TrimPrefix(s.URL, "http://"), service.Patience)
	if err != nil {
		return 0, "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(begin.Add(service.Patience)); err != nil {
		return 0, "", err
	}
	if _, err := io.WriteString(conn, text); err != nil {
		return 0, "", err
	}
	closed := make(chan struct{})
	defer close(closed)
	go func() {
		ticker := time.NewTicker(500 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-closed:
				return
			case <-ticker.C:
				if _, err := conn.Write([]byte(" ")); err != nil {
					return
				}
			}
		}
	}()
	response, err := io.ReadAll(conn)
	if errors.Is(err, syscall.ECONNRESET) { // closed before the last byte
		err = nil
	}
	return time.Since(begin), string(response), err
}

// steadily sends rate requests per second, alternately a POST and a GET of stored plants,
// until stop is closed. It returns the latencies, measured from when each request was due.
func steadily(t *testing.T, s *service.Service, rate int, stop <-chan struct{}) []time.Duration {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: rate}
	defer transport.CloseIdleConnections()
	var mu sync.Mutex
	var took []time.Duration
	var group sync.WaitGroup
	ticker := time.NewTicker(time.Second / time.Duration(rate))
	defer ticker.Stop()
	for n := int64(0); ; n++ {
		select {
		case <-stop:
			group.Wait()
			return took
		case due := <-ticker.C:
			group.Go(func() {
				method, path, body := http.MethodPost, "/plants", service.BodyOf(n)
				if n%2 == 1 {
					method, path, body = http.MethodGet, fmt.Sprintf("/plants?after=%d&limit=1", n-3), ""
				}
				r, err := s.TryOn(transport, method, path, strings.NewReader(body), service.As(service.Token)...)
				if err != nil || r.Status != http.StatusOK {
					t.Errorf("%s %s: got %v, %v, want 200", method, path, r, err)
				}
				mu.Lock()
				defer mu.Unlock()
				took = append(took, time.Since(due))
			})
		}
	}
}

// percentile returns the duration that p percent of sorted do not exceed.
func percentile(sorted []time.Duration, p int) time.Duration {
	return sorted[(len(sorted)*p+99)/100-1]
}

const slowClients = 2_000

// TestManySlowClients opens connections that never send a complete request. They are
// closed at their timeouts and do not affect others: 99 of 100 other requests take less than
// 100ms, or than twice as long as requests to a service without slow clients, which other
// load on the machine delays as much. That load may cost two of three rounds.
func TestManySlowClients(t *testing.T) {
	const limit = 100 * time.Millisecond
	needFiles(t, slowClients+500)
	for range 3 {
		if p99, without := besideSlowClients(t); p99 < max(limit, 2*without) || t.Failed() {
			return
		}
	}
	t.Errorf("got a 99th percentile above %v, and twice that of a service without slow clients, in three rounds", limit)
}

// besideSlowClients runs slow clients on a new service and returns the 99th percentile of
// the latencies of other requests, and of requests to a service without slow clients.
func besideSlowClients(t *testing.T) (p99, without time.Duration) {
	t.Helper()
	const headers, body = 2 * time.Second, 5 * time.Second
	const late = 2500 * time.Millisecond              // tolerance, for so many connections
	const patient = "PLANTSTORE_DATABASE_TIMEOUT=30s" // a slow disk delays writes
	s := service.StartPlain(t, patient, "PLANTSTORE_SERVER_READ_HEADER_TIMEOUT="+headers.String(), "PLANTSTORE_SERVER_READ_TIMEOUT="+body.String())
	stop, latencies, apart := make(chan struct{}), make(chan []time.Duration), make(chan []time.Duration)
	go func() { latencies <- steadily(t, s, 50, stop) }()
	other := service.StartPlain(t, patient)
	go func() { apart <- steadily(t, other, 50, stop) }()
	// Clients arrive one after another, so that this test leaves CPU time to the service.
	arrivals := time.NewTicker(time.Millisecond)
	defer arrivals.Stop()
	var group sync.WaitGroup
	for i := range slowClients {
		<-arrivals.C
		what, text, timeout, response := "slow headers", "POST /plants HTTP/1.1\r\nHost: localhost\r\nX-Slow: ", headers, ""
		if i%2 == 1 {
			what, timeout, response = "a slow body", body, "HTTP/1.1 400 Bad Request\r\n"
			text = "POST /plants HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + service.Token + "\r\nContent-Length: 100\r\n\r\n{"
		}
		group.Go(func() {
			took, said, err := drip(s, text)
			if err != nil || took < timeout || took > timeout+late || !strings.HasPrefix(said, response) || (response == "") != (said == "") {
				t.Errorf("%s: got %q, %v after %v, want %v", what, said, err, took, timeout)
			}
		})
	}
	group.Wait()
	close(stop)
	others, undisturbed := service.Receive(t, latencies), service.Receive(t, apart)
	slices.Sort(others)
	slices.Sort(undisturbed)
	p99, without = percentile(others, 99), percentile(undisturbed, 99)
	t.Logf("%d requests beside %d slow clients: p50 %v, p90 %v, p99 %v, max %v; p99 without them %v",
		len(others), slowClients, percentile(others, 50), percentile(others, 90), p99, others[len(others)-1], without)
	if len(others) < 250 {
		t.Errorf("got %d other requests, want at least 250", len(others))
	}
	return p99, without
}

// TestLargeHeaders sends headers beyond the limit, which net/http rejects in plain text.
func TestLargeHeaders(t *testing.T) {
	t.Parallel()
	s := service.Start(t, "PLANTSTORE_SERVER_MAX_HEADER_BYTES=8192")
	many := func(n int) string {
		var lines strings.Builder
		for i := range n {
			fmt.Fprintf(&lines, "X-%05d: x\r\n", i) // 12 bytes
		}
		return lines.String()
	}
	// net/http reads 4 KiB beyond the limit.
	for name, test := range map[string]struct {
		head   string
		status int
	}{
		"many headers":      {"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + many(500), http.StatusOK},
		"too many headers":  {"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + many(1100), http.StatusRequestHeaderFieldsTooLarge},
		"a long header":     {"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Long: " + strings.Repeat("x", 7000) + "\r\n", http.StatusOK},
		"too long a header": {"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Long: " + strings.Repeat("x", 13_000) + "\r\n", http.StatusRequestHeaderFieldsTooLarge},
		"too long a path":   {"GET /" + strings.Repeat("x", 13_000) + " HTTP/1.1\r\nHost: localhost\r\n", http.StatusRequestHeaderFieldsTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			conn := s.Dial(t)
			if _, err := io.WriteString(conn, test.head+"\r\n"); err != nil {
				t.Fatal(err)
			}
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Error(err)
				return
			}
			_, err = io.Copy(io.Discard, resp.Body) // to the end of a connection that is not reset
			_ = resp.Body.Close()
			if resp.StatusCode != test.status || err != nil {
				t.Errorf("got %s, %v, want %d", resp.Status, err, test.status)
			}
		})
	}
}

// TestEndlessRequests sends endless headers and bodies as fast as it can, of which the
// service reads little.
func TestEndlessRequests(t *testing.T) {
	t.Parallel()
	s := service.Start(t)
	const (
		chunk   = 32 << 10
		headers = 1 << 20
		body    = 17 << 20 // the service discards 16 MiB of a rejected one
	)
	post := "POST /plants HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + service.Token + "\r\n"
	for name, test := range map[string]struct {
		head, more string
		limit      int // of bytes that the service reads
		status     int
	}{
		"headers":                {head: "POST /plants HTTP/1.1\r\nHost: localhost\r\n", more: strings.Repeat("X-More: x\r\n", chunk/11), limit: headers, status: 431},
		"a header":               {head: "POST /plants HTTP/1.1\r\nHost: localhost\r\nX-More: ", more: strings.Repeat("x", chunk), limit: headers, status: 431},
		"a body":                 {head: post + "Content-Length: 9223372036854775807\r\n\r\n{", more: strings.Repeat(" ", chunk), limit: body, status: 400},
		"a chunked body":         {head: post + "Transfer-Encoding: chunked\r\n\r\n", more: fmt.Sprintf("%x\r\n%s\r\n", chunk, strings.Repeat(" ", chunk)), limit: body, status: 400},
		"a chunk's length":       {head: post + "Transfer-Encoding: chunked\r\n\r\n", more: strings.Repeat("0", chunk), limit: body, status: 400},
		"a body without a token": {head: "POST /plants HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n", more: fmt.Sprintf("%x\r\n%s\r\n", chunk, strings.Repeat(" ", chunk)), limit: body, status: 401},
	} {
		t.Run(name, func(t *testing.T) {
			conn := s.Dial(t)
			limit := test.limit + socketBuffers(t)
			sent := make(chan int)
			go func() {
				total := 0
				defer func() { sent <- total }()
				for text := test.head + test.more; total <= limit; text = test.more {
					n, err := io.WriteString(conn, text)
					if total += n; err != nil {
						return
					}
				}
			}()
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err == nil {
				_ = resp.Body.Close()
				if resp.StatusCode != test.status {
					t.Errorf("got %s, want %d", resp.Status, test.status)
				}
			} else if !errors.Is(err, syscall.ECONNRESET) { // which loses the response
				t.Error(err)
			}
			total := service.Receive(t, sent)
			if t.Logf("the service closed the connection after %d KiB", total>>10); total > limit {
				t.Errorf("%d bytes were sent and the service continues to read, want at most %d", total, limit)
			}
		})
	}
	s.Post(t, `{"id":1,"name":"x"}`).CheckStatus(t, 200)
}

// socketBuffers returns how many bytes the kernel may keep between two processes: the
// largest receive and send buffers of TCP.
func socketBuffers(t *testing.T) (total int) {
	t.Helper()
	for _, name := range []string{"tcp_rmem", "tcp_wmem"} {
		var least, initial, most int
		text, err := os.ReadFile("/proc/sys/net/ipv4/" + name)
		service.Must(t, err)
		_, err = fmt.Sscan(string(text), &least, &initial, &most)
		service.Must(t, err)
		total += most
	}
	return total
}

// TestSlowClientsAreClosed opens connections that never send a complete request.
func TestSlowClientsAreClosed(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ setting, text string }{
		"slow headers":                        {"PLANTSTORE_SERVER_READ_HEADER_TIMEOUT=200ms", "POST /plants HTTP/1.1\r\nHost: localhost\r\n"},
		"a slow body":                         {"PLANTSTORE_SERVER_READ_TIMEOUT=400ms", "POST /plants HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + service.Token + "\r\nContent-Length: 100\r\n\r\n{"},
		"a slow body of a request that waits": {"PLANTSTORE_SERVER_READ_TIMEOUT=400ms", "GET /plants/changes?wait=1s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + service.Token + "\r\nContent-Length: 1\r\n\r\n"},
		"a slow body of an export":            {"PLANTSTORE_SERVER_READ_TIMEOUT=400ms", "GET /plants/export HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + service.Token + "\r\nContent-Length: 1\r\n\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := service.Start(t, withoutTimeouts(test.setting)...)
			conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
			service.Must(t, err)
			defer conn.Close()
			if _, err := io.WriteString(conn, test.text); err != nil {
				t.Fatal(err)
			}
			service.Must(t, conn.SetReadDeadline(time.Now().Add(service.Patience)))
			if response, err := io.ReadAll(conn); err != nil {
				t.Errorf("got %q, %v, want a closed connection", response, err)
			}
			s.Post(t, `{"id":1,"name":"x"}`).CheckStatus(t, 200)
		})
	}
}
