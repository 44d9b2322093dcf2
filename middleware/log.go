package middleware

import (
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"plantstore/models"
)

// writeLine writes the line of c's request, which took duration. A client may have put a token
// anywhere, so the line has no query and no body; of the headers, it has only ids without parts of
// tokens, and the client's address. It has the sender's name instead of the token. The line of a write is in
// the audit log, unless the write failed.
func (o *ObserverOptions) writeLine(c *gin.Context, r *Request, method string, duration time.Duration) {
	status, level := c.Writer.Status(), zapcore.InfoLevel
	switch {
	case r.Quiet:
		level = zapcore.DebugLevel
	case status >= 500 && status != http.StatusNotImplemented: // which is no fault
		level = zapcore.ErrorLevel
	}
	log := o.Log
	if r.identity != nil && method != http.MethodGet && method != http.MethodHead && (status < 300 || status == StatusClientGone) {
		log = o.audit
	}
	line := log.Check(level, "request")
	if line == nil {
		return
	}
	code := zap.Skip()
	if r.ErrorCode != 0 {
		code = zap.Int32("code", r.ErrorCode)
	}
	r.line = [...]zap.Field{
		RequestIDField(c),
		TraceIDField(c),
		zap.String("method", method),
		zap.String("path", o.pathOf(c)),
		optional("id", r.CreatedID),
		zap.Int("status", status),
		code,
		zap.Duration("duration", duration),
		zap.Int("bytes", max(c.Writer.Size(), 0)),
		zap.String("client", clientOf(c)),
		zap.String("token", r.Sender()),
	}
	line.Write(append(r.line[:], r.Counts...)...)
	for ids := range slices.Chunk(r.Replaced, 500) { // up to 16 KiB, after which Docker splits a line
		log.Info("replaced", RequestIDField(c), TraceIDField(c), zap.String("path", o.pathOf(c)), zap.Strings("ids", ids), zap.String("token", r.Sender()))
	}
}

// StatusClientGone is logged for a client that left before the response, as nginx does. A write of it may
// have been stored.
const StatusClientGone = 499

// optional is the field name, which is left out if text is empty.
func optional(name, text string) zap.Field {
	if text == "" {
		return zap.Skip()
	}
	return zap.String(name, text)
}

// pathOf returns the path of c's request, or the path of its route if a part of it is no id. A path
// that is not a route is /….
func (o *ObserverOptions) pathOf(c *gin.Context) string {
	switch {
	case c.FullPath() == "":
		return "/" + other
	case slices.ContainsFunc(c.Params, func(p gin.Param) bool { return !o.isID(c, p.Value) }):
		return c.FullPath()
	}
	return c.Request.URL.Path
}

// isID reports whether text is the id of a token, or of a row: a number, or a UUID that is no token.
func (o *ObserverOptions) isID(c *gin.Context, text string) bool {
	n, err := strconv.ParseInt(text, 10, 64)
	return err == nil && strconv.FormatInt(n, 10) == text || models.TokenID.MatchString(text) ||
		models.UUIDForm.MatchString(text) && !o.hasToken(text, c.Request.Header)
}
