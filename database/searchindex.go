package database

import (
	"context"
	"errors"
	"fmt"
)

// CreateSearchIndexes creates the indexes for a search of plants by tag and, on
// PostgreSQL with the extension pg_trgm, by a part of the name, while the service runs.
// Without them, such a search reads the whole table. They are not part of the schema
// because they slow down every insert.
func (db *DB) CreateSearchIndexes(ctx context.Context) error {
	create, drop := db.dialect.searchIndexes()
	// An interrupted attempt leaves an unusable index.
	return db.execute(ctx, append(drop, create...))
}

// DropSearchIndexes drops these indexes, but not the extension.
func (db *DB) DropSearchIndexes(ctx context.Context) error {
	_, drop := db.dialect.searchIndexes()
	return db.execute(ctx, drop)
}

// execute runs statements on one connection, without a transaction: CREATE INDEX
// CONCURRENTLY does not allow one.
func (db *DB) execute(ctx context.Context, statements []string) (err error) {
	conn, err := db.pool.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	for _, statement := range statements {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}
