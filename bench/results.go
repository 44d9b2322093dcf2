package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// figure is a measured value. In a claim, its sign stands before the limit.
type figure struct{ name, format, sign string }

var (
	rate = figure{"per second", "%.0f", "≥"} // requests, or rows of an import or export
	cpu  = figure{"CPU per request", "%.1f µs", "≤"}
	p50  = figure{"p50", "%.2f ms", "≤"}
	p99  = figure{"p99", "%.2f ms", "≤"}
	peak = figure{"peak memory", "%.0f MB", "≤"}
	left = figure{"part of the rate alone", "%.2f", "≥"}
	kept = figure{"memory per connection", "%.1f KB", "≤"}

	figures = []figure{rate, cpu, p50, p99, left, peak, kept}
)

// outcome holds the figures of a turn.
type outcome map[figure]float64

// cell identifies the results of a contender in a comparison.
type cell struct {
	operation, contender string
	connections          int
}

func (c cell) String() string {
	if c == (cell{}) {
		return ""
	}
	return fmt.Sprintf("%s, %s, %d connections", c.operation, c.contender, c.connections)
}

// results holds the outcomes of each cell, in the order of the rounds.
type results map[cell][]outcome

// ratio returns the median and the quartiles of a figure or, unless to is zero, of its ratios within each round, as
// the turns of a round had the machine in the same state. It returns 0 if a cell was not measured.
func (r results) ratio(f figure, of, to cell) (median, low, high float64) {
	var values []float64
	for i, o := range r[of] {
		switch {
		case to == (cell{}):
			values = append(values, o[f])
		case i < len(r[to]):
			values = append(values, o[f]/r[to][i][f])
		}
	}
	return quartiles(values)
}

func quartiles(values []float64) (median, low, high float64) {
	if len(values) == 0 {
		return 0, 0, 0
	}
	slices.Sort(values)
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2, values[n/4], values[(3*n-1)/4]
}

// claim limits the worst figure of a cell. If to is not zero, it limits the median ratio of the
// figures of two cells instead.
type claim struct {
	figure figure
	of, to cell
	limit  float64
}

// check writes a row for each claim of c with measured cells.
func (r results) check(c comparison, w io.Writer) {
	for _, claim := range c.claims {
		measured, _, _ := r.ratio(claim.figure, claim.of, claim.to)
		exceeds := func(limit float64) bool {
			return measured != limit && (measured > limit) == (claim.figure.sign == "≤")
		}
		if claim.to == (cell{}) {
			for _, o := range r[claim.of] {
				if !exceeds(o[claim.figure]) {
					measured = o[claim.figure]
				}
			}
		}
		if measured == 0 {
			continue
		}
		verdict := "reached"
		if exceeds(claim.limit) {
			verdict = "**missed**"
		}
		row(w, c.title, claim.figure.name, claim.of, claim.to,
			fmt.Sprintf("%.2f", measured), fmt.Sprintf("%s %g", claim.figure.sign, claim.limit), verdict)
	}
}

// table writes the medians of the cells of c, and the ratio of the service's rate to that of each
// other contender, with its quartiles. It marks ratios below 0.97.
func (r results) table(c comparison, w io.Writer) {
	columns, measured := []string{"operation", "connections", "contender", service + " is"}, []figure{}
	for _, figure := range figures {
		isMeasured := func(outcomes []outcome) bool { return outcomes[0][figure] != 0 }
		if slices.ContainsFunc(slices.Collect(maps.Values(r)), isMeasured) {
			columns, measured = append(columns, figure.name), append(measured, figure)
		}
	}
	fmt.Fprintf(w, "\n## %s\n\n%s", c.title, heading(columns...))
	for _, op := range c.operations {
		for _, connections := range c.connections {
			for _, name := range c.contenders {
				of, ratio := op.by(name, connections), ""
				if len(r[of]) == 0 {
					continue
				}
				if median, low, high := r.ratio(rate, op.by(service, connections), of); name != service && median > 0 {
					ratio = fmt.Sprintf("%.2f × (%.2f–%.2f)", median, low, high)
					if median < 0.97 {
						ratio = "**" + ratio + " slower**"
					}
				}
				cells := []any{op.name, connections, name, ratio}
				for _, figure := range measured {
					median, _, _ := r.ratio(figure, of, cell{})
					cells = append(cells, fmt.Sprintf(figure.format, median))
				}
				row(w, cells...)
			}
		}
	}
}

// row writes a row of a Markdown table.
func row(w io.Writer, cells ...any) {
	for _, cell := range cells {
		fmt.Fprintf(w, "| %v ", cell)
	}
	fmt.Fprintln(w, "|")
}

// heading returns the head of a Markdown table.
func heading(columns ...string) string {
	return fmt.Sprintf("| %s |\n|%s\n", strings.Join(columns, " | "), strings.Repeat(" --- |", len(columns)))
}
