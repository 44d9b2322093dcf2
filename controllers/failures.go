package controllers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/gin-gonic/gin"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"plantstore/auth"
	"plantstore/database/limit"
	"plantstore/middleware"
)

// Failures logs requests that fail for a reason that many share, such as a database that is
// down, in few lines: one when they begin to fail, with the cause, then one per second, with
// the sender of the last one and why the service is not ready, and one when they succeed again.
// The requests' own lines, but for the first, are at the level debug.
type Failures struct {
	ready func(context.Context) error
	log   *zap.Logger

	mu     sync.Mutex
	series map[int32]*series // by error code
}

// quietTime is how long no request must have failed, and the service have been ready, before a
// series is over. A request that waits for database.timeout fails a few seconds after the last one.
const quietTime = 5 * time.Second

// series is requests that fail with one error code, from the first one until quietTime passes
// without any.
type series struct {
	code      int32
	began     time.Time
	last      time.Time // when a request failed, or the service was not ready
	requests  int       // failed ones
	unlogged  int       // failed ones since the last line in the log
	lastCause error     // of the last request or probe
	// Of the last request.
	lastRoute, lastToken string
}

// NewFailures returns a log of failures; ready reports whether the database can be written.
func NewFailures(ready func(context.Context) error, log *zap.Logger) *Failures {
	return &Failures{ready: ready, log: log, series: make(map[int32]*series)}
}

// clientGone is the end of net/http's error for a client of HTTP/2 that has just left.
const clientGone = "client disconnected"

// logAborted logs that the response to c's request broke off with err, and records its code,
// unless the client has gone. A client that reads too slowly is no fault of the service either.
func (f *Failures) logAborted(c *gin.Context, err error, isGone bool) {
	code := describe(c, err).Code
	isGone = isGone || strings.HasSuffix(err.Error(), clientGone)
	isTooLong := errors.Is(err, middleware.ErrTooLong)
	slow := code == codeInternal && errors.Is(err, os.ErrDeadlineExceeded)
	level := zap.ErrorLevel
	switch {
	case isTooLong: // bulk.timeout may be too short for so many rows, or for so slow a client
		level = zap.WarnLevel
	case auth.IsRejection(err): // the response ended with its token, as it must
		level = zap.InfoLevel
	case slow:
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
	switch {
	case code == codeInternal: // a line for each, since its client has the request id
		f.log.Error("request failed", zap.Int32("code", code), zap.Error(cause), middleware.RequestIDField(c), middleware.TraceIDField(c))
	case statusOf(code) == http.StatusServiceUnavailable && !errors.Is(cause, errStopping):
		f.note(c, code, cause)
	}
}

// note counts c's request, which fails with code. A probe is not counted, but may be the
// first to notice.
func (f *Failures) note(c *gin.Context, code int32, cause error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, known := f.series[code]
	if !known {
		s = &series{code: code, began: time.Now(), last: time.Now()}
		f.series[code] = s
		f.log.Log(levelOf(cause), "requests begin to fail", zap.Int32("code", code), zap.Error(cause),
			middleware.RequestIDField(c), middleware.TraceIDField(c))
		go f.follow(s)
	}
	s.lastCause = cause
	if middleware.IsQuiet(c) {
		return
	}
	s.requests++
	s.last = time.Now()
	s.lastRoute, s.lastToken = c.FullPath(), middleware.SenderOf(c)
	if known {
		s.unlogged++
		middleware.Quiet(c)
	}
}

// levelOf returns the level of a line about a fault that many share. A share that is used up may
// be one client's, which harms no other.
func levelOf(cause error) zapcore.Level {
	if errors.Is(cause, limit.ErrShare) {
		return zap.WarnLevel
	}
	return zap.ErrorLevel
}

// follow logs s until its end.
func (f *Failures) follow(s *series) {
	for range time.Tick(time.Second) {
		err := f.ready(context.Background())
		f.mu.Lock()
		failed, cause, route, token := s.unlogged, s.lastCause, s.lastRoute, s.lastToken
		s.unlogged = 0
		if err != nil {
			s.last = time.Now()
		}
		lasted, over := s.last.Sub(s.began), time.Since(s.last) > quietTime
		if over {
			delete(f.series, s.code)
		}
		f.mu.Unlock()
		switch {
		case over:
			f.log.Info("requests no longer fail", zap.Int32("code", s.code),
				zap.Duration("duration", lasted), zap.Int("requests", s.requests))
			return
		case failed > 0:
			f.log.Log(levelOf(cause), "requests fail", zap.Int32("code", s.code), zap.Error(cause), zap.Int("requests", failed),
				zap.String("last_route", route), zap.String("last_token", token), zap.NamedError("not_ready", err))
		}
	}
}
