package controllers

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/gin-gonic/gin"
	"go.uber.org/zap"

	"plantstore/auth"
	"plantstore/middleware"
)

// Failures logs why requests fail. If many fail with the same code, perhaps since the database is down,
// the log has a line of its own for one request per second, and the other requests are at the level debug.
// The line has how many requests of each token have failed since the line before it.
type Failures struct {
	log    *zap.Logger
	mu     sync.Mutex
	lines  map[int32]time.Time      // of the last line about a code
	failed map[int32]map[string]int // since then, by token
}

// NewFailures returns a log of failures.
func NewFailures(log *zap.Logger) *Failures {
	return &Failures{log: log, lines: make(map[int32]time.Time), failed: make(map[int32]map[string]int)}
}

// maxCounted is how many tokens are counted.
const maxCounted = 100

// count counts a request of token that fails with code. It returns the counts if a line is due, and otherwise nil.
func (f *Failures) count(code int32, token string) map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	counts := f.failed[code]
	if counts == nil {
		counts = make(map[string]int)
		f.failed[code] = counts
	}
	if counts[token] > 0 || len(counts) < maxCounted {
		counts[token]++
	}
	if time.Since(f.lines[code]) < time.Second {
		return nil
	}
	f.lines[code] = time.Now()
	delete(f.failed, code)
	return counts
}

// logAborted logs that the response to c's request broke off with err, and records its code,
// unless the client has gone. A slow client is no fault of the service either.
func (f *Failures) logAborted(c *gin.Context, err error, isGone bool) {
	code, level := describe(c, err).Code, zap.ErrorLevel
	isTooLong := errors.Is(err, middleware.ErrTooLong)
	isGone = isGone || strings.HasSuffix(err.Error(), "client disconnected") // as net/http says for HTTP/2
	switch {
	case isTooLong: // many rows, or a slow client, may need a longer bulk.timeout
		level = zap.WarnLevel
	case auth.IsRejection(err): // the response ended with its token, as it must
		level = zap.InfoLevel
	case code == codeInternal && errors.Is(err, os.ErrDeadlineExceeded):
		level, err = zap.InfoLevel, fmt.Errorf("the client reads too slowly: %w", err)
	case isGone:
		return
	}
	// The status may say 200. An unknown error may be that of a client which has just left. If a
	// write has missed its deadline, net/http takes the client for gone.
	if code != codeInternal && (!isGone || isTooLong) {
		middleware.RequestOf(c).ErrorCode = code
	}
	f.log.Log(level, "response aborted", middleware.RequestIDField(c), middleware.TraceIDField(c), zap.Error(err))
}

// logFault logs the cause of c's Error with code, if it is a fault of the service.
func (f *Failures) logFault(c *gin.Context, code int32, cause error) {
	level, message, failed := zap.ErrorLevel, "request failed", zap.Skip() // a line for each, since its client has the request id
	if code != codeInternal {
		if statusOf(code) != http.StatusServiceUnavailable || errors.Is(cause, errStopping) {
			return
		}
		if code == codeOverloaded { // perhaps only one client has had its share
			level = zap.WarnLevel
		}
		counts := f.count(code, middleware.RequestOf(c).Sender())
		if counts == nil || !f.log.Core().Enabled(level) {
			middleware.RequestOf(c).Quiet = true
			return
		}
		message, failed = fmt.Sprintf("requests fail with error %d", code), zap.Any("failed", counts)
	}
	f.log.Log(level, message, zap.Int32("code", code), zap.Error(cause), middleware.RequestIDField(c), middleware.TraceIDField(c), failed)
}
