package main

import (
	"cmp"
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx of database/sql
	sqlitedriver "github.com/libtnb/sqlite"

	"plantstore/database/dbtest"
)

// engine is a kind of database.
type engine struct {
	name   string
	driver string
	empty  []string // statements that delete all rows and return their space
	fill   []string // statements that insert the rows 1 to {rows} into the empty table
	trim   []string // statements that delete all other rows
}

var (
	postgres = &engine{
		name: "PostgreSQL", driver: "pgx",
		empty: []string{"TRUNCATE plants"},
		fill: []string{
			`INSERT INTO plants SELECT n, 'Plant ' || n, 'houseplant', now(), now() FROM generate_series(1, {rows}) n`,
			"VACUUM ANALYZE plants",
		},
		trim: []string{"DELETE FROM plants WHERE id NOT BETWEEN 1 AND {rows}", "VACUUM plants"},
	}
	sqlite = &engine{
		name: "SQLite", driver: sqlitedriver.DriverName,
		empty: []string{"DELETE FROM plants", "VACUUM"},
		fill: []string{
			`WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {rows})
INSERT INTO plants SELECT n, 'Plant ' || n, 'houseplant', '2026-01-01 00:00:00+00:00', '2026-01-01 00:00:00+00:00' FROM numbers`,
		},
		trim: []string{"DELETE FROM plants WHERE id NOT BETWEEN 1 AND {rows}"},
	}
)

type database struct {
	*engine
	onDisk     bool
	fsync      time.Duration // added to each fsync of PostgreSQL
	migratedBy string        // the program that migrates it, if it is not the service
}

// store is an open database with the table plants.
type store struct {
	*engine
	url    string
	folder string
	server *dbtest.Server // nil: SQLite
	db     *sql.DB
	rows   int  // in the table, with the ids 1 to rows; unknown: -1
	added  bool // there may be rows with other ids
}

// open starts PostgreSQL or creates a SQLite database, and migrates it.
//
// PostgreSQL has its default settings, except for more connections and for enough
// WAL for a whole comparison: no contender pays for a checkpoint of another.
func (b *bench) open(ctx context.Context, d database) (s *store, err error) {
	folder := b.ramDisk
	if d.onDisk {
		folder = b.disk
	}
	s = &store{engine: d.engine, rows: -1}
	b.stores = append(b.stores, s)
	var source string
	if d.engine == postgres {
		s.server, err = dbtest.StartServerIn(folder, "max_connections=300", "max_wal_size=16GB", "checkpoint_timeout=1h", "shared_buffers=1GB")
		if err != nil {
			return nil, err
		}
		s.url, source = s.server.URL, s.server.URL
		if d.fsync > 0 {
			if err := b.slowDown(ctx, s.server, d.fsync); err != nil {
				return nil, err
			}
		}
	} else {
		if s.folder, err = os.MkdirTemp(folder, "plantstore-bench-sqlite-*"); err != nil {
			return nil, err
		}
		s.url, source = "sqlite:"+s.folder+"/plants.db", "file:"+s.folder+"/plants.db?_pragma=busy_timeout(5000)"
	}
	migrator := cmp.Or(d.migratedBy, service)
	cmd := exec.CommandContext(ctx, filepath.Join(b.folder, migrator), "migrate", "up")
	cmd.Dir = b.folder // has no configs/config.yaml
	cmd.Env = []string{"DATABASE_URL=" + s.url}
	if output, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s migrate up: %w\n%s", migrator, err, output)
	}
	if s.db, err = sql.Open(d.driver, source); err != nil {
		return nil, err
	}
	s.db.SetMaxIdleConns(0) // closing the last connection checkpoints and removes SQLite's WAL
	return s, nil
}

//go:embed slowfsync/slowfsync.c
var slowFsync string

// slowDown restarts server with delay added to each fsync.
func (b *bench) slowDown(ctx context.Context, server *dbtest.Server, delay time.Duration) error {
	library := filepath.Join(b.folder, "slowfsync.so")
	cmd := exec.CommandContext(ctx, "gcc", "-shared", "-fPIC", "-O2", "-o", library, "-x", "c", "-")
	cmd.Stdin = strings.NewReader(slowFsync)
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("gcc: %w\n%s", err, output)
	}
	if err := server.Stop(); err != nil {
		return err
	}
	server.Env = []string{"LD_PRELOAD=" + library, fmt.Sprintf("FSYNC_DELAY_MICROSECONDS=%d", delay.Microseconds())}
	return server.Start()
}

// closeStores closes all databases and removes them.
func (b *bench) closeStores() (err error) {
	for _, s := range b.stores {
		if s.db != nil {
			err = errors.Join(err, s.db.Close())
		}
		if s.server != nil {
			err = errors.Join(err, s.server.Close())
		}
		err = errors.Join(err, os.RemoveAll(s.folder)) // of SQLite
	}
	b.stores = nil
	return err
}

// prepare fills the table with n rows, unless it has exactly these.
func (s *store) prepare(ctx context.Context, n int) error {
	statements := slices.Concat(s.empty, s.fill)
	switch {
	case s.rows == n && !s.added:
		return nil
	case n == 0:
		statements = s.empty
	case s.rows == n:
		statements = s.trim
	}
	for _, statement := range statements {
		if _, err := s.db.ExecContext(ctx, strings.ReplaceAll(statement, "{rows}", strconv.Itoa(n))); err != nil {
			return err
		}
	}
	s.rows, s.added = n, false
	return nil
}

// used records that a contender has sent requests with method.
func (s *store) used(method string) {
	switch method {
	case "GET":
	case "POST":
		s.added = true
	default:
		s.rows = -1
	}
}
