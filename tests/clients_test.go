package tests

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// needFiles fails the test where it, and with it the service, may not open n files,
// connections included. The runtime of both has raised the limit as far as it goes.
func needFiles(t *testing.T, n uint64) {
	t.Helper()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if limit.Cur < n {
		t.Fatalf("this test opens %d files, and may have %d: raise the hard limit, ulimit -Hn", n, limit.Cur)
	}
}

// drip sends text and then, twice a second, one byte more, until the service closes
// the connection. It returns how long that took, and what the service has said.
func (s *service) drip(text string) (took time.Duration, said string, err error) {
	begin := time.Now()
	conn, err := net.DialTimeout("tcp", strings.TrimPrefix(s.url, "http://"), patience)
	if err != nil {
		return 0, "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(begin.Add(patience)); err != nil {
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
	if errors.Is(err, syscall.ECONNRESET) { // closed it is, though the last byte came too late
		err = nil
	}
	return time.Since(begin), string(response), err
}

// steadily sends rate requests a second, by turns a POST and a GET of what it has
// stored, until stop is closed. It returns how long each answer took from the time
// at which its request was due.
func (s *service) steadily(t *testing.T, rate int, stop <-chan struct{}) []time.Duration {
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
				method, path, body := http.MethodPost, "/plants", bodyOf(n)
				if n%2 == 1 {
					method, path, body = http.MethodGet, fmt.Sprintf("/plants?after=%d&limit=1", n-3), ""
				}
				r, err := s.tryOn(transport, method, path, strings.NewReader(body), "Authorization", "Bearer "+token)
				if err != nil || r.status != http.StatusOK {
					t.Errorf("%s %s: %v, %v", method, path, r, err)
				}
				mu.Lock()
				defer mu.Unlock()
				took = append(took, time.Since(due))
			})
		}
	}
}

// percentile returns which of the sorted durations is not exceeded by p percent of
// them.
func percentile(sorted []time.Duration, p int) time.Duration {
	return sorted[(len(sorted)*p+99)/100-1]
}

// slowClients is how many TestManySlowClients opens.
const slowClients = 2_000

// TestManySlowClients opens connections that never send a whole request. They are
// closed at their time-outs, and are in nobody's way: of other requests, 99 in 100
// are answered in less than 100ms. Where they are not, they have two more chances,
// for other programs may have kept the machine busy.
func TestManySlowClients(t *testing.T) {
	const limit = 100 * time.Millisecond
	needFiles(t, slowClients+500)
	for range 3 {
		if p99 := besideSlowClients(t); p99 < limit || t.Failed() {
			return
		}
	}
	t.Errorf("in no round, 99 in 100 requests took less than %v", limit)
}

// besideSlowClients opens them on a service of their own, and returns the 99th
// percentile of how long other requests take meanwhile.
func besideSlowClients(t *testing.T) time.Duration {
	t.Helper()
	const headers, body = 2 * time.Second, 5 * time.Second
	const late = 2500 * time.Millisecond // that the service, and this test, may be in closing so many
	s := startPlain(t, "PLANTSTORE_SERVER_READ_HEADER_TIMEOUT="+headers.String(), "PLANTSTORE_SERVER_READ_TIMEOUT="+body.String())
	stop, latencies := make(chan struct{}), make(chan []time.Duration)
	go func() { latencies <- s.steadily(t, 50, stop) }()
	// They come one after the other, as this test takes the processor that the service
	// needs to take them in.
	arrivals := time.NewTicker(time.Millisecond)
	defer arrivals.Stop()
	var group sync.WaitGroup
	for i := range slowClients {
		<-arrivals.C
		what, text, timeout, response := "slow headers", "POST /plants HTTP/1.1\r\nHost: x\r\nX-Slow: ", headers, ""
		if i%2 == 1 {
			what, timeout, response = "a slow body", body, "HTTP/1.1 400 Bad Request\r\n"
			text = "POST /plants HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + token + "\r\nContent-Length: 100\r\n\r\n{"
		}
		group.Go(func() {
			took, said, err := s.drip(text)
			if err != nil || took < timeout || took > timeout+late || !strings.HasPrefix(said, response) || (response == "") != (said == "") {
				t.Errorf("%s: closed after %v, want %v; %q, %v", what, took, timeout, said, err)
			}
		})
	}
	group.Wait()
	close(stop)
	others := receive(t, latencies)
	slices.Sort(others)
	p99 := percentile(others, 99)
	t.Logf("%d requests beside %d slow clients: p50 %v, p90 %v, p99 %v, the slowest %v",
		len(others), slowClients, percentile(others, 50), percentile(others, 90), p99, others[len(others)-1])
	if len(others) < 250 {
		t.Errorf("%d requests are too few", len(others))
	}
	return p99
}

// TestLargeHeaders sends more than a request may have before its body: what is
// refused there is no more than net/http's to answer, in plain text.
func TestLargeHeaders(t *testing.T) {
	t.Parallel()
	s := start(t, "PLANTSTORE_SERVER_MAX_HEADER_BYTES=8192")
	many := func(n int) string {
		var lines strings.Builder
		for i := range n {
			fmt.Fprintf(&lines, "X-%05d: x\r\n", i) // 12 bytes
		}
		return lines.String()
	}
	// net/http reads 4 KiB more than it is told.
	for what, test := range map[string]struct {
		head   string
		status int
	}{
		"many headers":     {"GET /healthz HTTP/1.1\r\nHost: x\r\n" + many(500), http.StatusOK},
		"too many headers": {"GET /healthz HTTP/1.1\r\nHost: x\r\n" + many(1100), http.StatusRequestHeaderFieldsTooLarge},
		"a long header":    {"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Long: " + strings.Repeat("x", 7000) + "\r\n", http.StatusOK},
		"too long a one":   {"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Long: " + strings.Repeat("x", 13_000) + "\r\n", http.StatusRequestHeaderFieldsTooLarge},
		"too long a path":  {"GET /" + strings.Repeat("x", 13_000) + " HTTP/1.1\r\nHost: x\r\n", http.StatusRequestHeaderFieldsTooLarge},
	} {
		t.Run(what, func(t *testing.T) {
			conn := s.dial(t)
			if _, err := io.WriteString(conn, test.head+"\r\n"); err != nil {
				t.Fatal(err)
			}
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Errorf("%v", err)
				return
			}
			_ = resp.Body.Close()
			if resp.StatusCode != test.status {
				t.Errorf("%s, want %d", resp.Status, test.status)
			}
		})
	}
}

// TestEndlessRequests sends headers, and bodies, that do not end, as fast as it can:
// the service takes but little of them.
func TestEndlessRequests(t *testing.T) {
	t.Parallel()
	s := start(t)
	const chunk = 32 << 10
	post := "POST /plants HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + token + "\r\n"
	for what, test := range map[string]struct {
		head, more string
		limit      int // in bytes, of what goes out, the buffers of two sockets included
		status     int
	}{
		"headers":          {head: "POST /plants HTTP/1.1\r\nHost: x\r\n", more: strings.Repeat("X-More: x\r\n", chunk/11), limit: 16 << 20, status: 431},
		"a header":         {head: "POST /plants HTTP/1.1\r\nHost: x\r\nX-More: ", more: strings.Repeat("x", chunk), limit: 16 << 20, status: 431},
		"a body":           {head: post + "Content-Length: 9223372036854775807\r\n\r\n{", more: strings.Repeat(" ", chunk), limit: 32 << 20, status: 400},
		"a chunked body":   {head: post + "Transfer-Encoding: chunked\r\n\r\n", more: fmt.Sprintf("%x\r\n%s\r\n", chunk, strings.Repeat(" ", chunk)), limit: 32 << 20, status: 400},
		"a chunk's length": {head: post + "Transfer-Encoding: chunked\r\n\r\n", more: strings.Repeat("0", chunk), limit: 32 << 20, status: 400},
		"a body of nobody": {head: "POST /plants HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", more: fmt.Sprintf("%x\r\n%s\r\n", chunk, strings.Repeat(" ", chunk)), limit: 32 << 20, status: 401},
	} {
		t.Run(what, func(t *testing.T) {
			conn := s.dial(t)
			sent := make(chan int)
			go func() {
				total := 0
				defer func() { sent <- total }()
				for text := test.head + test.more; total <= test.limit; text = test.more {
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
					t.Errorf("%s, want %d", resp.Status, test.status)
				}
			} else if !errors.Is(err, syscall.ECONNRESET) { // which takes the answer along
				t.Errorf("%v", err)
			}
			total := receive(t, sent)
			if t.Logf("%s without end: the service let go after %d KiB", what, total>>10); total > test.limit {
				t.Errorf("%s without end: the service takes %d bytes, and goes on", what, total)
			}
		})
	}
	checkStatus(t, s.post(t, `{"id":1,"name":"x"}`), 200)
}

// TestSlowClientsAreClosed opens connections that never send a whole request.
func TestSlowClientsAreClosed(t *testing.T) {
	t.Parallel()
	s := start(t, "PLANTSTORE_SERVER_READ_HEADER_TIMEOUT=200ms", "PLANTSTORE_SERVER_READ_TIMEOUT=400ms")
	for what, text := range map[string]string{
		"slow headers": "POST /plants HTTP/1.1\r\nHost: x\r\n",
		"a slow body":  "POST /plants HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + token + "\r\nContent-Length: 100\r\n\r\n{",
	} {
		t.Run(what, func(t *testing.T) {
			conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := io.WriteString(conn, text); err != nil {
				t.Fatal(err)
			}
			if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
				t.Fatal(err)
			}
			if response, err := io.ReadAll(conn); err != nil {
				t.Errorf("the connection stays open: %q, %v", response, err)
			}
		})
	}
	checkStatus(t, s.post(t, `{"id":1,"name":"x"}`), 200)
}
