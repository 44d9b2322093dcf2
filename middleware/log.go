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

// Quiet logs c's request at the level debug only, whatever its outcome.
func Quiet(c *gin.Context) { c.Set(quietKey, true) }

// IsQuiet reports whether [Quiet] was called for c's request.
func IsQuiet(c *gin.Context) bool { return c.GetBool(quietKey) }

// AccessLog logs a line for each request, once its handler has ended. A client may have
// put a token anywhere, so the line has no query and no body. Of the path it has only ids and
// words of paths, which are those of routes; of the headers, only ids without parts of tokens,
// and the client's address. It has the sender's name instead of the token.
func AccessLog(log *zap.Logger, paths ...string) gin.HandlerFunc {
	words := make(map[string]bool)
	for _, path := range paths {
		for word := range strings.SplitSeq(path, "/") {
			words[word] = true
		}
	}
	return func(c *gin.Context) {
		start := time.Now()
		// Deferred, so that an aborted response is logged, too.
		defer func() {
			level := zapcore.InfoLevel
			switch {
			case IsQuiet(c):
				level = zapcore.DebugLevel
			case c.Writer.Status() >= 500 && c.Writer.Status() != http.StatusNotImplemented: // which is no fault
				level = zapcore.ErrorLevel
			}
			log.Log(level, "request",
				RequestIDField(c),
				TraceIDField(c),
				zap.String("method", loggedMethod(c.Request.Method)),
				zap.String("path", loggedPath(c.Request.URL.Path, words)),
				optional("id", c.GetString(createdIDKey)),
				zap.Int("status", c.Writer.Status()),
				errorCode(c),
				zap.Duration("duration", time.Since(start)),
				zap.Int("bytes", max(c.Writer.Size(), 0)),
				zap.String("client", c.ClientIP()),
				zap.String("token", SenderOf(c)))
		}()
		c.Next()
	}
}

// SetCreatedID records the id of what c's request creates, for the log: its path lacks it.
func SetCreatedID(c *gin.Context, id string) { c.Set(createdIDKey, id) }

// optional is the field name, which is left out if text is empty.
func optional(name, text string) zap.Field {
	if text == "" {
		return zap.Skip()
	}
	return zap.String(name, text)
}

// errorCode is the field for the code of an Error.
func errorCode(c *gin.Context) zap.Field {
	if code := errorCodeOf(c); code != 0 {
		return zap.Int32("code", code)
	}
	return zap.Skip()
}

// other stands for what a client has chosen.
const other = "…"

// loggedMethod returns a method of HTTP, in which net/http accepts any word.
func loggedMethod(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodConnect, http.MethodOptions, http.MethodTrace:
		return method
	}
	return other
}

// loggedPath returns path with only words and ids.
func loggedPath(path string, words map[string]bool) string {
	segments := strings.SplitN(path, "/", 16) // more than a route has: a path may have thousands
	for i, segment := range segments {
		if words[segment] {
			continue
		}
		n, err := strconv.ParseInt(segment, 10, 64)
		if isID := err == nil && strconv.FormatInt(n, 10) == segment || models.TokenID.MatchString(segment); !isID {
			segments[i] = other
		}
	}
	segments = slices.CompactFunc(segments, func(a, b string) bool { return a == other && b == other })
	return strings.Join(segments, "/")
}
