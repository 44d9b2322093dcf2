package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httputil"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// load is a closed loop: each of its connections sends a request, waits for the
// answer, and sends the next.
type load struct {
	address     string
	connections int
	warmup      time.Duration // not counted
	duration    time.Duration
	// request appends the n-th request to buffer. It is called by all
	// connections at once.
	request func(buffer []byte, n int64) []byte
}

// outcome is what a load has measured.
type outcome struct {
	rate           float64 // successful requests a second
	p50, p99, p999 time.Duration
	processor      time.Duration // that the contender used for a request
	memory         int64         // the contender's largest resident set, in bytes
	failed         int           // answers that were not a success, and broken connections
}

// run sends the load and returns what it has measured.
func (l load) run(ctx context.Context) (outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, l.warmup+l.duration)
	defer cancel()
	var (
		next      atomic.Int64
		clients   sync.WaitGroup
		mu        sync.Mutex
		latencies []time.Duration
		failed    int
		broken    error
	)
	begin := time.Now().Add(l.warmup)
	for range l.connections {
		clients.Go(func() {
			measured, refused, err := l.client(ctx, begin, &next)
			mu.Lock()
			defer mu.Unlock()
			latencies = append(latencies, measured...)
			failed += refused
			broken = errors.Join(broken, err)
		})
	}
	clients.Wait()
	if len(latencies) == 0 {
		return outcome{}, errors.Join(errors.New("no request has succeeded"), broken)
	}
	slices.Sort(latencies)
	at := func(share float64) time.Duration { return latencies[int(share*float64(len(latencies)-1))] }
	return outcome{
		rate: float64(len(latencies)) / l.duration.Seconds(),
		p50:  at(0.5), p99: at(0.99), p999: at(0.999),
		failed: failed,
	}, broken
}

// client is one connection. It returns how long each success took that came
// after begin, and the number of other answers.
func (l load) client(ctx context.Context, begin time.Time, next *atomic.Int64) (latencies []time.Duration, failed int, err error) {
	conn, err := net.Dial("tcp", l.address)
	if err != nil {
		return nil, 0, err
	}
	defer conn.Close()
	answers := bufio.NewReader(conn)
	var buffer []byte
	for ctx.Err() == nil {
		buffer = l.request(buffer[:0], next.Add(1)-1)
		sent := time.Now()
		if _, err := conn.Write(buffer); err != nil {
			return latencies, failed, err
		}
		status, err := readAnswer(answers)
		if err != nil {
			return latencies, failed, err
		}
		done := time.Now()
		switch {
		case sent.Before(begin):
		case status == 200:
			latencies = append(latencies, done.Sub(sent))
		default:
			failed++
		}
	}
	return latencies, failed, nil
}

// readAnswer reads an HTTP/1.1 answer and returns its status. It looks at no more than that, so that the client takes as little of
// the machine as it can from the service.
func readAnswer(r *bufio.Reader) (status int, err error) {
	line, err := r.ReadSlice('\n')
	if err != nil {
		return 0, err
	}
	if len(line) < len("HTTP/1.1 200") {
		return 0, fmt.Errorf("not an HTTP answer: %q", line)
	}
	if status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return 0, fmt.Errorf("not an HTTP answer: %q", line)
	}
	length, chunked := -1, false
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return 0, err
		}
		if len(bytes.TrimRight(line, "\r\n")) == 0 {
			break
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		switch {
		case bytes.EqualFold(name, []byte("Content-Length")):
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return 0, err
			}
		case bytes.EqualFold(name, []byte("Transfer-Encoding")):
			chunked = true
		}
	}
	if chunked {
		if _, err := io.Copy(io.Discard, httputil.NewChunkedReader(r)); err != nil {
			return 0, err
		}
		_, err = r.ReadSlice('\n') // the end of the trailers, of which there are none
		return status, err
	}
	if length < 0 {
		return 0, errors.New("an answer of unknown length")
	}
	_, err = io.CopyN(io.Discard, r, int64(length))
	return status, err
}

// newPlant returns the requests that create one plant each, whose ids are
// unique.
func newPlant(id func(n int64) int64) func([]byte, int64) []byte {
	return func(buffer []byte, n int64) []byte {
		body := make([]byte, 0, 128)
		body = append(body, `{"id":`...)
		body = strconv.AppendInt(body, id(n), 10)
		body = append(body, `,"name":"Monstera deliciosa","tag":"houseplant"}`...)
		buffer = append(buffer, "POST /plants HTTP/1.1\r\nHost: plantstore\r\nContent-Type: application/json\r\n"+
			"Authorization: Bearer "+token+"\r\nContent-Length: "...)
		buffer = strconv.AppendInt(buffer, int64(len(body)), 10)
		buffer = append(buffer, "\r\n\r\n"...)
		return append(buffer, body...)
	}
}

// get returns requests that read what path names.
func get(path func(n int64) string) func([]byte, int64) []byte {
	return func(buffer []byte, n int64) []byte {
		return append(buffer, "GET "+path(n)+" HTTP/1.1\r\nHost: plantstore\r\nAuthorization: Bearer "+token+"\r\n\r\n"...)
	}
}

// sequential ids ascend, as those do that a client counts.
func sequential(n int64) int64 { return firstID + n }

// random ids are spread over all of int64, and unique: the finalizer of
// MurmurHash3 is a bijection.
func random(n int64) int64 {
	h := uint64(firstID + n)
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return int64(h ^ h>>33)
}

// firstID is above the ids of the rows that a table is filled with.
const firstID = 1 << 40
