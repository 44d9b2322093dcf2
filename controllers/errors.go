package controllers

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"
	"go.uber.org/zap"

	"plantstore/middleware"
	"plantstore/models"
)

// The error codes, which clients may rely on: the HTTP status that fits best,
// times 100, plus a number.
const (
	codeMalformed       = 40001 // the body is not one well-formed JSON object
	codeUnknownField    = 40002
	codeDuplicateField  = 40003
	codeMissingOrType   = 40004 // a required field is missing, or one has the wrong JSON type
	codeNotInt64        = 40005
	codeTextLimits      = 40006
	codeParameter       = 40007 // in the path, the query, or a conditional header
	codeNoToken         = 40101
	codeInvalidToken    = 40102
	codeScope           = 40301
	codeNoPlant         = 40401
	codeNoPath          = 40402
	codeNoIssuedToken   = 40403
	codeMethod          = 40501
	codeIDTaken         = 40901 // by other content
	codeIDTakenSame     = 40902 // by the same content
	codeCondition       = 41201
	codeBodyTooLarge    = 41301
	codeContentType     = 41501
	codeLimit           = 42901
	codeInternal        = 50001
	codeOverloaded      = 50301
	codeDatabaseTimeout = 50302
)

// statusClientGone is logged for a request whose client left before the answer.
// Nobody receives it; the number is the one that nginx logs.
const statusClientGone = 499

// Error is the body of every answer that is not a success.
type Error struct {
	// A stable numeric error indicator: the HTTP status that fits best, times 100, plus a number. The description of the API lists them.
	Code int32 `json:"error" binding:"required" format:"int32" example:"40004"`
	// What was wrong, where, and what to do. For people: the wording may change.
	Message string `json:"message" binding:"required" example:"name is required"`
} // @name Error

// problem is an error that is an answer already.
type problem Error

func (p *problem) Error() string { return p.Message }

func problemf(code int32, format string, args ...any) error {
	return &problem{Code: code, Message: fmt.Sprintf(format, args...)}
}

// status returns the HTTP status of an error code. What is wrong with the
// request's content is 400, the status that the API's specification has for it.
func status(code int32) int {
	switch s := int(code / 100); s {
	case http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType:
		return http.StatusBadRequest
	default:
		return s
	}
}

// Errors answers a request that ended with an error: the one place where an
// error becomes a status and an Error. Faults of ours are logged with their
// cause, of which the client is told nothing but the request id.
func Errors(log *zap.Logger) gin.HandlerFunc {
	return func(c *gin.Context) {
		client := c.Request.Context() // the handler's own may end before
		c.Next()
		last := c.Errors.Last()
		if last == nil {
			return
		}
		if c.Writer.Written() {
			// The client, if it is still there, must not take a part for the whole.
			late := errors.Is(last.Err, context.DeadlineExceeded) || errors.Is(last.Err, os.ErrDeadlineExceeded)
			if late || client.Err() == nil {
				log.Error("answer broken off", zap.String("request_id", middleware.RequestIDOf(c)), zap.Error(last.Err))
			}
			panic(http.ErrAbortHandler)
		}
		if errors.Is(last.Err, context.Canceled) && client.Err() != nil {
			c.Status(statusClientGone)
			return
		}
		body := describe(c, last.Err)
		if refused, ok := errors.AsType[*importRefused](last.Err); ok {
			answer(c, status(body.Code), ImportError{Code: body.Code, Message: body.Message, Report: refused.report})
			return
		}
		if body.Code >= 50000 {
			log.Error("request failed",
				zap.String("request_id", middleware.RequestIDOf(c)),
				zap.Int32("code", body.Code),
				zap.Error(last.Err))
		}
		code := status(body.Code)
		if code == http.StatusServiceUnavailable {
			c.Header("Retry-After", "1")
		}
		if limit, ok := errors.AsType[*middleware.LimitError](last.Err); ok {
			c.Header("Retry-After", strconv.Itoa(seconds(limit.RetryAfter)))
		}
		answer(c, code, body)
	}
}

// describe maps an error to what the client is told of it.
func describe(c *gin.Context, err error) Error {
	if p, ok := errors.AsType[*problem](err); ok {
		return Error(*p)
	}
	if invalid, ok := errors.AsType[*models.InvalidError](err); ok {
		return Error{codeTextLimits, invalid.Error()}
	}
	if exists, ok := errors.AsType[*models.ExistsError](err); ok {
		if exists.Same {
			return Error{codeIDTakenSame, fmt.Sprintf(
				"id %d is taken by a plant with the same name and tag: an earlier attempt has stored it, nothing is lost", exists.ID)}
		}
		return Error{codeIDTaken, fmt.Sprintf(
			"id %d is taken by a plant with another name or tag, which is left as it is: choose another id", exists.ID)}
	}
	if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return Error{codeBodyTooLarge, fmt.Sprintf("body is larger than %d bytes", large.Limit)}
	}
	if scope, ok := errors.AsType[*middleware.ScopeError](err); ok {
		return Error{codeScope, fmt.Sprintf("the token lacks the scope %s: ask the operator of the service for one that has it", scope.Scope)}
	}
	if limit, ok := errors.AsType[*middleware.LimitError](err); ok {
		return Error{codeLimit, fmt.Sprintf("%s: try again in %d s", limit, seconds(limit.RetryAfter))}
	}
	if refused, ok := errors.AsType[*importRefused](err); ok {
		return Error{refused.report.Errors[0].Code, refused.Error()}
	}
	switch {
	case errors.Is(err, models.ErrTokenNotFound):
		return Error{codeNoIssuedToken, "no such token, or it was revoked before"}
	case errors.Is(err, models.ErrNotFound):
		return Error{codeNoPlant, "no such plant"}
	case errors.Is(err, models.ErrCondition):
		return Error{codeCondition, "If-Match or If-None-Match does not hold: the plant has changed, or is there, or is gone; get it again"}
	case errors.Is(err, middleware.ErrNoToken):
		return Error{codeNoToken, "no bearer token: send the header Authorization: Bearer <token>"}
	case errors.Is(err, models.ErrInvalidToken):
		return Error{codeInvalidToken, "the bearer token is not valid: it is unknown, revoked, expired or malformed"}
	case errors.Is(err, models.ErrOverloaded):
		return Error{codeOverloaded, "too much is waiting, and nothing was stored: try again later"}
	case errors.Is(err, middleware.ErrCannotVerify):
		return Error{codeDatabaseTimeout, "tokens cannot be verified at the moment, and nothing was done: try again"}
	case errors.Is(err, models.ErrUnavailable):
		return Error{codeDatabaseTimeout, "the database cannot be reached in time; the outcome of a write is unknown: send it again, " +
			"and error 40902 tells that a plant was stored, as an import does by counting it as unchanged"}
	}
	return Error{codeInternal, "internal error, request id " + middleware.RequestIDOf(c)}
}

// seconds rounds up to what Retry-After has: whole seconds.
func seconds(d time.Duration) int { return int(math.Ceil(d.Seconds())) }

// NoRoute answers a request for a path that does not exist, and points to Swagger UI
// where that is served.
func NoRoute(documented bool) gin.HandlerFunc {
	message := "no such path"
	if documented {
		message += ": " + uiPath + " documents those there are"
	}
	return func(c *gin.Context) { middleware.Fail(c, problemf(codeNoPath, "%s", message)) }
}

// NoMethod answers a request whose path exists, but not with its method. Gin has
// set the Allow header.
func NoMethod(c *gin.Context) {
	middleware.Fail(c, problemf(codeMethod, "method not allowed on this path: use %s", c.Writer.Header().Get("Allow")))
}
