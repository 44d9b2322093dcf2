package database

import (
	"context"
	"errors"
	"fmt"
)

// CreateSearchIndexes makes the indexes by which plants are found by their tag
// and, on PostgreSQL with the extension pg_trgm, by a part of their name, while
// the service goes on. Without them, such a search reads the table. They are not
// part of the schema because they make every insert dearer.
func (db *DB) CreateSearchIndexes(ctx context.Context) error {
	create, drop := db.dialect.searchIndexes()
	// What an attempt that was broken off has left is not a usable index.
	return db.execute(ctx, append(drop, create...))
}

// DropSearchIndexes removes what CreateSearchIndexes has made, but the extension.
func (db *DB) DropSearchIndexes(ctx context.Context) error {
	_, drop := db.dialect.searchIndexes()
	return db.execute(ctx, drop)
}

// execute runs statements on one connection, but each on its own: PostgreSQL makes
// no index concurrently within a transaction.
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
