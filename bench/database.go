package main

import (
	"context"
	"crypto/rand"
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

// open starts PostgreSQL, creates and migrates the databases of c, and returns them by contender.
//
// PostgreSQL has its default settings, except for more connections and for enough
// WAL for a whole comparison: no contender pays for a checkpoint of another.
func (b *bench) open(ctx context.Context, c comparison) (map[string]*store, error) {
	folder := b.ramDisk
	if c.database.onDisk {
		folder = b.disk
	}
	var server *dbtest.Server
	if c.database.engine == postgres {
		var err error
		if server, err = dbtest.StartServerIn(folder, "max_connections=300", "max_wal_size=16GB", "checkpoint_timeout=1h", "shared_buffers=1GB"); err != nil {
			return nil, err
		}
		b.closers = append(b.closers, server.Close)
		if c.database.fsync > 0 {
			if err := b.slowDown(ctx, server, c.database.fsync); err != nil {
				return nil, err
			}
		}
	}
	stores := make(map[string]*store)
	for i, name := range c.contenders {
		if i > 0 && !c.database.own {
			stores[name] = stores[c.contenders[0]]
			continue
		}
		migrator := service
		if c.database.own {
			migrator = name
		}
		s, err := b.create(ctx, c.database.engine, server, folder, migrator)
		if err != nil {
			return nil, fmt.Errorf("create a database for %s: %w", name, err)
		}
		stores[name] = s
	}
	return stores, nil
}

// create creates a database, on server or as a file in folder, which migrator migrates.
func (b *bench) create(ctx context.Context, e *engine, server *dbtest.Server, folder, migrator string) (s *store, err error) {
	s = &store{engine: e, server: server, rows: -1}
	var source string
	if server != nil {
		name := "bench_" + strings.ToLower(rand.Text())
		if err := output(server.Command("psql", "-q", "-c", "CREATE DATABASE "+name, server.URL)); err != nil {
			return nil, err
		}
		s.url = strings.Replace(server.URL, "/postgres?", "/"+name+"?", 1)
		source = s.url
	} else {
		if folder, err = os.MkdirTemp(folder, "plantstore-bench-sqlite-*"); err != nil {
			return nil, err
		}
		b.closers = append(b.closers, func() error { return os.RemoveAll(folder) })
		s.url, source = "sqlite:"+folder+"/plants.db", "file:"+folder+"/plants.db?_pragma=busy_timeout(5000)"
	}
	migrate := b.command(ctx, migrator)
	migrate.Args = append(migrate.Args[:1], "migrate", "up")
	if err := output(migrate, "DATABASE_URL="+s.url); err != nil {
		return nil, err
	}
	if s.db, err = sql.Open(e.driver, source); err != nil {
		return nil, err
	}
	b.closers = append(b.closers, s.db.Close)
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
	if err := output(cmd); err != nil {
		return err
	}
	if err := server.Stop(); err != nil {
		return err
	}
	server.Env = []string{"LD_PRELOAD=" + library, fmt.Sprintf("FSYNC_DELAY_MICROSECONDS=%d", delay.Microseconds())}
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
