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

// Failures logs requests that fail for the same reason, perhaps a database that is down, in few
// lines: when they begin to fail and once per second, with the cause, and when they no longer fail.
// The requests' own lines, but for the first, are at the level debug.
type Failures struct {
	log *zap.Logger

	mu     sync.Mutex
	series map[int32]*series // by error code
}

// quietTime is how long no request must have failed before a series is over. Requests that wait for
// database.timeout fail a few seconds apart.
const quietTime = 5 * time.Second

// series is requests that fail with the same error code.
type series struct {
	began, last        time.Time
	requests, unlogged int // in all, and since the last line in the log
	lastCause          error
	lastRoute          string
	lastToken          string
}

// NewFailures returns a log of failures.
func NewFailures(log *zap.Logger) *Failures {
	return &Failures{log: log, series: make(map[int32]*series)}
}

// logAborted logs that the response to c's request broke off with err, and records its code,
// unless the client has gone. A client that reads too slowly is no fault of the service either.
func (f *Failures) logAborted(c *gin.Context, err error, isGone bool) {
	code, level := describe(c, err).Code, zap.ErrorLevel
	isTooLong := errors.Is(err, middleware.ErrTooLong)
	isGone = isGone || strings.HasSuffix(err.Error(), "client disconnected") // as net/http says for HTTP/2
	switch {
	case isTooLong: // bulk.timeout may be too short for so many rows, or for so slow a client
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
		middleware.SetErrorCode(c, code)
	}
	f.log.Log(level, "response aborted", middleware.RequestIDField(c), middleware.TraceIDField(c), zap.Error(err))
}

// logFault logs the cause of c's Error with code, if it is a fault of the service.
func (f *Failures) logFault(c *gin.Context, code int32, cause error) {
	message := "request failed" // a line for each, since its client has the request id
	if code != codeInternal {
		if statusOf(code) != http.StatusServiceUnavailable || errors.Is(cause, errStopping) || f.note(c, code, cause) {
			return
		}
		message = "requests begin to fail"
	}
	f.log.Error(message, zap.Int32("code", code), zap.Error(cause), middleware.RequestIDField(c), middleware.TraceIDField(c))
}

// note counts c's request, which fails with code, and reports whether earlier requests did. A
// probe is not counted, but may be the first to notice.
func (f *Failures) note(c *gin.Context, code int32, cause error) (known bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, known := f.series[code]
	if !known {
		s = &series{began: time.Now()}
		f.series[code] = s
		go f.follow(code, s)
	}
	s.last, s.lastCause = time.Now(), cause
	if middleware.IsQuiet(c) {
		return known
	}
	s.requests++
	s.lastRoute, s.lastToken = c.FullPath(), middleware.SenderOf(c)
	if known {
		s.unlogged++
		middleware.Quiet(c)
	}
	return known
}

// follow logs s, the requests that fail with code, until its end.
func (f *Failures) follow(code int32, s *series) {
	for range time.Tick(time.Second) {
		f.mu.Lock()
		now, isOver := *s, time.Since(s.last) > quietTime
		s.unlogged = 0
		if isOver {
			delete(f.series, code)
		}
		f.mu.Unlock()
		if isOver {
			f.log.Info("requests no longer fail", zap.Int32("code", code), zap.Duration("duration", now.last.Sub(now.began)), zap.Int("requests", now.requests))
			return
		}
		if now.unlogged > 0 {
			f.log.Error("requests fail", zap.Int32("code", code), zap.Error(now.lastCause), zap.Int("requests", now.unlogged),
				zap.String("last_route", now.lastRoute), zap.String("last_token", now.lastToken))
		}
	}
}
