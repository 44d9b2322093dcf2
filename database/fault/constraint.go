package fault

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// CheckError means that a row breaks a rule that concerns no other row.
type CheckError struct {
	Constraint string // the name of a CHECK, or its text if it has no name; or what the rule is
	error
}

func (e *CheckError) Unwrap() error { return e.error }

// UniqueError means that another row has a value that must be unique.
type UniqueError struct {
	Columns string // of the value, or the name of their index
	Cause   error
}

func (e *UniqueError) Unwrap() error { return e.Cause }

func (e *UniqueError) Error() string {
	return e.Columns + " must be unique, and another row has the same value"
}

// ReferenceError means that a row refers to a row that does not exist or, if Deleted is set, that rows
// refer to a row that would be deleted.
type ReferenceError struct {
	Table, Column string // that refer to the row; or empty if the database does not tell
	Row           string // that does not exist, or would be deleted, as in "supplier 1"; or empty
	Deleted       bool
	Cause         error
}

func (e *ReferenceError) Unwrap() error { return e.Cause }

func (e *ReferenceError) Error() string {
	switch {
	case e.Deleted:
		return cmp.Or(e.Row, "the row") + " still has " + cmp.Or(e.Table, "rows that refer to it")
	case e.Column == "":
		return "the row refers to a row that does not exist, or rows refer to it"
	case e.Row == "":
		return e.Column + " refers to a row that does not exist"
	}
	return e.Column + ": there is no " + e.Row
}

var (
	// keyOf matches the columns in the detail of an error, as in "Key (supplier_id)=(99) is not present", in
	// any language.
	keyOf = regexp.MustCompile(`\(([^()]+)\)=\(`)
	// brokenBy matches the kind and the columns of a constraint in an error of SQLite.
	brokenBy = regexp.MustCompile(`(\S+) constraint failed(?:: (.*))? \(\d+\)$`)
	// tableOf matches the table before the name of a column.
	tableOf = regexp.MustCompile(`\w+\.`)
)

// Constraint returns err as a *CheckError, *UniqueError or *ReferenceError if it means that a row breaks a constraint, or
// has a value that does not fit its column, and otherwise nil.
func Constraint(err error) error {
	if _, is := errors.AsType[*ReferenceError](err); is {
		return err
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		columns := ""
		if found := keyOf.FindStringSubmatch(pg.Detail); found != nil {
			columns = found[1]
		}
		switch {
		case pg.Code == "23503", pg.Code == "23001": // foreign_key_violation, restrict_violation
			deleted := strings.Contains(pg.Detail, "still referenced") // if the server's messages are in English
			return &ReferenceError{Table: pg.TableName, Column: columns, Deleted: deleted, Cause: err}
		case pg.Code == "23505": // unique_violation
			return &UniqueError{cmp.Or(columns, pg.ConstraintName), err}
		case pg.Code == "23514", pg.Code == "23P01": // check_violation, exclusion_violation
			return &CheckError{pg.ConstraintName, err}
		case strings.HasPrefix(pg.Code, "22"), pg.Code == tooLarge: // data_exception
			return &CheckError{fmt.Sprintf("that a value fits its column (SQLSTATE %s)", pg.Code), err}
		}
	}
	if lite, ok := errors.AsType[*sqlite.Error](err); ok && SQLiteCode(err) == sqlite3.SQLITE_CONSTRAINT {
		broken := brokenBy.FindStringSubmatch(lite.Error())
		switch {
		case lite.Code() == sqlite3.SQLITE_CONSTRAINT_DATATYPE:
			return &CheckError{"that a value fits its column", err}
		case broken == nil: // by a trigger
		case broken[1] == "KEY": // FOREIGN KEY
			return &ReferenceError{Cause: err}
		case broken[1] == "UNIQUE":
			return &UniqueError{tableOf.ReplaceAllString(broken[2], ""), err}
		case broken[1] == "NULL": // NOT NULL: the table does not fit the model, which is no fault of a client
		default:
			return &CheckError{broken[2], err}
		}
	}
	return nil
}
