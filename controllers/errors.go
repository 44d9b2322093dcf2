package controllers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"plantstore/auth"
	"plantstore/database"
	"plantstore/database/fault"
	"plantstore/database/limit"
	"plantstore/database/table"
	"plantstore/middleware"
	"plantstore/models"
)

// The error codes that functions name. Clients rely on the codes: the HTTP status that
// fits best, times 100, plus a number. [errorTable] has all of them.
const (
	codeMalformed      = 40001
	codeUnknownField   = 40002
	codeDuplicateField = 40003
	codeMissingOrType  = 40004
	codeNotInt64       = 40005
	codeInvalidValue   = 40006
	codeParameter      = 40007
	codeBodyTooLarge   = 41301
	codeContentType    = 41501
	codeNoPath         = 40402
	codeMethod         = 40501
	codeExistsSame     = 40902
	codePrecondition   = 41201
	codeInternal       = 50001
	codeOverloaded     = 50301
	codeUnavailable    = 50302
)

// errorTable lists every error code in ascending order. The documents show when it is used and
// an example; responses get the code and the message of the first row that an error matches. A
// [problem] has its own code and message.
var errorTable = []ErrorRow{
	row(codeMalformed, "the body is not well-formed, is incomplete or took too long; JSON must be one object in UTF-8, and the message gives the byte offset",
		errors.New("the body is not well-formed JSON: it ends early, at byte 9")),
	row(codeUnknownField, "unknown field; names are case-sensitive",
		errors.New("unknown field ID; names are case-sensitive")),
	row(codeDuplicateField, "duplicate field",
		errors.New("duplicate field name")),
	row(codeMissingOrType, "a required field is missing, or a field has the wrong JSON type (including null)",
		errors.New("name is required")),
	row(codeNotInt64, "an integer is not an int64 literal: `1.0`, `1e3`, `-0` and `\"1\"` are not",
		errors.New("id must be an integer literal "+int64Range+", without fraction, exponent or quotes")),
	row(codeInvalidValue, "a text is out of bounds, or a value is not one that its field allows",
		&models.InvalidError{Field: "name", Reason: "must have 1 to 255 characters, not 0"},
		as((*models.InvalidError).Error),
		as(func(e *fault.CheckError) string { return "the row breaks the rule " + e.Constraint })),
	row(codeParameter, "invalid or unknown query parameter (on every operation), invalid path parameter or conditional header, or a PUT with Content-Range",
		errQuery),
	row(40008, "the row refers to a row that does not exist; plants do not refer to rows",
		&fault.ReferenceError{Column: "supplier_id", Row: "supplier 99"}, only(func(e *fault.ReferenceError) bool { return !e.Deleted }, "")),
	row(40101, "no bearer token",
		auth.ErrNoToken, is(auth.ErrNoToken, "no bearer token: send the header Authorization: Bearer <token>")),
	row(40102, "the bearer token is not valid",
		auth.ErrInvalidToken, is(auth.ErrBearerTwice, "the header has Bearer twice: send Authorization: Bearer <token>; in Swagger UI, enter the token alone"),
		is(auth.ErrInvalidToken, "the bearer token is not valid: it is unknown, revoked, expired or malformed: ask the operator of the service for another one"),
		is(auth.ErrEnded, "the bearer token is no longer valid: get another one"+unknownOutcome)),
	row(40301, "the bearer token lacks the scope that the operation needs",
		&auth.ScopeError{Scope: "plants:write"},
		as(func(e *auth.ScopeError) string {
			return e.Error() + ": ask the operator of the service for a token that has it"
		})),
	row(40302, "a web page of another site may have sent the request; only the admin address and a development service look",
		&middleware.SiteError{Reason: "the Host is unknown"}, as((*middleware.SiteError).Error)),
	row(40401, "nothing has the id in the path, or it is a token that is already revoked",
		&models.NotFoundError{Noun: table.NounOf(models.Plant{})}, as((*models.NotFoundError).Error)),
	row(codeNoPath, "no such path; `/plants/` is not `/plants`",
		errors.New("no such path")),
	row(codeMethod, "method not allowed on this path; `Allow` lists the methods that are",
		errors.New("method not allowed on this path: use GET, POST")),
	row(40901, "the id exists with different content; the stored row is unchanged",
		&models.ExistsError{Noun: table.NounOf(models.Plant{}), Key: 1},
		only(func(e *models.ExistsError) bool { return !e.Same }, " and is unchanged: choose another id"),
		as(func(e *models.RepeatedError) string { return e.Error() + ": an id belongs to its first valid row" })),
	row(codeExistsSame, "the id exists with the same content: an earlier attempt of this request succeeded",
		&models.ExistsError{Noun: table.NounOf(models.Plant{}), Key: 1, Same: true},
		only(func(e *models.ExistsError) bool { return e.Same }, ": an earlier attempt of this request succeeded")),
	row(40903, "a value that must be unique is taken; nothing was written",
		&fault.UniqueError{Columns: "name"}, as((*fault.UniqueError).Error)),
	row(40904, "rows refer to the row, which was not deleted",
		&fault.ReferenceError{Table: "plants", Row: "supplier 1", Deleted: true}, only(func(e *fault.ReferenceError) bool { return e.Deleted }, "")),
	row(41001, "the cursor of the change feed is too old, or from another database, such as before a restore: get a new cursor, export, then follow",
		database.ErrCursor, is(database.ErrCursor, "the cursor is too old, or from another database, such as before a restore: begin again with after=0 and an empty copy, or get a new cursor, export, then follow")),
	row(codePrecondition, "`If-Match` or `If-None-Match` does not hold; nothing was written; in an import, the etag of a row does not hold",
		models.ErrCondition, as((*models.VersionError).Error),
		is(models.ErrCondition, "If-Match or If-None-Match does not hold, and nothing was written: get the current version and retry (an ETag that a proxy has changed, as W/… or …-gzip, matches nothing)")),
	row(codeBodyTooLarge, "the body, or a line of an import, is too large; or an import is not received within `bulk.timeout`",
		&http.MaxBytesError{Limit: 64 << 10},
		as(func(e *http.MaxBytesError) string {
			return fmt.Sprintf("the body is larger than %d bytes: send less at a time", e.Limit)
		})),
	row(codeContentType, "unsupported Content-Type or Content-Encoding",
		errors.New("Content-Type must be application/json, with no charset other than utf-8")),
	row(42901, "too many requests with this token or from this address, or too many invalid tokens; `Retry-After` says when to retry",
		&middleware.LimitError{What: "requests", RetryAfter: time.Second},
		as(func(e *middleware.LimitError) string {
			return fmt.Sprintf("%s: retry in %d s", e, seconds(e.RetryAfter))
		})),
	row(codeInternal, "an internal error; the message has the request id, the log has the cause",
		errors.New(internalError+"C7MS644ZFHYUKQ4LX3OVBOGMBP")),
	row(50101, "the database has no change feed: it is distributed by Citus",
		database.ErrNoFeed, is(database.ErrNoFeed, "this service has no change feed, as its database is distributed by Citus: export instead")),
	row(codeOverloaded, "too many operations are waiting, another one has locked the row, or too many imports and exports, or followers of the change feed, are running; nothing was stored: retry after `Retry-After`",
		models.ErrNoRoom, is(models.ErrNoRoom, "no room is left for the temporary files of imports and exports, in all or with this token, and nothing was stored: retry later, or split an import that is rejected even if it runs alone"),
		is(limit.ErrShare, "too many such operations are running, or too many with this token, and nothing was stored: retry when one has ended"),
		is(models.ErrTemporary, "the service cannot write temporary files, and nothing was stored: retry later"),
		when(func(err error) bool { return fault.IsLocked(err) || fault.IsRolledBack(err) },
			"another operation has locked the row or the table, and nothing was stored: retry later"),
		is(limit.ErrBusy, "too many operations are waiting, or a long one, such as an import, holds them up, and nothing was stored: retry later")),
	row(codeUnavailable, "the database cannot be reached, does not respond in time or is not writable (read-only, disk full, file replaced), the keys of JWTs are unavailable, or the service is stopping; the message says which, whether the outcome of a write is unknown, and what to do",
		errStopping, is(errStopping, "the service is stopping: retry"),
		as(func(e *fault.NotWritableError) string { return e.Error() + unknownOutcome }),
		is(middleware.ErrTooLong, middleware.ErrTooLong.Error()+unknownOutcome),
		is(fault.ErrTimeout, fault.ErrTimeout.Error()+unknownOutcome),
		is(fault.ErrUnavailable, "the database cannot be reached"+unknownOutcome),
		// After those above: a write may have begun when its token was verified again.
		is(auth.ErrCannotVerify, "tokens cannot be verified at the moment, and nothing was done: retry")),
}

// internalError is the message of an internal error, before the request id.
const internalError = "internal error: the operator of the service finds its cause in the log by the request id "

// unknownOutcome ends the message of an error after which a write may have succeeded. [Failures.Respond]
// replaces it by what to do.
const unknownOutcome = ": the outcome is unknown"

// adviceOf returns what replaces unknownOutcome in the response to c's request.
func adviceOf(c *gin.Context) string {
	const unknown = ". The outcome of the write is unknown: "
	switch {
	case isRead(c):
		return ": retry later"
	case c.Request.Method == http.MethodPost && c.FullPath() == "/tokens":
		return unknown + "look for the new token in the list, revoke it, and create another one"
	case c.Request.Method == http.MethodPost && c.Param("id") != "": // an operation on a row
		return unknown + "read the row to see whether it was changed; with If-Match, error 412 after a retry may mean that the first attempt succeeded"
	case c.Request.Method == http.MethodPost:
		return fmt.Sprintf("%sretry with %s; error %d, or a row that an import counts as unchanged, means that the first attempt succeeded",
			unknown, strings.TrimSpace("the same id "+middleware.RequestOf(c).CreatedID), codeExistsSame)
	case c.Param("id") == "": // the rows that a query selects
		return unknown + "repeat the request, which leaves rows alone that it has changed or deleted"
	}
	return unknown + "retry; error 404 after DELETE, or 412 after If-Match or If-None-Match, may mean that the first attempt succeeded"
}

// errStopping means that the service is about to stop.
var errStopping = errors.New("the service is stopping")

// ErrorRow is a row of the table of error codes.
type ErrorRow struct {
	Code     int32
	Status   int    // of the response
	When     string // in Markdown
	Example  string // of a message
	messages []message
}

// message returns the text for an error, or nothing for errors that it does not stand for.
type message func(error) string

// ErrorTable returns the table of error codes, in ascending order, for the documents.
func ErrorTable() []ErrorRow { return errorTable }

// row returns the row of code. Its example is the message of sample.
func row(code int32, when string, sample error, messages ...message) ErrorRow {
	r := ErrorRow{Code: code, Status: statusOf(code), When: when, messages: messages}
	r.Example = cmp.Or(r.messageOf(sample), sample.Error())
	return r
}

// messageOf returns the message for err, or nothing if err belongs to another row.
func (r *ErrorRow) messageOf(err error) string {
	for _, message := range r.messages {
		if text := message(err); text != "" {
			return text
		}
	}
	return ""
}

// statusOf returns the status of a response with code. Faults in the request's content have
// the status 400, as the API's specification requires.
func statusOf(code int32) int {
	status := int(code / 100)
	if status == http.StatusRequestEntityTooLarge || status == http.StatusUnsupportedMediaType {
		return http.StatusBadRequest
	}
	return status
}

// is gives target, and the errors that wrap it, a message.
func is(target error, text string) message {
	return when(func(err error) bool { return errors.Is(err, target) }, text)
}

// when gives the errors for which holds is true a message.
func when(holds func(error) bool, text string) message {
	return func(err error) string {
		if holds(err) {
			return text
		}
		return ""
	}
}

// as gives the errors of type E a message.
func as[E error](describe func(E) string) message {
	return func(err error) string {
		if e, ok := errors.AsType[E](err); ok {
			return describe(e)
		}
		return ""
	}
}

// only gives the errors of type E for which holds is true their text and more as their message.
func only[E error](holds func(E) bool, more string) message {
	return as(func(e E) string {
		if !holds(e) {
			return ""
		}
		return e.Error() + more
	})
}

// Error is the body of every unsuccessful response.
type Error struct {
	// A stable numeric error indicator: the HTTP status that fits best, times 100, plus a number.
	Code int32 `json:"error" binding:"required" format:"int32" example:"40004"`
	// What is wrong, where, and what to do. For people: the wording may change.
	Message string `json:"message" binding:"required" example:"name is required"`
	// The faults of fields of the body, with the fault in error and message first; of many, only 20. Absent if the error is not about fields.
	Errors []Fault `json:"errors,omitzero"`
} // @name Error

// problem is an error with a code and a message of its own.
type problem Error

func (p *problem) Error() string { return p.Message }

func problemf(code int32, format string, args ...any) error {
	return &problem{Code: code, Message: fmt.Sprintf(format, args...)}
}

// describe returns the Error for err.
func describe(c *gin.Context, err error) Error {
	if p, ok := errors.AsType[*problem](err); ok {
		return Error(*p)
	}
	for _, row := range errorTable {
		if text := row.messageOf(err); text != "" {
			return Error{Code: row.Code, Message: text}
		}
	}
	return Error{Code: codeInternal, Message: internalError + middleware.RequestOf(c).ID}
}

// Respond responds to requests that end with an error. Only the log has the cause of a fault of the service.
func (f *Failures) Respond(c *gin.Context) {
	client := c.Request.Context() // a handler's own may end earlier
	c.Next()
	if len(c.Errors) == 0 {
		return
	}
	err := c.Errors.Last().Err
	switch {
	case c.Writer.Written(): // the client must not mistake a part for the whole
		f.logAborted(c, err, client.Err() != nil)
		panic(http.ErrAbortHandler)
	case errors.Is(err, context.Canceled) && client.Err() != nil:
		c.Status(middleware.StatusClientGone) // for the log
		panic(http.ErrAbortHandler)
	case client.Err() != nil && c.Request.ProtoMajor == 1: // net/http serves no other request on the connection
		c.Header("Connection", "close")
	}
	body := describe(c, err)
	if fault, isUnknown := strings.CutSuffix(body.Message, unknownOutcome); isUnknown {
		body.Message = fault + adviceOf(c)
	}
	middleware.RequestOf(c).ErrorCode = body.Code
	f.logFault(c, body.Code, err)
	status := statusOf(body.Code)
	if status == http.StatusServiceUnavailable {
		c.Header("Retry-After", "1")
	}
	if limit, ok := errors.AsType[*middleware.LimitError](err); ok {
		c.Header("Retry-After", strconv.Itoa(seconds(limit.RetryAfter)))
	}
	// Headers that the handler set for its own response.
	for _, name := range []string{"Content-Type", "Content-Disposition", "Content-Encoding", "ETag", "Link", "X-Accel-Buffering", "X-Total-Count"} {
		delete(c.Writer.Header(), name)
	}
	middleware.SetHeader(c, "Cache-Control", middleware.NoStore)
	_ = respond(c, status, body) // can be encoded
}

// seconds rounds up to whole seconds, for Retry-After.
func seconds(d time.Duration) int { return int(math.Ceil(d.Seconds())) }

// NoRoute rejects a request for an unknown path. documented means that Swagger UI is served.
func NoRoute(documented bool) middleware.Handler {
	return func(c *gin.Context) error {
		if c.Request.Method == http.MethodOptions && c.Request.URL.Path == "*" { // RFC 9110, section 9.3.7
			c.Status(http.StatusNoContent)
			return nil
		}
		if !documented {
			return problemf(codeNoPath, "no such path")
		}
		return problemf(codeNoPath, "no such path; see %s", middleware.ClientPath(c, UIPath))
	}
}

// NoMethod rejects a request with a known path but another method. The header Allow is set.
func NoMethod(c *gin.Context) error {
	return problemf(codeMethod, "method not allowed on this path: use %s", c.Writer.Header().Get("Allow"))
}
