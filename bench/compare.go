package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

const defaultRounds = 3

// compare gives the contenders alternating turns. Their order changes with each round. Besides an
// error, it returns the results so far.
func (b *bench) compare(ctx context.Context, c comparison) (results, error) {
	stores, err := b.open(ctx, c)
	if err != nil {
		return nil, err
	}
	r, begin := results{}, time.Now()
	rounds := cmp.Or(b.rounds, c.rounds, defaultRounds)
	for round := range rounds {
		if took := time.Since(begin); c.limit > 0 && round > 0 && took+took/time.Duration(round) > c.limit {
			b.note("Only %d of %d rounds fit into %v.", round, rounds, c.limit)
			break
		}
		for _, connections := range c.connections {
			for _, op := range c.operations {
				contenders := slices.DeleteFunc(slices.Clone(c.contenders), func(name string) bool { return !b.runs(name, op, c.database.engine) })
				if round%2 == 1 {
					slices.Reverse(contenders)
				}
				if err := b.alternate(ctx, c, op, connections, contenders, stores, r); err != nil {
					return r, fmt.Errorf("%s: %w", op.name, err)
				}
			}
		}
	}
	return r, nil
}

// runs reports whether the contender takes part in an operation on a kind of database.
func (b *bench) runs(contender string, op operation, e *engine) bool {
	return selected(b.contenders, contender) && (op.contenders == nil || slices.Contains(op.contenders, contender)) &&
		(contender != pgbench || op.pgbench != "") && (!isTool(contender) || e == postgres)
}

// isTool reports whether the contender is a program of PostgreSQL instead of a server.
func isTool(contender string) bool { return contender == pgbench || contender == psql }

// alternate gives each of the contenders its turns of op in a round, and adds the outcomes to r. A
// contender starts before its first turn, which has a warm-up, and stops after its last turn.
func (b *bench) alternate(ctx context.Context, c comparison, op operation, connections int, contenders []string, stores map[string]*store, r results) (err error) {
	running := map[string]*server{}
	defer func() {
		for _, s := range running {
			err = errors.Join(err, s.stop())
		}
	}()
	l := load{operation: op, connections: connections, duration: cmp.Or(c.duration, b.duration)}
	l.body = cmp.Or(op.body, op.table())
	turns := max(1, c.turns)
	for turn := range turns {
		for _, name := range contenders {
			s := stores[name]
			l.warmup = 0
			if turn == 0 {
				l.warmup = warmup
				if err := s.prepare(ctx, op.rows); err != nil {
					return err
				}
				if !isTool(name) {
					if running[name], err = b.start(ctx, name, s.url); err != nil {
						delete(running, name)
						return err
					}
				}
			}
			o, err := b.measure(ctx, name, running[name], s, l)
			if missing, ok := errors.AsType[statusError](err); ok && name == b.against && (missing == 404 || missing == 405) {
				b.note("%s has no %s: it responds with %d.", name, op.name, int(missing))
				return nil
			}
			if err = cmp.Or(err, ctx.Err()); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			s.used(op.method)
			l.first += 1 << 20 // an id is created once
			fmt.Fprintf(os.Stderr, "%s, %s, %d connections: %.0f/s, CPU %.1f µs, p99 %.2f ms\n", op.name, name, connections, o[rate], o[cpu], o[p99])
			r[op.by(name, connections)] = append(r[op.by(name, connections)], o)
			if turn == turns-1 && running[name] != nil {
				err = running[name].stop()
				delete(running, name)
			}
			if err != nil {
				return err
			}
		}
		slices.Reverse(contenders)
	}
	return nil
}

// measure gives a contender, which is running unless it is a tool, a turn.
func (b *bench) measure(ctx context.Context, name string, running *server, s *store, l load) (outcome, error) {
	switch {
	case isTool(name):
		return s.tool(name, l)
	case name == imports || name == rivalry:
		return b.drill(ctx, name, running, s, l)
	case slices.Contains(baselines, name):
		l.path = cmp.Or(l.baselinePath, l.path)
	}
	return l.send(ctx, running)
}

// tool measures pgbench, or an import with psql, without the feed.
func (s *store) tool(name string, l load) (outcome, error) {
	seconds := max(2, int((l.warmup + l.duration).Seconds())) // including the time to connect
	cmd := s.server.Command("pgbench", "-n", "-M", "prepared", "-c", strconv.Itoa(l.connections), "-j", "2",
		"-T", strconv.Itoa(seconds), "-D", "n=0", "-f", "-", s.url)
	cmd.Stdin = strings.NewReader(l.pgbench)
	if name == psql {
		cmd = s.server.Command("psql", "-q",
			"-c", "ALTER TABLE plants ALTER created_at SET DEFAULT now(), ALTER updated_at SET DEFAULT now(), ALTER changed SET DEFAULT 0",
			"-c", `\copy plants(id, name, tag) FROM pstdin CSV HEADER`, s.url)
		l.contentType = csv
		cmd.Stdin = strings.NewReader(l.table())
	}
	begin := time.Now()
	text, err := output(cmd)
	perSecond := cmp.Or(number(text, `tps = ([0-9.]+)`), 1/time.Since(begin).Seconds())
	return outcome{rate: perSecond, rows: perSecond * float64(l.moves), mean: number(text, `latency average = ([0-9.]+) ms`)}, err
}

// table returns the body of an import, which has the rows that prepare inserts unless o has other
// ids, or "".
func (o operation) table() string {
	if o.moves == 0 || o.method != http.MethodPost {
		return ""
	}
	var text strings.Builder
	row := `{"id":%d,"name":"Plant %[1]d","tag":"houseplant"}` + "\n"
	if o.contentType == csv {
		text.WriteString("id,name,tag\n")
		row = "%d,Plant %[1]d,houseplant\n"
	}
	for n := range int64(o.moves) {
		fmt.Fprintf(&text, row, o.id(n))
	}
	return text.String()
}
