package controllers

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/gin-gonic/gin"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"plantstore/auth"
	"plantstore/middleware"
)

// Failures logs why requests fail. If many fail with the same code, perhaps since the database is down,
// the log has a line of its own for one request per second, and the other requests are at the level debug.
type Failures struct{ log, sampled *zap.Logger }

// NewFailures returns a log of failures.
func NewFailures(log *zap.Logger) *Failures {
	oncePerSecond := func(core zapcore.Core) zapcore.Core { return zapcore.NewSamplerWithOptions(core, time.Second, 1, 0) }
	return &Failures{log, log.WithOptions(zap.WrapCore(oncePerSecond))}
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
		middleware.SetErrorCode(c, code)
	}
	f.log.Log(level, "response aborted", middleware.RequestIDField(c), middleware.TraceIDField(c), zap.Error(err))
}

// logFault logs the cause of c's Error with code, if it is a fault of the service.
func (f *Failures) logFault(c *gin.Context, code int32, cause error) {
	log, level, message := f.log, zap.ErrorLevel, "request failed" // a line for each, since its client has the request id
	if code != codeInternal {
		if statusOf(code) != http.StatusServiceUnavailable || errors.Is(cause, errStopping) {
			return
		}
		log, message = f.sampled, fmt.Sprintf("requests fail with error %d", code)
		if code == codeOverloaded { // perhaps only one client has had its share
			level = zap.WarnLevel
		}
	}
	if entry := log.Check(level, message); entry != nil {
		entry.Write(zap.Int32("code", code), zap.Error(cause), middleware.RequestIDField(c), middleware.TraceIDField(c))
	} else {
		middleware.Quiet(c)
	}
}
