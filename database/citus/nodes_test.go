package citus

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"plantstore/database/fault"
	"plantstore/database/table"
)

func TestNodeError(t *testing.T) {
	for _, test := range []struct {
		name, severity, code string
		want                 bool
	}{
		{"a lost node", "ERROR", fault.InternalError, true},
		{"no connection to a node", "ERROR", "08006", true},
		{"a node that shuts down", "ERROR", "57P01", true},
		{"the server itself shuts down", "FATAL", "57P01", false},
		{"a taken key", "ERROR", "23505", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := &pgconn.PgError{SeverityUnlocalized: test.severity, Code: test.code}
			if isNodeError(err) != test.want {
				t.Errorf("got %v", err)
			}
			if test.want && !errors.Is(fault.In("write", err), fault.ErrUnavailable) {
				t.Errorf("got %v, want ErrUnavailable", fault.In("write", err))
			}
		})
	}
}

// TestCommittedWithoutANode: what is committed is not written again.
func TestCommittedWithoutANode(t *testing.T) {
	for severity, want := range map[string]bool{"WARNING": true, "ERROR": false} {
		t.Run(severity, func(t *testing.T) {
			err := &pgconn.PgError{SeverityUnlocalized: severity, Code: "08006"}
			if !isNodeError(err) || isCommitted(err) != want {
				t.Errorf("got %v, want %v", isCommitted(err), want)
			}
		})
	}
}

func TestCopyText(t *testing.T) {
	type jar struct {
		ID     int64 `gorm:"primaryKey;autoIncrement:false"`
		Text   string
		Note   *string
		Lid    string
		Seal   []byte
		IsFull bool
		At     time.Time
	}
	at := time.Date(2026, 11, 25, 14, 0, 0, 123_000, time.UTC)
	for name, test := range map[string]struct {
		row  jar
		want string
	}{
		"plain values":                {jar{-7, "Grüße", new("n"), "l", []byte{0xFF, '\\'}, true, at}, "-7\tGrüße\tn\tl\t" + `\\xff5c` + "\tt\t2026-11-25 14:00:00.000123Z\n"},
		"what is absent":              {jar{At: at}, "0\t\t" + `\N` + "\t\t" + `\N` + "\tf\t2026-11-25 14:00:00.000123Z\n"},
		"what the format uses itself": {jar{0, "a\tb\nc\rd", new(`\N`), "", []byte{}, false, at}, `0	a\tb\nc\rd	\\N		\\x	f	2026-11-25 14:00:00.000123Z` + "\n"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := copyText(pgtype.NewMap(), table.Of[jar]().Columns, []*table.Change{{Row: reflect.ValueOf(&test.row).Elem()}})
			if err != nil || string(got) != test.want {
				t.Errorf("got %q and %v, want %q", got, err, test.want)
			}
		})
	}
}
