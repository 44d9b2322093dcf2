package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
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
	cpu:    {"CPU per request", "%.0f µs"},
	idle:   {"idle memory", "%.0f MB"},
	peak:   {"peak memory in MB", "%.0f MB"},
	growth: {"growth of memory since the start in MiB", "%.1f MiB"},
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

// compare gives the contenders alternating turns and writes a table of their
// medians.
func compare(ctx context.Context, b *bench, c comparison, w io.Writer) (results, error) {
	store, err := b.open(ctx, c.database)
	if err != nil {
		return nil, err
	}
	rounds, duration := b.rounds, b.duration
	if c.duration > 0 {
		rounds, duration = 1, c.duration
	}
	r := results{}
	var order []cell
	for _, connections := range c.connections {
		for round := range rounds {
			for _, op := range c.operations {
				for _, name := range c.contenders {
					if !b.runs(name, op, store) {
						continue
					}
					o, err := b.turn(ctx, name, store, load{operation: op, connections: connections, warmup: warmup, duration: duration})
					if err != nil {
						return nil, fmt.Errorf("%s, %s: %w", name, op.name, err)
					}
					of := op.by(name, connections)
					fmt.Fprintf(os.Stderr, "round %d, %s, %s, %d connections: %.0f/s, p99 %.2f ms\n",
						round+1, op.name, name, connections, o[rate], o[p99])
					if round == 0 {
						order = append(order, of)
					}
					r[of] = append(r[of], o)
				}
			}
		}
	}

	r.table(w, order)
	return r, nil
}

// table writes the medians of cells.
func (r results) table(w io.Writer, order []cell) {
	heading(w, "operation", "connections", "contender", "requests/s", service+" is", "mean", "p50", "p99", "p99.9",
		"CPU per request", "idle memory", "peak memory")
	for _, of := range order {
		m := r.median(of)
		m[ratio] = r.ratio(rate, cell{of.operation, service, of.connections}, of)
		cells := []any{of.operation, of.connections, of.contender}
		for figure := rate; figure <= peak; figure++ {
			cells = append(cells, format(m, figure))
		}
		row(w, cells...)
	}
}

// runs reports whether the contender takes part in an operation on s.
func (b *bench) runs(contender string, op operation, s *store) bool {
	return selected(b.contenders, contender) &&
		(op.contenders == nil || slices.Contains(op.contenders, contender)) &&
		(contender != pgbench || op.pgbench != "" && s.server != nil)
}
