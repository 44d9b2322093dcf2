package database

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

func TestNodeError(t *testing.T) {
	for _, test := range []struct {
		name, severity, code string
		want                 bool
	}{
		{"a lost node", "ERROR", internalError, true},
		{"no connection to a node", "ERROR", "08006", true},
		{"a node that shuts down", "ERROR", "57P01", true},
		{"the server itself shuts down", "FATAL", "57P01", false},
		{"a taken key", "ERROR", "23505", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := asNodeError(&pgconn.PgError{SeverityUnlocalized: test.severity, Code: test.code})
			if isNodeError(err) != test.want {
				t.Errorf("got %v", err)
			}
			if test.want && !errors.Is(Failed("write", err), ErrUnavailable) {
				t.Errorf("got %v, want ErrUnavailable", Failed("write", err))
			}
		})
	}
}

// TestCommittedWithoutANode: what is committed is not written again.
func TestCommittedWithoutANode(t *testing.T) {
	for severity, want := range map[string]bool{"WARNING": true, "ERROR": false} {
		t.Run(severity, func(t *testing.T) {
			err := error(&nodeError{&pgconn.PgError{SeverityUnlocalized: severity, Code: "08006"}})
			if !isNodeError(err) || isCommitted(err) != want {
				t.Errorf("got %v, want %v", isCommitted(err), want)
			}
		})
	}
}

// TestAfterIsImmutable: Citus rejects STABLE functions of a column in an UPDATE.
func TestAfterIsImmutable(t *testing.T) {
	const want = "GREATEST(CAST(v AS timestamptz), (c AT TIME ZONE 'UTC' + interval '1 microsecond') AT TIME ZONE 'UTC')"
	if got := (&postgresDialect{}).after("c", "v"); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
