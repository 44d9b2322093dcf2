package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // database/sql's driver pgx

	"plantstore/database/dbtest"
)

// pgbench is the name of the contender that is no server.
const pgbench = "pgbench"

// postgres is a PostgreSQL server of the benchmark's own, with the table.
type postgres struct {
	*dbtest.Server
	db *sql.DB
}

// startPostgres starts a server with its data in folder. Its settings are the
// defaults, but for room for connections and for the log of a whole run, so that
// no contender has to bear a checkpoint that another has caused.
func (b *bench) startPostgres(ctx context.Context, folder string) (*postgres, error) {
	server, err := dbtest.StartServerIn(folder, "max_connections=300", "max_wal_size=16GB", "checkpoint_timeout=1h", "shared_buffers=1GB")
	if err != nil {
		return nil, err
	}
	if err := b.migrate(ctx, server.URL); err != nil {
		return nil, errors.Join(err, server.Close())
	}
	db, err := sql.Open("pgx", server.URL)
	if err != nil {
		return nil, errors.Join(err, server.Close())
	}
	return &postgres{server, db}, nil
}

func (p *postgres) close() error { return errors.Join(p.db.Close(), p.Close()) }

// empty leaves the table without rows and without the traces of former ones.
func (p *postgres) empty(ctx context.Context) error {
	_, err := p.db.ExecContext(ctx, "TRUNCATE plants")
	return err
}

// fill puts rows into the empty table.
func (p *postgres) fill(ctx context.Context, rows int) error {
	if _, err := p.db.ExecContext(ctx, `INSERT INTO plants SELECT n, 'Plant ' || n, 'houseplant', now(), now() FROM generate_series(1, $1::int) n`, rows); err != nil {
		return err
	}
	_, err := p.db.ExecContext(ctx, "VACUUM ANALYZE plants")
	return err
}

var (
	pgbenchRate    = regexp.MustCompile(`tps = ([0-9.]+)`)
	pgbenchLatency = regexp.MustCompile(`latency average = ([0-9.]+) ms`)
)

// pgbench inserts a row a transaction. It measures an average latency alone.
func (b *bench) pgbench(ctx context.Context, p *postgres, connections int) (outcome, error) {
	script := filepath.Join(b.folder, "insert.sql")
	const text = `\set n :n + 1
\set id :client_id * 1000000000 + :n
INSERT INTO plants (id, name, tag, created_at, updated_at) VALUES (:id, 'Monstera deliciosa', 'houseplant', now(), now());
`
	if err := os.WriteFile(script, []byte(text), 0o644); err != nil { //nolint:gosec // PostgreSQL's user reads it
		return outcome{}, err
	}
	if err := os.Chmod(b.folder, 0o755); err != nil { //nolint:gosec // likewise
		return outcome{}, err
	}
	cmd := p.Command("pgbench", "-n", "-M", "prepared", "-c", strconv.Itoa(connections), "-j", "2",
		"-T", strconv.Itoa(int((b.duration + warmup).Seconds())), "-D", "n=0", "-f", script, p.URL)
	output, err := cmd.CombinedOutput()
	rate := pgbenchRate.FindSubmatch(output)
	latency := pgbenchLatency.FindSubmatch(output)
	if err != nil || rate == nil || latency == nil {
		return outcome{}, fmt.Errorf("pgbench: %w\n%s", cmp.Or(err, errors.New("no figures")), output)
	}
	tps, _ := strconv.ParseFloat(string(rate[1]), 64)
	average, _ := strconv.ParseFloat(string(latency[1]), 64)
	return outcome{rate: tps, p50: time.Duration(average * float64(time.Millisecond))}, ctx.Err()
}

const warmup = time.Second

// turn is one contender's turn at a load.
func (b *bench) turn(ctx context.Context, name, databaseURL string, connections int, request func([]byte, int64) []byte) (o outcome, err error) {
	s, err := b.start(ctx, name, databaseURL, b.folder)
	if err != nil {
		return outcome{}, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	before, err := s.processor()
	if err != nil {
		return outcome{}, err
	}
	o, err = load{address: s.address, connections: connections, warmup: warmup, duration: b.duration, request: request}.run(ctx)
	if err != nil {
		return outcome{}, fmt.Errorf("%s: %w", name, err)
	}
	if o.failed > 0 {
		return outcome{}, fmt.Errorf("%s: %d requests failed", name, o.failed)
	}
	after, err := s.processor()
	// The warm-up is in it, hence the rate and not the count.
	o.processor = time.Duration(float64(after-before) / (o.rate * (warmup + b.duration).Seconds()))
	_, o.memory, err = s.memory()
	return o, err
}

const (
	plain  = "gin+gorm"
	tuned  = "gin+gorm, tuned"
	direct = "net/http+pgx"
	none   = "no storage"
)

// onPostgres returns turns at an empty table of p.
func (b *bench) onPostgres(p *postgres) func(context.Context, string, int) (outcome, error) {
	return func(ctx context.Context, name string, connections int) (outcome, error) {
		if err := p.empty(ctx); err != nil {
			return outcome{}, err
		}
		if name == pgbench {
			return b.pgbench(ctx, p, connections)
		}
		return b.turn(ctx, name, p.URL, connections, newPlant(sequential))
	}
}

func onRAMDisk(ctx context.Context, b *bench, w io.Writer) (err error) {
	p, err := b.startPostgres(ctx, b.ramDisk)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	c := comparison{
		contenders:  []string{service, plain, tuned, direct, none, pgbench},
		connections: []int{1, 64, 256},
		database:    b.onPostgres(p),
	}
	if err := c.run(ctx, b, w); err != nil {
		return err
	}
	const where = "RAM disk"
	c.rates(b, where, plain, 256, 3.5)
	c.rates(b, where, direct, 256, 1.9)
	c.rates(b, where, none, 256, 0.8)
	c.rates(b, where, direct, 64, 1.5)
	c.rates(b, where, pgbench, 64, 0.9)
	p99 := func(o outcome) time.Duration { return o.p99 }
	c.latency(b, "p99", p99, where, direct, 64, 1)
	c.latency(b, "p99", p99, where, direct, 256, 1)
	c.latency(b, "p50", func(o outcome) time.Duration { return o.p50 }, where, tuned, 1, 1.3)
	return nil
}

func onDisk(ctx context.Context, b *bench, w io.Writer) (err error) {
	p, err := b.startPostgres(ctx, b.disk)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	c := comparison{
		contenders:  []string{service, tuned, direct, pgbench},
		connections: []int{64},
		database:    b.onPostgres(p),
	}
	if err := c.run(ctx, b, w); err != nil {
		return err
	}
	c.rates(b, "real disk", pgbench, 64, 1)
	return nil
}

func onSQLite(ctx context.Context, b *bench, w io.Writer) error {
	for _, medium := range []struct{ name, folder string }{{"RAM disk", b.folder}, {"real disk", b.disk}} {
		fmt.Fprintf(w, "\nOn a %s:\n\n", medium.name)
		c := comparison{
			contenders:  []string{service, plain, tuned},
			connections: []int{1, 64},
			database: func(ctx context.Context, name string, connections int) (_ outcome, err error) {
				folder, err := os.MkdirTemp(medium.folder, "plantstore-bench-sqlite-*")
				if err != nil {
					return outcome{}, err
				}
				defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
				url := "sqlite:" + filepath.Join(folder, "plants.db")
				if err := b.migrate(ctx, url); err != nil {
					return outcome{}, err
				}
				return b.turn(ctx, name, url, connections, newPlant(sequential))
			},
		}
		if err := c.run(ctx, b, w); err != nil {
			return err
		}
		if medium.folder == b.disk { // in memory, the commits that it saves cost next to nothing
			c.rates(b, "SQLite on a "+medium.name, plain, 64, 5)
		}
	}
	return nil
}

// growth inserts into a table that has rows already.
func growth(ctx context.Context, b *bench, w io.Writer) (err error) {
	p, err := b.startPostgres(ctx, b.ramDisk)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	const connections = 64
	orders := []struct {
		name string
		id   func(int64) int64
	}{{"sequential", sequential}, {"random", random}}
	heading(w, "rows before", "ids", "requests/s", "of that at 0 rows", "p50", "p99")
	first := map[string]float64{}
	for _, rows := range []int{0, 1_000_000, 5_000_000} {
		if err := p.empty(ctx); err != nil {
			return err
		}
		if err := p.fill(ctx, rows); err != nil {
			return err
		}
		for _, order := range orders {
			var turns []outcome
			for round := range b.rounds {
				o, err := b.turn(ctx, service, p.URL, connections, newPlant(order.id))
				if err != nil {
					return err
				}
				fmt.Fprintf(os.Stderr, "%d rows, %s ids, round %d: %.0f/s\n", rows, order.name, round+1, o.rate)
				turns = append(turns, o)
				if _, err := p.db.ExecContext(ctx, "DELETE FROM plants WHERE name = 'Monstera deliciosa'"); err != nil {
					return err
				}
				if _, err := p.db.ExecContext(ctx, "VACUUM plants"); err != nil {
					return err
				}
			}
			m := median(turns, func(o outcome) float64 { return o.rate })
			if rows == 0 {
				first[order.name] = m.rate
			}
			row(w, rows, order.name, fmt.Sprintf("%.0f", m.rate), fmt.Sprintf("%.2f ×", m.rate/first[order.name]), m.p50, m.p99)
			if rows == 5_000_000 {
				b.claims = append(b.claims, claim{
					what:   fmt.Sprintf("requests/s at 5 million rows ÷ those at none, %s ids, %d connections", order.name, connections),
					figure: m.rate / first[order.name], limit: 0.8,
				})
			}
		}
	}
	return nil
}

// memory looks at the service every second of a minute's load.
func memory(ctx context.Context, b *bench, w io.Writer) (err error) {
	p, err := b.startPostgres(ctx, b.ramDisk)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	s, err := b.start(ctx, service, p.URL, b.folder)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	idle, _, err := s.memory()
	if err != nil {
		return err
	}
	o, err := load{address: s.address, connections: 256, duration: time.Minute, request: newPlant(sequential)}.run(ctx)
	if err != nil {
		return err
	}
	_, peak, err := s.memory()
	if err != nil {
		return err
	}
	heading(w, "requests/s", "failed", "idle", "peak")
	row(w, fmt.Sprintf("%.0f", o.rate), o.failed, fmt.Sprintf("%.1f MB", float64(idle)/1e6), fmt.Sprintf("%.1f MB", float64(peak)/1e6))
	b.claims = append(b.claims, claim{what: "peak memory at 256 connections for a minute, in MB", figure: float64(peak) / 1e6, limit: 60, atMost: true})
	return nil
}
