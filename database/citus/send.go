package citus

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/stdlib"

	"plantstore/database/fault"
	"plantstore/database/postgres"
	"plantstore/database/table"
)

// send runs batch between BEGIN and COMMIT.
func send(ctx context.Context, conn *pgx.Conn, batch *pgx.Batch) error {
	framed := &pgx.Batch{}
	for _, text := range append([]string{"BEGIN"}, transactionSettings...) {
		framed.Queue(text)
	}
	framed.QueuedQueries = append(framed.QueuedQueries, batch.QueuedQueries...)
	framed.Queue("COMMIT")
	_ = lostNode(conn) // of an earlier statement
	err := conn.SendBatch(ctx, framed).Close()
	if err != nil && !conn.IsClosed() && conn.PgConn().TxStatus() != 'I' {
		_, rollback := conn.Exec(ctx, "ROLLBACK")
		return errors.Join(err, rollback)
	}
	if err != nil {
		return err
	}
	return lostNode(conn)
}

// commit is send for the transaction of do.
func commit(conn *sql.Conn, do func() error) error {
	lost := func(driver any) error { return lostNode(driver.(*stdlib.Conn).Conn()) }
	_ = conn.Raw(lost) // of an earlier statement
	if err := do(); err != nil {
		return err
	}
	return conn.Raw(lost)
}

// copyNew copies the rows of g, if no key is taken and no row is locked.
func copyNew(ctx context.Context, pool *sql.DB, g *table.Group) (copied bool, err error) {
	err = postgres.WithConn(ctx, pool, func(ctx context.Context, conn *pgx.Conn) error {
		data, err := copyText(conn.TypeMap(), g.Table.Columns, g.Changes)
		if err != nil {
			return err
		}
		// All in one message, as each round trip holds up the next batch. In a DO, each setting is
		// a statement of its own.
		text := fmt.Sprintf("BEGIN; DO $$ BEGIN %s; END $$; COPY %s (%s) FROM STDIN; COMMIT",
			strings.Join(transactionSettings, "; "), g.Table.Name, table.Names(g.Table.Columns))
		_ = lostNode(conn) // of an earlier statement
		_, err = conn.PgConn().CopyFrom(ctx, bytes.NewReader(data), text)
		switch {
		case err == nil:
			copied = true
			for _, c := range g.Changes {
				c.Stored = c.Row
			}
			return lostNode(conn)
		case conn.IsClosed() || conn.PgConn().TxStatus() == 'I': // nothing to roll back: the COMMIT failed, or the connection is lost
			return err
		}
		if _, rollback := conn.Exec(ctx, "ROLLBACK"); rollback != nil {
			return errors.Join(err, rollback)
		}
		if fault.SQLState(err) == fault.InternalError || fault.IsRowFault(err) {
			return nil // an INSERT tells which row it is, or that a node is down
		}
		return err
	})
	return copied && err == nil, err
}

// copyText returns the rows of changes in the text format of COPY.
func copyText(types *pgtype.Map, columns []*table.Column, changes []*table.Change) (text []byte, err error) {
	buffer := make([]byte, 0, 1024) // not nil, which Encode returns for NULL
	for _, change := range changes {
		for i, c := range columns {
			if i > 0 {
				text = append(text, '\t')
			}
			value, err := types.Encode(0, pgtype.TextFormatCode, c.Of(change.Row).Interface(), buffer)
			switch {
			case err != nil:
				return nil, err
			case value == nil:
				text = append(text, `\N`...)
			default:
				text = append(text, copyEscapes.Replace(string(value))...)
			}
		}
		text = append(text, '\n')
	}
	return text, nil
}

// copyEscapes escapes the characters that COPY would not take for themselves in its text format.
var copyEscapes = strings.NewReplacer(`\`, `\\`, "\t", `\t`, "\n", `\n`, "\r", `\r`)

// lostNode returns the warning of a node that failed when all nodes had agreed to commit, or nil. It forgets the warning.
func lostNode(conn *pgx.Conn) error {
	w, ok := conn.PgConn().CustomData()[warning].(*pgconn.PgError)
	if delete(conn.PgConn().CustomData(), warning); ok {
		return w // the rows will appear, but may not have yet
	}
	return nil
}
