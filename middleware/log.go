package middleware

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"plantstore/models"
)

// writeLine writes the line of c's request, which took duration and ended at end. A client may have
// put a token anywhere, so the line has no query and no body. Of the path it has only ids and words of
// routes; of the headers, only ids without parts of tokens, and the client's address. It has the
// sender's name instead of the token.
func (o *ObserverOptions) writeLine(c *gin.Context, r *request, end time.Time, duration time.Duration) {
	status, level := c.Writer.Status(), zapcore.InfoLevel
	switch {
	case r.quiet:
		level = zapcore.DebugLevel
	case status >= 500 && status != http.StatusNotImplemented: // which is no fault
		level = zapcore.ErrorLevel
	}
	// The logger would read the clock again.
	line := o.Log.Core().Check(zapcore.Entry{Level: level, Time: end, LoggerName: o.Log.Name(), Message: "request"}, nil)
	if line == nil {
		return
	}
	method, code := semanticMethod(c.Request.Method), zap.Skip()
	if method == otherMethod {
		method = other
	}
	if r.errorCode != 0 {
		code = zap.Int32("code", r.errorCode)
	}
	r.line = [...]zap.Field{
		RequestIDField(c),
		TraceIDField(c),
		zap.String("method", method),
		zap.String("path", o.pathOf(c)),
		optional("id", r.createdID),
		zap.Int("status", status),
		code,
		zap.Duration("duration", duration),
		zap.Int("bytes", max(c.Writer.Size(), 0)),
		zap.String("client", clientOf(c)),
		zap.String("token", SenderOf(c)),
	}
	line.Write(r.line[:]...)
}

// optional is the field name, which is left out if text is empty.
func optional(name, text string) zap.Field {
	if text == "" {
		return zap.Skip()
	}
	return zap.String(name, text)
}

// pathOf returns the path of c's request with only words and ids.
func (o *ObserverOptions) pathOf(c *gin.Context) string {
	path, isOther := c.Request.URL.Path, func(p gin.Param) bool { return !isID(p.Value) }
	if c.FullPath() != "" && !slices.ContainsFunc(c.Params, isOther) {
		return path
	}
	segments := strings.SplitN(path, "/", 16) // more than a route has: a path may have thousands
	for i, segment := range segments {
		if !slices.Contains(o.words, segment) && !isID(segment) {
			segments[i] = other
		}
	}
	segments = slices.CompactFunc(segments, func(a, b string) bool { return a == other && b == other })
	return strings.Join(segments, "/")
}

// isID reports whether text is the id of a row or a token.
func isID(text string) bool {
	n, err := strconv.ParseInt(text, 10, 64)
	return err == nil && strconv.FormatInt(n, 10) == text || models.TokenID.MatchString(text)
}
