package models

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"sync"
	"time"

	"plantstore/database/background"
	"plantstore/database/table"
)

// An export passes on rows as the database returns them for snapshotTime. Then, as soon as
// its client is slower than the database, it reads the rest into a temporary file: on
// SQLite, the WAL grows for as long as a snapshot lasts.
const (
	snapshotTime = 5 * time.Second
	exportChunk  = 100
	exportAhead  = 10 // chunks that are read before the client wants them
)

// Export calls yield for the rows that f selects, some at a time, by ascending key, from one snapshot:
// later writes are not seen. There is no limit, and the timestamps of the rows are not
// set, except their versions if f wants them. It ends with the first error of yield, with limit.ErrShare at the limit of
// running imports and exports, in all or of ctx's client, and with the errors that all
// methods share.
func (s *Store[T, K]) Export(ctx context.Context, f Filter[K], yield func([]T) error) (err error) {
	begun := false
	return s.read(ctx, func(r *reader[T, K]) error {
		if begun { // by a standby
			return err
		}
		err = r.export(ctx, f, func(rows []T) error {
			begun = true
			return yield(rows)
		})
		return err
	})
}

func (r *reader[T, K]) export(ctx context.Context, f Filter[K], yield func([]T) error) error {
	return r.db.Limits.Transfers.Do(ctx, func() error {
		ctx, cancel := context.WithCancel(ctx)
		chunks := make(chan []T, exportAhead)
		columns := r.table.Data
		if f.Versions {
			columns = r.table.Columns
		}
		rest := newSpool[T, K](ctx, r.db, columns) // of the rows after the last chunk
		var readErr error                          // set once chunks is closed
		var reading sync.WaitGroup
		reading.Go(func() {
			defer close(chunks)
			readErr = r.db.ReadBulk(ctx, "export "+r.table.Name, func() error {
				return r.readAll(ctx, f, chunks, rest)
			})
		})
		defer func() {
			cancel()
			reading.Wait()
			rest.close()
		}()
		for chunk := range chunks {
			if err := yield(chunk); err != nil {
				return err
			}
		}
		if err := cmp.Or(readErr, rest.flush()); err != nil {
			return err
		}
		chunk := make([]T, 0, exportChunk)
		for read := rest.read(); ; {
			next, err := read()
			if err == nil && next != nil {
				chunk = append(chunk, next.Row)
			}
			if err == nil && (next == nil || len(chunk) == exportChunk) {
				err = yield(chunk)
				chunk = chunk[:0]
			}
			if err != nil || next == nil {
				return err
			}
		}
	})
}

// readAll sends the rows that f selects to out, a chunk at a time. Once the receiver has to
// be waited for after snapshotTime, it writes the other rows to rest.
func (r *reader[T, K]) readAll(ctx context.Context, f Filter[K], out chan<- []T, rest *spool[T, K]) (err error) {
	defer background.Recover("an export", &err)
	var rows *sql.Rows
	err = r.db.Retry(ctx, func() error {
		tx, order := r.filter(r.db.Reads(ctx), f)
		rows, err = tx.Model(new(T)).Select(table.Names(rest.columns)).Order(order).Rows() //nolint:sqlclosecheck // below
		return err
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	late, isLate := time.After(snapshotTime), false
	send := func(chunk []T) error {
		if !isLate {
			select {
			case out <- chunk:
				return nil
			default:
			}
			select {
			case out <- chunk:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-late:
				isLate = true
			}
		}
		for i := range chunk {
			if err := rest.write(&ImportRow[T]{Row: chunk[i]}); err != nil {
				return err
			}
		}
		return nil
	}
	var targets []any
	chunk, begin := make([]T, 0, exportChunk), time.Now()
	for rows.Next() {
		if len(chunk) == exportChunk {
			r.db.Limits.Work.Charge(ctx, time.Since(begin))
			if err := send(chunk); err != nil {
				return err
			}
			chunk = make([]T, 0, exportChunk) // the receiver has the other
			begin = time.Now()
		}
		chunk = chunk[:len(chunk)+1]
		targets = table.AppendPointers(targets[:0], rest.columns, valueOf(&chunk[len(chunk)-1]))
		if err := rows.Scan(targets...); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	return send(chunk)
}
