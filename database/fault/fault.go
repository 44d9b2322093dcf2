// Package fault tells what the errors of a database mean: SQLSTATEs of PostgreSQL, result codes of
// SQLite, and errors of connections to a server.
package fault

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"slices"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"plantstore/database/limit"
)

// SQLSTATEs that other packages look for, with the names of PostgreSQL's manual, appendix A.
const (
	FeatureNotSupported   = "0A000" // a cached plan is obsolete: a migration has changed the table
	ReadOnlyTransaction   = "25006" // read_only_sql_transaction: a standby, as after a fail-over
	InsufficientPrivilege = "42501"
	IdleSessionTimeout    = "57P05"
	InternalError         = "XX000" // on Citus, mostly the error of a node
)

// Reasons of a NotWritableError.
const (
	ReadOnly     = "it is read-only"
	Damaged      = "its file is damaged"
	MissingRight = "its role lacks a right"
	WrongSchema  = "its schema is not the one that this version of the service needs"
	Locked       = "another transaction or process has locked it"
	diskFull     = "its disk is full"
)

// tooLarge is program_limit_exceeded: a value is too large for an index.
const tooLarge = "54000"

// lasting are the codes of faults that last until somebody acts, and their reasons.
var lasting = map[any]string{
	ReadOnlyTransaction: ReadOnly, sqlite3.SQLITE_READONLY: ReadOnly,
	"53100": diskFull, sqlite3.SQLITE_FULL: diskFull, // disk_full
	sqlite3.SQLITE_IOERR:   "its disk reports an error",
	sqlite3.SQLITE_CORRUPT: Damaged, sqlite3.SQLITE_NOTADB: Damaged,
	InsufficientPrivilege: MissingRight,
	"42P01":               WrongSchema, "42703": WrongSchema, // undefined_table, undefined_column
}

// The SQLSTATEs, or their first two characters, and the codes of SQLite, by what they say about the operation that
// they ended.
var (
	timeout = []any{ // a response did not come in time
		"25P03", "25P04", "57014", // idle_in_transaction_session_timeout, transaction_timeout, query_canceled
		sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_INTERRUPT,
	}
	transient = append([]any{ // it may succeed later
		"08", "53", // connection exceptions; insufficient resources, as connections
		ReadOnlyTransaction, "40003", IdleSessionTimeout, // statement_completion_unknown
		"57P01", "57P02", "57P03", // admin_shutdown, crash_shutdown, cannot_connect_now
		"58030", sqlite3.SQLITE_CANTOPEN, // io_error
	}, timeout...)
	locked     = []any{"55P03", sqlite3.SQLITE_BUSY}                             // lock_not_available: nothing was written
	rolledBack = []any{"40001", "40P01"}                                         // serialization_failure, deadlock_detected: nothing was written
	rejected   = []any{"22", "23", tooLarge, "P0001", sqlite3.SQLITE_CONSTRAINT} // a row: of data, of a constraint, of an index, by a trigger
)

// codeOf returns PostgreSQL's or SQLite's code for err, or nil.
func codeOf(err error) any {
	if state := SQLState(err); state != "" {
		return state
	}
	if code := SQLiteCode(err); code != 0 {
		return code
	}
	return nil
}

// has reports whether err has one of codes.
func has(err error, codes []any) bool {
	code := codeOf(err)
	state, _ := code.(string)
	return slices.Contains(codes, code) || len(state) == 5 && slices.Contains(codes, any(state[:2]))
}

// ErrURL means that a part of the database URL is not valid. Nothing was attempted.
var ErrURL = errors.New("the database URL, or a variable such as PGSSLMODE, has a port or a parameter that is not valid, or names a file that cannot be read")

// ErrStandby means that the database is a standby.
var ErrStandby = errors.New("it is a standby, which only copies its primary: name the primary, or all of its servers")

// ErrUnavailable means that IsUnavailable holds. The outcome of a write is then unknown.
var ErrUnavailable = errors.New("the database is unavailable")

// ErrTimeout means that the database did not respond in time. It is wrapped together
// with ErrUnavailable.
var ErrTimeout = errors.New("the database did not respond in time")

// NotWritableError means that the database stores nothing until somebody acts, for example
// by making room on its disk. It is wrapped together with ErrUnavailable.
type NotWritableError struct {
	Reason string // "its disk is full", for example
}

func (e *NotWritableError) Error() string { return "the database is not writable: " + e.Reason }

// Reason returns why the database is unavailable, as a text from a small set. err is an
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
	err = cmp.Or(Constraint(err), err)
	return fmt.Errorf("%s: %w", operation, err)
}

// NothingStored reports whether err means that an operation has stored nothing, and may succeed
// later: it did not get its turn, its share or a lock, or PostgreSQL preferred another transaction.
func NothingStored(err error) bool {
	return errors.Is(err, limit.ErrBusy) || errors.Is(err, limit.ErrShare) || IsLocked(err) || IsRolledBack(err)
}

// IsRolledBack reports whether PostgreSQL has rolled a transaction back in favor of another.
func IsRolledBack(err error) bool { return has(err, rolledBack) }

// IsTimeout reports whether err, for which IsUnavailable holds, means that a response did
// not come in time.
func IsTimeout(err error) bool {
	return has(err, timeout) || SQLiteCode(err) == 0 && (errors.Is(err, context.DeadlineExceeded) || pgconn.Timeout(err))
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
	if reason := lasting[codeOf(err)]; reason != "" {
		return &NotWritableError{reason}
	}
	return nil
}

// IsSchema reports whether err means that a table or a column of a query does not exist.
func IsSchema(err error) bool {
	code := codeOf(err)
	return code == sqlite3.SQLITE_ERROR || lasting[code] == WrongSchema
}

// IsDiskFull reports whether err means that a file of the service's own cannot grow.
func IsDiskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}

// IsUnavailable reports whether err means that the database could not be reached, did not respond in
// time, or cannot write at the moment: the same operation may succeed later.
func IsUnavailable(err error) bool {
	if _, ok := errors.AsType[*fs.PathError](err); ok {
		return false // a file of the service's own; its errors look like a network's
	}
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok || NotWritable(err) != nil {
		return true
	}
	if code := codeOf(err); code != nil {
		return has(err, transient) || code == InternalError
	}
	if _, ok := errors.AsType[net.Error](err); ok { // a missed deadline, for example
		return true
	}
	return slices.ContainsFunc([]error{
		context.Canceled, driver.ErrBadConn, sql.ErrConnDone, sql.ErrTxDone, pgconn.ErrConnClosed, io.EOF, io.ErrUnexpectedEOF,
	}, func(target error) bool { return errors.Is(err, target) })
}

// IsLocked reports whether err means that a lock was not free in time. Nothing was written.
func IsLocked(err error) bool { return has(err, locked) }

// IsTableLocked reports whether err means that the lock was a whole table's. Only errors
// about a row's lock say where it is, but not all of them: see [RowLocked].
func IsTableLocked(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Where == "" && IsLocked(err) && !errors.Is(err, errRow)
}

// errRow marks errors about the lock of a row.
var errRow = errors.New("a row is locked")

// RowLocked marks err, for which IsTableLocked holds, as an error about a row's lock: PostgreSQL
// does not say where the lock is if several transactions wait for the row.
func RowLocked(err error) error { return fmt.Errorf("%w: %w", errRow, err) }

// IsRowFault reports whether err is the fault of a single row, which is locked or rejected.
func IsRowFault(err error) bool { return IsLocked(err) && !IsTableLocked(err) || IsRowRejected(err) }

// IsRowRejected reports whether err means that the database rejects a row: a constraint does not
// hold, a value does not fit, or a trigger does not allow it.
func IsRowRejected(err error) bool { return has(err, rejected) }

// IsRejected reports whether the server rejected an attempt to connect for a reason
// that waiting will not change, as a wrong password.
func IsRejected(err error) bool { return SQLState(err) != "" && !has(err, transient) }
