package main

import (
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

// engine is a kind of database. Its statements delete all rows and return their space; insert the rows
// 1 to {rows} into the empty table; and delete all other rows.
type engine struct {
	name, driver      string
	empty, fill, trim []string
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
	onDisk bool
	fsync  time.Duration // added to each fsync of PostgreSQL
	own    bool          // each contender has a database of its own, which it has migrated
}

// store is an open database with the table plants.
type store struct {
	*engine
	url    string
	server *dbtest.Server // nil: SQLite
	db     *sql.DB
	rows   int  // in the table, with the ids 1 to rows; unknown: -1
	added  bool // there may be rows with other ids
}

// open creates and migrates the databases of c, on a PostgreSQL server if they need one, and returns
// them by contender.
//
// PostgreSQL has its default settings, except for more connections and for enough
// WAL for a whole comparison: no contender pays for a checkpoint of another.
func (b *bench) open(ctx context.Context, c comparison) (_ map[string]*store, err error) {
	folder := b.ramDisk
	if c.database.onDisk {
		folder = b.disk
	}
	var server *dbtest.Server
	if c.database.engine == postgres {
		server, err = dbtest.StartServerIn(folder, "max_connections=300", "max_wal_size=16GB", "checkpoint_timeout=1h", "shared_buffers=1GB")
		if err != nil {
			return nil, err
		}
		b.closers = append(b.closers, server.Close)
		err = b.slowDown(ctx, server, c.database.fsync)
	} else if folder, err = os.MkdirTemp(folder, "plantstore-bench-sqlite-*"); err == nil {
		b.closers = append(b.closers, func() error { return os.RemoveAll(folder) })
	}
	if err != nil {
		return nil, err
	}
	stores := make(map[string]*store)
	for i, name := range c.contenders {
		if i > 0 && !c.database.own {
			stores[name] = stores[c.contenders[0]]
			continue
		}
		s := &store{engine: c.database.engine, server: server, rows: -1}
		file := fmt.Sprintf("%s/bench%d.db", folder, i)
		source := "file:" + file + "?_pragma=busy_timeout(5000)"
		s.url = "sqlite:" + file
		if server != nil {
			source = strings.Replace(server.URL, "/postgres?", fmt.Sprintf("/bench%d?", i), 1)
			s.url = source
			if _, err := output(server.Command("psql", "-q", "-c", fmt.Sprintf("CREATE DATABASE bench%d", i), server.URL)); err != nil {
				return nil, err
			}
		}
		migrate := b.command(ctx, name)
		if slices.Contains(baselines, name) {
			migrate = b.command(ctx, service)
		}
		migrate.Args = append(migrate.Args, "migrate", "up")
		if _, err = output(migrate, "DATABASE_URL="+s.url); err != nil {
			return nil, err
		}
		if s.db, err = sql.Open(s.driver, source); err != nil {
			return nil, err
		}
		b.closers = append(b.closers, s.db.Close)
		s.db.SetMaxIdleConns(0) // closing the last connection checkpoints and removes SQLite's WAL
		stores[name] = s
	}
	return stores, nil
}

//go:embed slowfsync/slowfsync.c
var slowFsync string

// slowDown restarts server with delay, if any, added to each fsync.
func (b *bench) slowDown(ctx context.Context, server *dbtest.Server, delay time.Duration) error {
	if delay == 0 {
		return nil
	}
	library := filepath.Join(b.folder, "slowfsync.so")
	compile := exec.CommandContext(ctx, "gcc", "-shared", "-fPIC", "-O2", "-o", library, "-x", "c", "-")
	compile.Stdin = strings.NewReader(slowFsync)
	if _, err := output(compile); err != nil {
		return err
	}
	server.Env = []string{"LD_PRELOAD=" + library, fmt.Sprintf("FSYNC_DELAY_MICROSECONDS=%d", delay.Microseconds())}
	if err := server.Stop(); err != nil {
		return err
	}
	return server.Start()
}

// close closes all databases and removes them.
func (b *bench) close() (err error) {
	for _, close := range slices.Backward(b.closers) {
		err = errors.Join(err, close())
	}
	b.closers = nil
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
