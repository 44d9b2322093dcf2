package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httputil"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// token is accepted by every contender.
const token = "benchmark-token-of-more-than-32-characters"

// load is a closed loop: each connection waits for a response before its next request.
type load struct {
	operation
	connections int
	duration    time.Duration // follows the warm-up
	first       int64         // the number of the first request
}

// send sends the load to s until its duration has passed or ctx ends; an operation that moves
// rows, once. It fails if a response after the warm-up has another status than expected.
func (l load) send(ctx context.Context, s *server) (outcome, error) {
	if l.idles {
		return l.idle(s)
	}
	begin := time.Now()
	if l.moves == 0 {
		begin = begin.Add(warmup)
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, begin.Add(l.duration))
		defer cancel()
	}
	var next atomic.Int64
	next.Store(l.first)
	var clients sync.WaitGroup
	measured, errs := make([][]float64, l.connections), make([]error, l.connections)
	for i := range l.connections {
		clients.Go(func() { measured[i], errs[i] = l.client(ctx, s.address, begin, &next) })
	}
	time.Sleep(time.Until(begin))
	before, err := s.cpuTime()
	clients.Wait()
	after, failed := s.cpuTime()
	took := time.Since(begin).Seconds()
	latencies := slices.Concat(measured...)
	if err := cmp.Or(append(errs, err, failed)...); err != nil || len(latencies) == 0 {
		return nil, cmp.Or(err, errors.New("no response within a turn"))
	}
	slices.Sort(latencies)
	n := float64(len(latencies))
	at := func(share float64) float64 { return latencies[int(share*(n-1))] }
	return outcome{
		rate: n / took * float64(max(1, l.moves)), cpu: float64((after - before).Microseconds()) / n,
		p50: at(0.5), p99: at(0.99), peak: s.memory("VmHWM:"),
	}, nil
}

// idle sends a request on each connection, and measures the memory of s for a connection that stays open. The
// first tenth of them makes what all share.
func (l load) idle(s *server) (outcome, error) {
	shared, before := l.connections/10, 0.0
	for n := range l.connections {
		if n == shared {
			before = s.memory("VmRSS:")
		}
		conn, err := net.Dial("tcp", s.address)
		if err != nil {
			return nil, err
		}
		defer conn.Close()
		if l.tls {
			conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // the certificate is the benchmark's
		}
		if status, err := exchange(conn, bufio.NewReader(conn), l.request(nil, int64(n))); err != nil || status != l.status {
			return nil, cmp.Or(err, error(statusError(status)))
		}
	}
	return outcome{kept: (s.memory("VmRSS:") - before) * 1000 / float64(l.connections-shared)}, nil
}

// statusError is an unexpected status.
type statusError int

func (e statusError) Error() string { return fmt.Sprintf("a response has the status %d", int(e)) }

// client is a connection. It returns the latencies in milliseconds of requests from begin on.
func (l load) client(ctx context.Context, address string, begin time.Time, next *atomic.Int64) (latencies []float64, err error) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if l.moves > 0 || l.tokens > 0 { // its request may take long
		defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	}
	responses := bufio.NewReader(conn)
	var request []byte
	for ctx.Err() == nil {
		request = l.request(request[:0], next.Add(1)-1)
		sent := time.Now()
		status, err := exchange(conn, responses, request)
		switch {
		case err != nil && l.tokens > 0 && ctx.Err() != nil:
			return latencies, nil // without the last request
		case err != nil:
			return nil, cmp.Or(ctx.Err(), err)
		case sent.Before(begin):
		case status != l.status && !slices.Contains(l.refusals, status):
			return nil, statusError(status)
		default:
			latencies = append(latencies, time.Since(sent).Seconds()*1e3)
		}
		switch {
		case l.moves > 0:
			return latencies, nil
		case l.tokens > 0 && status == 503:
			time.Sleep(100 * time.Millisecond) // less than Retry-After
		}
	}
	return latencies, nil
}

// request appends the n-th request to buffer.
func (o operation) request(buffer []byte, n int64) []byte {
	if len(o.mix) > 0 {
		next := o.mix[n%int64(len(o.mix))]
		next.tokens = o.tokens
		return next.request(buffer, n)
	}
	sender := token
	if o.tokens > 0 { // a rival
		sender = rivalToken(int(n)%o.tokens) + "\r\nAccept-Encoding: gzip"
	}
	id := strconv.FormatInt(o.id(n), 10)
	body := strings.ReplaceAll(o.body, "{id}", id)
	return fmt.Appendf(buffer, "%s %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n"+
		"Content-Type: %s\r\nContent-Length: %d\r\n\r\n%s",
		o.method, strings.ReplaceAll(o.path, "{id}", id), sender,
		cmp.Or(o.contentType, "application/json"), len(body), body)
}

// exchange sends a request to a Go server and returns the status of its response. It does
// less than net/http, to leave the machine to the server.
func exchange(conn io.Writer, r *bufio.Reader, request []byte) (status int, err error) {
	if _, err := conn.Write(request); err != nil {
		return 0, err
	}
	var length int
	var chunked bool
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return 0, err
		}
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			break
		}
		if value, ok := bytes.CutPrefix(line, []byte("HTTP/1.1 ")); ok {
			status, err = strconv.Atoi(string(value[:min(3, len(value))]))
		} else if value, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			length, err = strconv.Atoi(string(value))
		} else if bytes.Equal(line, []byte("Transfer-Encoding: chunked")) {
			chunked = true
		}
		if err != nil {
			return 0, err
		}
	}
	if !chunked {
		_, err = r.Discard(length)
		return status, err
	}
	if _, err := io.Copy(io.Discard, httputil.NewChunkedReader(r)); err != nil {
		return 0, err
	}
	_, err = r.ReadSlice('\n') // the empty line after the last chunk
	return status, err
}
