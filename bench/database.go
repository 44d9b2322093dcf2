package main

import (
	"context"
	"database/sql"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx of database/sql
	sqlitedriver "github.com/libtnb/sqlite"

	"plantstore/database/dbtest"
)

// engine is a kind of database, with statements that delete all rows, and insert the rows 1 to {rows}. The row n
// was created n seconds after the start of 2026.
type engine struct {
	name, driver string
	empty, fill  []string
}

var (
	postgres = &engine{
		name: "PostgreSQL", driver: "pgx",
		empty: []string{"TRUNCATE plants CASCADE"},
		fill: []string{
			`INSERT INTO plants SELECT n, 'Plant ' || n, 'houseplant', at, at
FROM generate_series(1, {rows}) n, LATERAL (SELECT timestamptz '2026-01-01T00:00:00Z' + n * interval '1 second') AS t(at)`,
			"VACUUM ANALYZE plants",
		},
	}
	sqlite = &engine{
		name: "SQLite", driver: sqlitedriver.DriverName,
		empty: []string{"DELETE FROM plants", "VACUUM"},
		fill: []string{
			`WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {rows})
INSERT INTO plants SELECT n, 'Plant ' || n, 'houseplant', at, at
FROM (SELECT n, datetime(1767225600 + n, 'unixepoch') || '+00:00' AS at FROM numbers)`,
		},
	}
)

// store is the database of a contender.
type store struct {
	*engine
	url    string
	server *dbtest.Server // nil: SQLite
	rows   int            // in the table, with the ids 1 to rows, or unknown
}

const unknown = -1

// create creates a database on the server or, if it is nil, in the folder, and migrates it.
func (b *bench) create(ctx context.Context, contender string, server *dbtest.Server, folder, name string) (*store, error) {
	s := &store{engine: sqlite, url: fmt.Sprintf("sqlite:%s/%s.db", folder, name), rows: unknown}
	if server != nil {
		s = &store{engine: postgres, url: strings.Replace(server.URL, "/postgres?", "/"+name+"?", 1), server: server, rows: unknown}
		if err := execute(server.Command("psql", "-q", "-c", "CREATE DATABASE "+name, server.URL)); err != nil {
			return nil, err
		}
	}
	if contender != b.against {
		contender = service // the baselines have its table
	}
	program, err := b.build(ctx, contender)
	if err != nil {
		return nil, err
	}
	migrate := exec.CommandContext(ctx, program, "migrate", "up")
	migrate.Dir = b.folder
	err = execute(migrate, "DATABASE_URL="+s.url)
	return s, err
}

// prepare fills the table with n rows, unless it has exactly these.
func (s *store) prepare(ctx context.Context, n int) error {
	if s.rows == n {
		return nil
	}
	db, err := sql.Open(s.driver, strings.TrimPrefix(s.url, "sqlite:"))
	if err != nil {
		return err
	}
	defer db.Close() // checkpoints and removes SQLite's WAL
	statements := s.empty
	if n > 0 {
		statements = slices.Concat(s.empty, s.fill)
	}
	for _, statement := range statements {
		if _, err := db.ExecContext(ctx, strings.ReplaceAll(statement, "{rows}", strconv.Itoa(n))); err != nil {
			return err
		}
	}
	s.rows = n
	return nil
}
