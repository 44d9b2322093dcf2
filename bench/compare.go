package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The figures of an outcome.
const (
	rate  = iota
	ratio // of the service's rate to this one
	mean
	p50
	p99
	p999
	cpu
	idle
	peak
	growth
	rows
	figures
)

// outcome holds the figures of a turn, or their medians. A figure that was not
// measured is 0.
type outcome [figures]float64

// units describes the figures.
var units = [figures]struct{ name, format string }{
	rate:   {"requests/s", "%.0f"},
	ratio:  {"ratio", "%.2f ×"},
	mean:   {"mean", "%.2f ms"},
	p50:    {"p50", "%.2f ms"},
	p99:    {"p99", "%.2f ms"},
	p999:   {"p99.9", "%.2f ms"},
	cpu:    {"CPU per request", "%.1f µs"},
	idle:   {"idle memory", "%.0f MB"},
	peak:   {"peak memory in MB", "%.0f MB"},
	growth: {"growth of memory in MB", "%.1f MB"},
	rows:   {"rows/s", "%.0f"},
}

// cell identifies the results of a contender in a comparison.
type cell struct {
	operation, contender string
	connections          int
}

// results holds the outcomes of each cell, in the order of the rounds.
type results map[cell][]outcome

func (r results) median(of cell) (m outcome) {
	for i := range m {
		values := make([]float64, len(r[of]))
		for j, o := range r[of] {
			values[j] = o[i]
		}
		m[i] = median(values)
	}
	return m
}

// ratio returns the median of the ratios within each round, as its turns had the
// machine in the same state. It returns 0 if one of the cells was not measured.
func (r results) ratio(figure int, of, to cell) float64 {
	ratios := make([]float64, min(len(r[of]), len(r[to])))
	for i := range ratios {
		ratios[i] = r[of][i][figure] / r[to][i][figure]
	}
	return median(ratios)
}

// median returns the middle one of values, or 0.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// claim is a limit for a figure of a cell, or, unless to is zero, for the ratio
// of the figures of two cells.
type claim struct {
	figure int
	of, to cell
	sign   string // "≥" or "≤"
	limit  float64
}

// check writes a row for each claim of c with measured cells.
func (r results) check(c comparison, w io.Writer) {
	for _, claim := range c.claims {
		of, to := claim.of, claim.to
		measured := r.ratio(claim.figure, of, to)
		text := units[claim.figure].name + ", " + of.operation
		switch to.operation {
		case "":
			for _, o := range r[of] {
				measured = max(measured, o[claim.figure])
			}
		case of.operation:
			text += " ÷ that of " + to.contender
		default:
			text += " ÷ " + to.operation
		}
		if measured == 0 {
			continue
		}
		if of.connections > 0 {
			text += fmt.Sprintf(", %d connections", of.connections)
		}
		verdict := "**missed**"
		if claim.sign == "≥" && measured >= claim.limit || claim.sign == "≤" && measured <= claim.limit {
			verdict = "reached"
		}
		row(w, c.title, text, fmt.Sprintf("%.2f", measured), fmt.Sprintf("%s %g", claim.sign, claim.limit), verdict)
	}
}

// slower writes a row for each cell of c in which the service is slower than a baseline
// that a team would write.
func (r results) slower(c comparison, w io.Writer) {
	for _, o := range c.operations {
		figures := []int{rate}
		if o.arrivals > 0 {
			figures = []int{p50, p99} // the rates are equal
		}
		for _, connections := range c.connections {
			for _, name := range []string{plain, tuned, direct} {
				for _, figure := range figures {
					measured := r.ratio(figure, o.by(service, connections), o.by(name, connections))
					if measured > 0 && (measured < 1) == (figure == rate) {
						row(w, c.title, o.name, connections, name, units[figure].name, fmt.Sprintf("%.2f ×", measured))
					}
				}
			}
		}
	}
}

const defaultRounds = 3

// compare gives the contenders alternating turns. Their order changes with each round.
func (b *bench) compare(ctx context.Context, c comparison) (results, error) {
	stores, err := b.open(ctx, c)
	if err != nil {
		return nil, err
	}
	r, begin := results{}, time.Now()
	rounds := cmp.Or(b.rounds, c.rounds, defaultRounds)
	for round := range rounds {
		if took := time.Since(begin); c.limit > 0 && round > 0 && took/time.Duration(round)*time.Duration(round+1) > c.limit {
			b.note("Only %d of %d rounds fit into %v.", round, rounds, c.limit)
			break
		}
		for _, connections := range c.connections {
			for _, op := range c.operations {
				contenders := slices.DeleteFunc(slices.Clone(c.contenders), func(name string) bool {
					return !b.runs(name, op, c.database.engine)
				})
				if round%2 == 1 {
					slices.Reverse(contenders)
				}
				if err := b.alternate(ctx, c, op, connections, contenders, stores, r); err != nil {
					return nil, fmt.Errorf("%s: %w", op.name, err)
				}
			}
		}
	}
	return r, nil
}

// alternate gives each of the contenders its turns of op in a round, and adds the outcomes to r. A
// contender starts before its first turn, which has a warm-up, and stops after its last turn.
func (b *bench) alternate(ctx context.Context, c comparison, op operation, connections int, contenders []string, stores map[string]*store, r results) (err error) {
	running := map[string]*server{}
	defer func() {
		for _, s := range running {
			err = errors.Join(err, s.stop())
		}
	}()
	turns := max(1, c.turns)
	l := load{operation: op, connections: connections, duration: cmp.Or(c.duration, b.duration)}
	if op.moves > 0 && op.method == http.MethodPost {
		l.body = op.table()
	}
	for turn := range turns {
		for _, name := range contenders {
			l.warmup = 0
			if turn == 0 {
				l.warmup = warmup
				if err := stores[name].prepare(ctx, op.rows); err != nil {
					return err
				}
			}
			var o outcome
			switch name {
			case pgbench:
				o, err = b.pgbench(ctx, stores[name], l)
			case psql:
				o, err = b.copy(stores[name], l)
			default:
				if running[name] == nil {
					if running[name], err = b.start(ctx, name, stores[name].url); err != nil {
						delete(running, name)
						break
					}
				}
				l.path = op.path
				if slices.Contains(baselines, name) {
					l.path = cmp.Or(op.baselinePath, op.path)
				}
				if rest, ok := drills[name]; ok {
					o, err = b.drill(ctx, running[name], stores[name], l, rest)
				} else {
					o, err = l.send(ctx, running[name])
				}
				if err == nil && turn == turns-1 {
					err = running[name].stop()
					delete(running, name)
				}
			}
			stores[name].used(op.method)
			l.first += 1 << 20 // an id is created once
			if missing, ok := errors.AsType[statusError](err); ok && name == b.against && (missing == 404 || missing == 405) {
				b.note("%s has no %s: it responds with %d.", name, op.name, int(missing))
				continue
			}
			if err = cmp.Or(err, ctx.Err()); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			fmt.Fprintf(os.Stderr, "%s, %s, %d connections: %.0f/s, CPU %.1f µs, p99 %.2f ms\n", op.name, name, connections, o[rate], o[cpu], o[p99])
			r[op.by(name, connections)] = append(r[op.by(name, connections)], o)
		}
		slices.Reverse(contenders)
	}
	return nil
}

// table writes the medians of the cells of c.
func (r results) table(c comparison, w io.Writer) {
	shown := c.figures
	if shown == nil {
		shown = []int{rate, ratio, mean, p50, p99, p999, cpu, idle, peak}
	}
	columns := []string{"operation", "connections", "contender"}
	for _, figure := range shown {
		columns = append(columns, units[figure].name)
	}
	heading(w, columns...)
	for _, connections := range c.connections {
		for _, op := range c.operations {
			for _, name := range c.contenders {
				of := op.by(name, connections)
				if len(r[of]) == 0 {
					continue
				}
				m := r.median(of)
				m[ratio] = r.ratio(rate, op.by(service, connections), of)
				cells := []any{op.name, connections, name}
				for _, figure := range shown {
					cells = append(cells, format(m, figure))
				}
				row(w, cells...)
			}
		}
	}
}

// against writes the medians of the service and of the other revision, the first contender of c.
func (r results) against(c comparison, w io.Writer) {
	old := c.contenders[0]
	heading(w, "operation", "connections", "requests/s, "+old, "now", "ratio", "", "CPU per request, "+old, "now", "p99, "+old, "now")
	for _, op := range c.operations {
		for _, connections := range c.connections {
			before, after, mark := op.by(old, connections), op.by(service, connections), ""
			if len(r[before]) == 0 {
				continue
			}
			b, a, measured := r.median(before), r.median(after), r.ratio(rate, after, before)
			if measured < 0.97 {
				mark = "**slower**"
			}
			row(w, op.name, connections, format(b, rate), format(a, rate), fmt.Sprintf("%.2f", measured), mark,
				format(b, cpu), format(a, cpu), format(b, p99), format(a, p99))
		}
	}
}

// runs reports whether the contender takes part in an operation on a kind of database.
func (b *bench) runs(contender string, op operation, e *engine) bool {
	return selected(b.contenders, contender) &&
		(op.contenders == nil || slices.Contains(op.contenders, contender)) &&
		(contender != pgbench || op.pgbench != "") && (contender != pgbench && contender != psql || e == postgres)
}

func (b *bench) pgbench(ctx context.Context, s *store, l load) (o outcome, err error) {
	script := filepath.Join(b.folder, "pgbench.sql")
	if err := os.WriteFile(script, []byte(l.pgbench), 0o644); err != nil { //nolint:gosec // PostgreSQL runs as another user and reads it
		return o, err
	}
	seconds := max(2, int((l.warmup + l.duration).Seconds())) // including the time to connect
	cmd := s.server.Command("pgbench", "-n", "-M", "prepared", "-c", strconv.Itoa(l.connections), "-j", "2",
		"-T", strconv.Itoa(seconds), "-D", "n=0", "-f", script, s.url)
	output, err := cmd.CombinedOutput()
	o[rate], o[mean] = number(output, `tps = ([0-9.]+)`), number(output, `latency average = ([0-9.]+) ms`)
	if err != nil || o[rate] == 0 {
		return o, fmt.Errorf("%w\n%s", cmp.Or(err, errors.New("no rate in the output")), output)
	}
	return o, ctx.Err()
}

// copy imports the rows of l with psql, without the feed.
func (b *bench) copy(s *store, l load) (o outcome, err error) {
	file := filepath.Join(b.folder, "rows.csv")
	if err := os.WriteFile(file, []byte(l.body), 0o644); err != nil { //nolint:gosec // PostgreSQL's user reads it
		return o, err
	}
	begin := time.Now()
	err = output(s.server.Command("psql", "-q", "-c", "ALTER TABLE plants ALTER created_at SET DEFAULT now(), ALTER updated_at SET DEFAULT now(), ALTER changed SET DEFAULT 0",
		"-c", `\copy plants(id, name, tag) FROM '`+file+`' CSV HEADER`, s.url))
	o[rate] = 1 / time.Since(begin).Seconds()
	o[rows] = o[rate] * float64(l.moves)
	return o, err
}

// table returns the rows that an import moves: by default, those that prepare inserts.
func (o operation) table() string {
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
