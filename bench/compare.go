package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"plantstore/database/dbtest"
)

const (
	turn          = time.Second
	warmup        = time.Second / 2
	defaultRounds = 3
)

// compare gives the contenders alternating turns. Besides an error, it returns the results so far.
// PostgreSQL has its default settings, except for more connections and for enough WAL for a whole
// comparison: no contender pays for a checkpoint of another.
func (b *bench) compare(ctx context.Context, c comparison) (r results, err error) {
	folder := ramDisk
	if c.onDisk {
		folder = os.TempDir()
	}
	var server *dbtest.Server
	if c.engine == postgres {
		server, err = dbtest.StartServerIn(folder, "max_connections=300", "max_wal_size=16GB", "checkpoint_timeout=1h", "shared_buffers=1GB")
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, server.Close()) }()
	} else {
		if folder, err = os.MkdirTemp(folder, "plantstore-bench-sqlite-*"); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	}
	contenders := slices.Clone(c.contenders)
	stores := make(map[string]*store)
	for i, name := range contenders {
		if stores[name], err = b.create(ctx, name, server, folder, fmt.Sprintf("bench%d", i)); err != nil {
			return nil, err
		}
	}
	r = results{}
	for range cmp.Or(b.rounds, c.rounds, defaultRounds) {
		for _, connections := range c.connections {
			for _, op := range c.operations {
				for _, name := range contenders {
					of := op.by(name, connections)
					o, err := b.turn(ctx, name, stores[name], load{operation: op, connections: connections, duration: cmp.Or(c.duration, turn)})
					if err = cmp.Or(err, ctx.Err()); err != nil {
						return r, fmt.Errorf("%s: %v: %w", c.title, of, err)
					}
					fmt.Fprintf(os.Stderr, "%v: %.0f/s, CPU %.1f µs, p99 %.2f ms\n", of, o[rate], o[cpu], o[p99])
					r[of] = append(r[of], o)
				}
			}
		}
		slices.Reverse(contenders)
	}
	return r, nil
}

// turn measures a contender, which starts before and stops after it.
func (b *bench) turn(ctx context.Context, name string, s *store, l load) (o outcome, err error) {
	if err := s.prepare(ctx, l.rows); err != nil {
		return nil, err
	}
	if l.method != "GET" {
		s.rows = unknown
	}
	l.body = cmp.Or(l.body, l.table())
	var env []string
	if l.tls {
		if env, err = b.certificate(ctx); err != nil {
			return nil, err
		}
	}
	running, err := b.start(ctx, name, s.url, env...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, running.stop()) }()
	if name == imports || name == rivalry {
		return drill(ctx, name, running, s, l)
	}
	if l.mix != nil {
		return beside(ctx, name, running, l)
	}
	return l.send(ctx, running)
}

// table returns the rows of an import as CSV, or "".
func (o operation) table() string {
	if o.contentType != csv {
		return ""
	}
	var text strings.Builder
	text.WriteString("id,name,tag\n")
	for n := range int64(o.moves) {
		fmt.Fprintf(&text, "%d,Plant %[1]d,houseplant\n", o.id(n))
	}
	return text.String()
}
