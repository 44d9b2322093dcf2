package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
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

const warmup = time.Second / 2

// load is a closed loop: each connection sends a request, waits for the response,
// and sends the next. Or, if the operation has arrivals, it is an open loop: requests
// are due at regular times, whether or not earlier ones have a response. One that is
// sent late, because every connection is waiting, has waited since then.
type load struct {
	operation
	connections      int
	warmup, duration time.Duration // the duration follows the warm-up
	first            int64         // the number of the first request
}

// send sends the load to s until its duration has passed or ctx ends; an operation that moves
// rows, once. It measures the requests that are sent after the warm-up, and fails if a
// response to a measured request is not a success.
func (l load) send(ctx context.Context, s *server) (outcome, error) {
	start, turn := time.Now(), ctx
	begin := start.Add(l.warmup)
	if l.moves > 0 {
		l.warmup, begin = 0, start
	} else {
		var cancel context.CancelFunc
		turn, cancel = context.WithDeadline(ctx, begin.Add(l.duration))
		defer cancel()
	}
	var next atomic.Int64
	var clients sync.WaitGroup
	measured, errs := make([][]float64, l.connections), make([]error, l.connections)
	for i := range l.connections {
		clients.Go(func() { measured[i], errs[i] = l.client(turn, s.address, start, &next) })
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
	sum := 0.0
	for _, latency := range latencies {
		sum += latency
	}
	_, highest := s.memory()
	return outcome{
		rate: n / took, rows: n / took * float64(l.moves), cpu: float64((after - before).Microseconds()) / n,
		mean: sum / n, p50: at(0.5), p99: at(0.99), p999: at(0.999), idle: s.idle, peak: highest, growth: highest - s.idle,
	}, nil
}

// statusError is the status of a response that is not a success.
type statusError int

func (e statusError) Error() string { return fmt.Sprintf("a response has the status %d", int(e)) }

// client is one connection. It returns the latencies, in milliseconds, of
// requests sent after the warm-up.
func (l load) client(ctx context.Context, address string, start time.Time, next *atomic.Int64) (latencies []float64, err error) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if l.moves > 0 { // its request may take long
		defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	}
	responses := bufio.NewReader(conn)
	var version string
	if l.ifMatch {
		// All rows have the same version, as one statement has inserted them. This row
		// would be written last.
		if _, version, err = exchange(conn, responses, get.request(nil, existingRows-1, "")); err != nil {
			return nil, err
		}
	}
	var request []byte
	for ctx.Err() == nil {
		n := next.Add(1) - 1
		request = l.request(request[:0], l.first+n, version)
		sent := time.Now()
		if l.arrivals > 0 {
			due := start.Add(time.Duration(n) * time.Second / time.Duration(l.arrivals))
			if end, ok := ctx.Deadline(); ok && due.After(end) {
				break
			}
			if due.After(sent) {
				time.Sleep(due.Sub(sent))
				sent = time.Now() // the timer may be late, which is not the server's fault
			} else {
				sent = due
			}
		}
		status, _, err := exchange(conn, responses, request)
		switch {
		case err != nil:
			return nil, cmp.Or(ctx.Err(), err)
		case sent.Sub(start) < l.warmup:
		case status != l.status:
			return nil, statusError(status)
		default:
			latencies = append(latencies, time.Since(sent).Seconds()*1e3)
		}
		if l.moves > 0 {
			break
		}
	}
	return latencies, nil
}

// request appends the n-th request, with If-Match unless version is "", to buffer.
func (o operation) request(buffer []byte, n int64, version string) []byte {
	if version != "" {
		version = "\r\nIf-Match: " + version
	}
	id := strconv.FormatInt(o.id(n), 10)
	body := strings.ReplaceAll(o.body, "{id}", id)
	return fmt.Appendf(buffer, "%s %s HTTP/1.1\r\nHost: plantstore\r\n"+o.header+"Authorization: Bearer "+token+
		"%s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s",
		o.method, strings.ReplaceAll(o.path, "{id}", id), version, cmp.Or(o.contentType, "application/json"), len(body), body)
}

// exchange sends a request to a Go server and returns the status and ETag of its response. It
// does less than net/http, to leave the machine to the server.
func exchange(conn io.Writer, r *bufio.Reader, request []byte) (status int, version string, err error) {
	if _, err := conn.Write(request); err != nil {
		return 0, "", err
	}
	var length int
	var chunked bool
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return 0, "", err
		}
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			break
		}
		if value, ok := bytes.CutPrefix(line, []byte("HTTP/1.1 ")); ok {
			status, err = strconv.Atoi(string(value[:min(3, len(value))]))
		} else if value, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			length, err = strconv.Atoi(string(value))
		} else if len(line) > 6 && bytes.EqualFold(line[:6], []byte("ETag: ")) {
			version = string(line[6:])
		} else if bytes.Equal(line, []byte("Transfer-Encoding: chunked")) {
			chunked = true
		}
		if err != nil {
			return 0, "", err
		}
	}
	if !chunked {
		_, err = r.Discard(length)
		return status, version, err
	}
	if _, err := io.Copy(io.Discard, httputil.NewChunkedReader(r)); err != nil {
		return 0, "", err
	}
	_, err = r.ReadSlice('\n') // the empty line after the last chunk
	return status, version, err
}
