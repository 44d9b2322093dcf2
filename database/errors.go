package database

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
)

// The SQLSTATEs that are looked for in more than one place, with the names of PostgreSQL's
// manual, appendix A.
const (
	featureNotSupported   = "0A000" // a cached plan is obsolete: see postgresDialect.watch
	readOnlyTransaction   = "25006" // read_only_sql_transaction: a standby, as after a fail-over
	completionUnknown     = "40003" // statement_completion_unknown: the caller must read whether it was stored
	insufficientPrivilege = "42501"
	lockNotAvailable      = "55P03"
	idleSessionTimeout    = "57P05"
	internalError         = "XX000"
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
	readOnly     = "it is read-only"
	damaged      = "its file is damaged"
	missingRight = "its role lacks a right"
	wrongSchema  = "its schema is not the one that this version of the service needs"
)

func (e *NotWritableError) Error() string { return "the database is not writable: " + e.Reason }

// ErrOverloaded means that an operation did not get its turn, or a lock, in time. Nothing
// was stored.
var ErrOverloaded = errors.New("too many operations are waiting")

// ErrShare means that too many operations of a kind are running, in all or for one client. It
// wraps ErrOverloaded.
var ErrShare = fmt.Errorf("%w: no share is left", ErrOverloaded)

// ErrNoRoom means that the temporary files of imports and exports may take no more room, in all or
// for one client. It is wrapped together with ErrShare.
var ErrNoRoom = errors.New("no room for temporary files")

// ErrTemporary means that temporary files cannot be written, as their disk is full, or their
// folder is missing. It wraps ErrOverloaded.
var ErrTemporary = fmt.Errorf("%w: temporary files (TMPDIR) cannot be written", ErrOverloaded)

// Reason returns why the database is unavailable, as one of a few texts. err is an
// ErrUnavailable that Failed or [DB.Ready] returned.
func Reason(err error) string {
	if fault, ok := errors.AsType[*NotWritableError](err); ok {
		return fault.Error()
	}
	if errors.Is(err, ErrTimeout) {
		return ErrTimeout.Error()
	}
	return ErrUnavailable.Error()
}

// Failed names the operation that err ended, and marks err with ErrUnavailable or
// ErrOverloaded if a retry may help.
func Failed(operation string, err error) error {
	switch {
	case err == nil:
		return nil
	case IsLocked(err):
		return fmt.Errorf("%s: %w", operation, &concurrencyError{"another transaction or process holds a lock", err})
	case isRolledBack(err):
		return fmt.Errorf("%s: %w", operation, &concurrencyError{"it was rolled back in favor of another transaction", err})
	case IsUnavailable(err):
		switch fault := notWritable(err); {
		case fault != nil && !errors.Is(err, fault): // it may be err itself
			err = fmt.Errorf("%w: %w", fault, err)
		case fault == nil && isTimeout(err):
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

// concurrencyError means that another transaction or process had precedence. It wraps
// ErrOverloaded without its text, as few operations may be waiting.
type concurrencyError struct {
	reason string
	error
}

func (e *concurrencyError) Error() string { return e.reason + ": " + e.error.Error() }

func (e *concurrencyError) Unwrap() []error { return []error{ErrOverloaded, e.error} }

// isRolledBack reports whether PostgreSQL has rolled a transaction back in favor of
// another.
func isRolledBack(err error) bool {
	state := sqlState(err)
	return state == "40001" || state == "40P01" // serialization_failure, deadlock_detected
}

// isTimeout reports whether err, for which IsUnavailable holds, means that a response did
// not come in time.
func isTimeout(err error) bool {
	if code := sqliteCode(err); code != 0 {
		return code == sqlite3.SQLITE_LOCKED || code == sqlite3.SQLITE_INTERRUPT
	}
	return isTimeoutState(sqlState(err)) || errors.Is(err, context.DeadlineExceeded) || pgconn.Timeout(err)
}

// sqliteCode returns SQLite's primary result code for err, or 0.
func sqliteCode(err error) int {
	if lite, ok := errors.AsType[*sqlite.Error](err); ok {
		return lite.Code() & 0xff
	}
	return 0
}

// sqlState returns PostgreSQL's code for err, or nothing.
func sqlState(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code
	}
	return ""
}

// notWritable returns the lasting fault that err reports, or nil.
func notWritable(err error) *NotWritableError {
	if fault, ok := errors.AsType[*NotWritableError](err); ok {
		return fault
	}
	switch state, code := sqlState(err), sqliteCode(err); {
	case state == readOnlyTransaction, code == sqlite3.SQLITE_READONLY:
		return &NotWritableError{readOnly}
	case state == "53100", code == sqlite3.SQLITE_FULL: // disk_full
		return &NotWritableError{"its disk is full"}
	case code == sqlite3.SQLITE_IOERR:
		return &NotWritableError{"its disk reports an error"}
	case code == sqlite3.SQLITE_CORRUPT, code == sqlite3.SQLITE_NOTADB:
		return &NotWritableError{damaged}
	case state == insufficientPrivilege && !isPolicy(err):
		return &NotWritableError{missingRight}
	case isUndefined(state):
		return &NotWritableError{wrongSchema}
	}
	return nil
}

// isUndefined reports whether a SQLSTATE means that a table or a column does not exist.
func isUndefined(state string) bool {
	return state == "42P01" || state == "42703" // undefined_table, undefined_column
}

// isDiskFull reports whether err means that a file of the service's own cannot grow.
func isDiskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}

// IsUnavailable reports whether err means that the database could not be
// reached, did not respond in time, or cannot write at the moment: the same operation
// may succeed later.
func IsUnavailable(err error) bool {
	if _, ok := errors.AsType[*fs.PathError](err); ok {
		return false // a file of the service's own; its errors look like a network's
	}
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok || isNodeError(err) || notWritable(err) != nil {
		return true
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return isTransientState(pg.Code)
	}
	if code := sqliteCode(err); code != 0 {
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
	return sqliteCode(err) == sqlite3.SQLITE_BUSY || sqlState(err) == lockNotAvailable
}

// isTableLocked reports whether err means that the lock was a whole table's. Only errors
// about a row's lock say where it is, but not all of them: see rowLockedError.
func isTableLocked(err error) bool {
	if _, ok := errors.AsType[*rowLockedError](err); ok {
		return false
	}
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == lockNotAvailable && pg.Where == ""
}

// rowLockedError is an error about a row's lock that does not say where it is: others wait
// for the row, too.
type rowLockedError struct{ error }

func (e *rowLockedError) Unwrap() error { return e.error }

// IsDuplicate reports whether err means that a key is taken.
func IsDuplicate(err error) bool {
	return sqlState(err) == "23505" // unique_violation
}

// IsUnknown reports whether err means that the database does not know whether it has
// committed, as a distributed one may not.
func IsUnknown(err error) bool { return sqlState(err) == completionUnknown }

// isRowFault reports whether err is the fault of one row, which is locked or rejected.
func isRowFault(err error) bool { return IsLocked(err) && !isTableLocked(err) || IsRowRejected(err) }

// IsRowRejected reports whether err means that the database rejects one row: a
// constraint does not hold, a value does not fit, or a trigger or a policy does not allow it.
func IsRowRejected(err error) bool {
	state := sqlState(err)
	return sqliteCode(err) == sqlite3.SQLITE_CONSTRAINT || strings.HasPrefix(state, "22") || strings.HasPrefix(state, "23") ||
		state == "P0001" || isPolicy(err) // raise_exception, of a trigger
}

// isPolicy reports whether err means that a policy of row-level security rejects a row. It shares
// its code with missing rights on a table, which another function of the server reports.
func isPolicy(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == insufficientPrivilege && pg.Routine == "ExecWithCheckOptions"
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
	case readOnlyTransaction, completionUnknown, idleSessionTimeout,
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

// isRejected reports whether the server rejected an attempt to connect for a reason
// that waiting will not change, such as a wrong password.
func isRejected(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if ok && pg.Code == "08P01" { // protocol_violation: pgbouncer's code for everything
		return slices.ContainsFunc([]string{"authentication failed", "no such user", "no such database"},
			func(reason string) bool { return strings.Contains(pg.Message, reason) })
	}
	return ok && !isTransientState(pg.Code)
}
