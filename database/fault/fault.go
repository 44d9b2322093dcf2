// Package fault tells what the errors of a database mean: SQLSTATEs of PostgreSQL, result codes of
// SQLite, and errors of connections to a server.
package fault

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"slices"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"plantstore/database/limit"
)

// The SQLSTATEs that are looked for in more than one place, with the names of PostgreSQL's
// manual, appendix A.
const (
	FeatureNotSupported   = "0A000" // a cached plan is obsolete: a migration has changed the table
	ReadOnlyTransaction   = "25006" // read_only_sql_transaction: a standby, as after a fail-over
	completionUnknown     = "40003" // statement_completion_unknown
	InsufficientPrivilege = "42501"
	lockNotAvailable      = "55P03"
	IdleSessionTimeout    = "57P05"
	InternalError         = "XX000"
)

// ErrURL means that a part of the database URL is not valid. Nothing was attempted.
var ErrURL = errors.New("the database URL, or a variable such as PGSSLMODE, has a port or a parameter that is not valid, or names a file that cannot be read")

// ErrStandby means that the database is a standby.
var ErrStandby = errors.New("it is a standby, which only copies its primary: name the primary, or all of its servers")

// ErrTaken means that the key of a new row is already taken.
var ErrTaken = errors.New("the key is taken")

// ErrLeftOut means that a trigger left out some of the rows of a statement, which stored the others.
var ErrLeftOut = errors.New("a trigger left out rows")

// ErrUnavailable means that the database could not be reached, did not respond in
// time, or cannot write at the moment. The outcome of a write is then unknown.
var ErrUnavailable = errors.New("the database is unavailable")

// ErrTimeout means that the database did not respond in time. It is wrapped together
// with ErrUnavailable.
var ErrTimeout = errors.New("the database did not respond in time")

// NotWritableError means that the database stores nothing until somebody acts, such as
// by making room on its disk. It is wrapped together with ErrUnavailable. IsUnavailable
// holds for it.
type NotWritableError struct {
	Reason string // such as "its disk is full"
}

// Reasons of a NotWritableError.
const (
	ReadOnly     = "it is read-only"
	Damaged      = "its file is damaged"
	MissingRight = "its role lacks a right"
	WrongSchema  = "its schema is not the one that this version of the service needs"
)

func (e *NotWritableError) Error() string { return "the database is not writable: " + e.Reason }

// Reason returns why the database is unavailable, as one of a few texts. err is an
// ErrUnavailable that In returned.
func Reason(err error) string {
	if fault, ok := errors.AsType[*NotWritableError](err); ok {
		return fault.Error()
	}
	if errors.Is(err, ErrTimeout) {
		return ErrTimeout.Error()
	}
	return ErrUnavailable.Error()
}

// In names the operation that err ended, and wraps ErrUnavailable if the same operation may succeed
// later. After an error for which NothingStored holds, it stored nothing.
func In(operation string, err error) error {
	switch {
	case err == nil:
		return nil
	case IsLocked(err):
		return fmt.Errorf("%s: another transaction or process holds a lock: %w", operation, err)
	case IsRolledBack(err):
		return fmt.Errorf("%s: it was rolled back in favor of another transaction: %w", operation, err)
	case IsUnavailable(err):
		switch fault := NotWritable(err); {
		case fault != nil && !errors.Is(err, fault): // it may be err itself
			err = fmt.Errorf("%w: %w", fault, err)
		case fault == nil && IsTimeout(err):
			err = fmt.Errorf("%w: %w", ErrTimeout, err)
		}
		return fmt.Errorf("%s: %w: %w", operation, ErrUnavailable, err)
	}
	if name := brokenCheck(err); name != "" {
		err = &CheckError{name, err}
	}
	return fmt.Errorf("%s: %w", operation, err)
}

// CheckError means that a row breaks a CHECK of its table.
type CheckError struct {
	Constraint string // its name, or its text if it has none
	error
}

func (e *CheckError) Unwrap() error { return e.error }

// brokenCheck returns the name of the CHECK that a row breaks, or nothing.
func brokenCheck(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == "23514" { // check_violation
		return pg.ConstraintName
	}
	if lite, ok := errors.AsType[*sqlite.Error](err); ok && lite.Code() == sqlite3.SQLITE_CONSTRAINT_CHECK {
		_, name, _ := strings.Cut(lite.Error(), "CHECK constraint failed: ")
		return strings.TrimSuffix(name, fmt.Sprintf(" (%d)", lite.Code()))
	}
	return ""
}

// NothingStored reports whether err means that an operation has stored nothing, and may succeed
// later: it did not get its turn, its share or a lock, or PostgreSQL preferred another transaction.
func NothingStored(err error) bool {
	return errors.Is(err, limit.ErrBusy) || errors.Is(err, limit.ErrShare) || IsLocked(err) || IsRolledBack(err)
}

// IsRolledBack reports whether PostgreSQL has rolled a transaction back in favor of
// another.
func IsRolledBack(err error) bool {
	state := SQLState(err)
	return state == "40001" || state == "40P01" // serialization_failure, deadlock_detected
}

// IsTimeout reports whether err, for which IsUnavailable holds, means that a response did
// not come in time.
func IsTimeout(err error) bool {
	if code := SQLiteCode(err); code != 0 {
		return code == sqlite3.SQLITE_LOCKED || code == sqlite3.SQLITE_INTERRUPT
	}
	return isTimeoutState(SQLState(err)) || errors.Is(err, context.DeadlineExceeded) || pgconn.Timeout(err)
}

// SQLiteCode returns SQLite's primary result code for err, or 0.
func SQLiteCode(err error) int {
	if lite, ok := errors.AsType[*sqlite.Error](err); ok {
		return lite.Code() & 0xff
	}
	return 0
}

// SQLState returns PostgreSQL's code for err, or nothing.
func SQLState(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code
	}
	return ""
}

// NotWritable returns the lasting fault that err reports, or nil.
func NotWritable(err error) *NotWritableError {
	if fault, ok := errors.AsType[*NotWritableError](err); ok {
		return fault
	}
	switch state, code := SQLState(err), SQLiteCode(err); {
	case state == ReadOnlyTransaction, code == sqlite3.SQLITE_READONLY:
		return &NotWritableError{ReadOnly}
	case state == "53100", code == sqlite3.SQLITE_FULL: // disk_full
		return &NotWritableError{"its disk is full"}
	case code == sqlite3.SQLITE_IOERR:
		return &NotWritableError{"its disk reports an error"}
	case code == sqlite3.SQLITE_CORRUPT, code == sqlite3.SQLITE_NOTADB:
		return &NotWritableError{Damaged}
	case state == InsufficientPrivilege && !isPolicy(err):
		return &NotWritableError{MissingRight}
	case isUndefined(state):
		return &NotWritableError{WrongSchema}
	}
	return nil
}

// NodeError is the error of a database that is distributed over nodes, one of which cannot be
// reached. What a transaction wrote on several nodes is then stored on none of them.
type NodeError struct{ Err error }

func (e *NodeError) Error() string { return "a node of the database: " + e.Err.Error() }
func (e *NodeError) Unwrap() error { return e.Err }

func isNodeError(err error) bool {
	_, ok := errors.AsType[*NodeError](err)
	return ok
}

// IsSchema reports whether err means that a table or a column of a query does not exist.
func IsSchema(err error) bool {
	if lite, ok := errors.AsType[*sqlite.Error](err); ok {
		return lite.Code() == sqlite3.SQLITE_ERROR
	}
	return isUndefined(SQLState(err))
}

// isUndefined reports whether a SQLSTATE means that a table or a column does not exist.
func isUndefined(state string) bool {
	return state == "42P01" || state == "42703" // undefined_table, undefined_column
}

// IsDiskFull reports whether err means that a file of the service's own cannot grow.
func IsDiskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}

// IsUnavailable reports whether err means that the database could not be
// reached, did not respond in time, or cannot write at the moment: the same operation
// may succeed later.
func IsUnavailable(err error) bool {
	if _, ok := errors.AsType[*fs.PathError](err); ok {
		return false // a file of the service's own; its errors look like a network's
	}
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok || isNodeError(err) || NotWritable(err) != nil {
		return true
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return isTransientState(pg.Code)
	}
	if code := SQLiteCode(err); code != 0 {
		return slices.Contains([]int{sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_INTERRUPT}, code)
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		return true
	}
	return slices.ContainsFunc([]error{
		context.DeadlineExceeded, context.Canceled,
		driver.ErrBadConn, sql.ErrConnDone, sql.ErrTxDone, pgconn.ErrConnClosed,
		io.EOF, io.ErrUnexpectedEOF, net.ErrClosed,
	}, func(target error) bool { return errors.Is(err, target) })
}

// IsLocked reports whether err means that others held a lock for too long. Nothing was
// written.
func IsLocked(err error) bool {
	return SQLiteCode(err) == sqlite3.SQLITE_BUSY || SQLState(err) == lockNotAvailable
}

// IsTableLocked reports whether err means that the lock was a whole table's. Only errors
// about a row's lock say where it is, but not all of them: see [RowLocked].
func IsTableLocked(err error) bool {
	if _, ok := errors.AsType[*rowLockedError](err); ok {
		return false
	}
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == lockNotAvailable && pg.Where == ""
}

// RowLocked marks err, for which IsTableLocked holds, as an error about a row's lock: PostgreSQL
// does not say where the lock is if several transactions wait for the row.
func RowLocked(err error) error { return &rowLockedError{err} }

type rowLockedError struct{ error }

func (e *rowLockedError) Unwrap() error { return e.error }

// IsDuplicate reports whether err means that a key is taken.
func IsDuplicate(err error) bool {
	return SQLState(err) == "23505" // unique_violation
}

// IsRowFault reports whether err is the fault of one row, which is locked or rejected.
func IsRowFault(err error) bool { return IsLocked(err) && !IsTableLocked(err) || IsRowRejected(err) }

// IsRowRejected reports whether err means that the database rejects one row: a
// constraint does not hold, a value does not fit, or a trigger or a policy does not allow it.
func IsRowRejected(err error) bool {
	state := SQLState(err)
	return SQLiteCode(err) == sqlite3.SQLITE_CONSTRAINT || strings.HasPrefix(state, "22") || strings.HasPrefix(state, "23") ||
		state == "P0001" || isPolicy(err) // raise_exception, of a trigger
}

// isPolicy reports whether err means that a policy of row-level security rejects a row. It shares
// its code with missing rights on a table, which another function of the server reports.
func isPolicy(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == InsufficientPrivilege && pg.Routine == "ExecWithCheckOptions"
}

// isTimeoutState reports whether a SQLSTATE means that the server ended something that took
// too long.
func isTimeoutState(state string) bool {
	switch state {
	case "25P03", // idle_in_transaction_session_timeout
		"25P04", // transaction_timeout
		"57014": // query_canceled, as by statement_timeout
		return true
	}
	return false
}

// isTransientState reports whether a retry may succeed after a SQLSTATE. Appendix A
// of PostgreSQL's manual lists them.
func isTransientState(state string) bool {
	switch state {
	case ReadOnlyTransaction, completionUnknown, IdleSessionTimeout,
		"57P01", // admin_shutdown
		"57P02", // crash_shutdown
		"57P03", // cannot_connect_now: starting up or recovering
		"58030": // io_error
		return true
	}
	return isTimeoutState(state) ||
		strings.HasPrefix(state, "08") || // connection exceptions
		strings.HasPrefix(state, "53") // insufficient resources: disk, memory, connections
}

// IsRejected reports whether the server rejected an attempt to connect for a reason
// that waiting will not change, such as a wrong password.
func IsRejected(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if ok && pg.Code == "08P01" { // protocol_violation: pgbouncer's code for everything
		return slices.ContainsFunc([]string{"authentication failed", "no such user", "no such database"},
			func(reason string) bool { return strings.Contains(pg.Message, reason) })
	}
	return ok && !isTransientState(pg.Code)
}
