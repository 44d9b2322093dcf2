package fault_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"plantstore/database/fault"
)

func TestIsUnavailable(t *testing.T) {
	for _, test := range []struct {
		name string
		err  error
		want bool
	}{
		{"no error", nil, false},
		{"an unknown error", errors.New("x"), false},
		{"no rows", sql.ErrNoRows, false},
		{"a missed deadline", context.DeadlineExceeded, true},
		{"a canceled context", fmt.Errorf("x: %w", context.Canceled), true},
		{"a broken connection", driver.ErrBadConn, true},
		{"a network error", &net.OpError{Op: "dial", Err: errors.New("refused")}, true},
		{"a full disk of the service itself", &fs.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC}, false},
		{"a transaction that has ended", sql.ErrTxDone, true},
		{"unique_violation", &pgconn.PgError{Code: "23505"}, false},
		{"check_violation", &pgconn.PgError{Code: "23514"}, false},
		{"syntax_error", &pgconn.PgError{Code: "42601"}, false},
		{"undefined_table", &pgconn.PgError{Code: "42P01"}, true},
		{"insufficient_privilege", &pgconn.PgError{Code: "42501"}, true},
		{"admin_shutdown", &pgconn.PgError{Code: "57P01"}, true},
		{"too_many_connections", &pgconn.PgError{Code: "53300"}, true},
		{"connection_failure", &pgconn.PgError{Code: "08006"}, true},
		{"read_only_sql_transaction", &pgconn.PgError{Code: "25006"}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := fault.IsUnavailable(test.err); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
			if got := errors.Is(fault.In("write", test.err), fault.ErrUnavailable); got != test.want {
				t.Errorf("In marks it: got %v, want %v", got, test.want)
			}
		})
	}
}

// TestInNamesAFaultOnce: the text names a lasting fault, also if the error is the fault itself.
func TestInNamesAFaultOnce(t *testing.T) {
	full := &fault.NotWritableError{Reason: "its disk is full"}
	for name, err := range map[string]error{"the fault itself": full, "an error that means it": &pgconn.PgError{Code: "53100"}} {
		t.Run(name, func(t *testing.T) {
			got := fault.In("insert", err)
			if n := strings.Count(got.Error(), full.Error()); n != 1 || !errors.Is(got, fault.ErrUnavailable) {
				t.Errorf("got %v, want an unavailable database whose disk is full, once", got)
			}
		})
	}
}
