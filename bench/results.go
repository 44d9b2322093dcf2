package main

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// figure is a measured value. In a claim, its sign stands before the limit.
type figure struct{ name, format, sign string }

var (
	rate   = figure{"requests/s", "%.0f", "≥"}
	ratio  = figure{service + " is", "%.2f ×", ""}
	mean   = figure{"mean", "%.2f ms", "≤"}
	p50    = figure{"p50", "%.2f ms", "≤"}
	p99    = figure{"p99", "%.2f ms", "≤"}
	p999   = figure{"p99.9", "%.2f ms", "≤"}
	cpu    = figure{"CPU per request", "%.1f µs", "≤"}
	idle   = figure{"idle memory", "%.0f MB", "≤"}
	peak   = figure{"peak memory", "%.0f MB", "≤"}
	growth = figure{"growth of memory", "%.0f MB", "≤"}
	rows   = figure{"rows/s", "%.0f", "≥"}
)

// outcome holds the figures of a turn, or their medians.
type outcome map[figure]float64

// cell identifies the results of a contender in a comparison.
type cell struct {
	operation, contender string
	connections          int
}

// results holds the outcomes of each cell, in the order of the rounds.
type results map[cell][]outcome

// median returns the medians of a cell, and the ratio of the service's rate to that of the cell.
func (r results) median(of cell) outcome {
	values, m := map[figure][]float64{}, outcome{}
	for _, o := range r[of] {
		for figure, value := range o {
			values[figure] = append(values[figure], value)
		}
	}
	for figure := range values {
		m[figure], _, _ = quartiles(values[figure])
	}
	m[ratio], _, _ = r.ratio(rate, cell{of.operation, service, of.connections}, of)
	return m
}

// ratio returns the median and the quartiles of the ratios within each round, as its turns had the
// machine in the same state. It returns 0 if one of the cells was not measured.
func (r results) ratio(f figure, of, to cell) (median, low, high float64) {
	var ratios []float64
	for i := range min(len(r[of]), len(r[to])) {
		ratios = append(ratios, r[of][i][f]/r[to][i][f])
	}
	return quartiles(ratios)
}

func quartiles(values []float64) (median, low, high float64) {
	if len(values) == 0 {
		return 0, 0, 0
	}
	slices.Sort(values)
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2, values[n/4], values[(3*n-1)/4]
}

// claim is a limit for a figure of a cell, or, unless to is zero, for the ratio
// of the figures of two cells.
type claim struct {
	figure figure
	of, to cell
	limit  float64
}

// check writes a row for each claim of c with measured cells.
func (r results) check(c comparison, w io.Writer) {
	for _, claim := range c.claims {
		of, to := claim.of, claim.to
		measured, _, _ := r.ratio(claim.figure, of, to)
		text := fmt.Sprintf("%s, %s, %d connections", claim.figure.name, of.operation, of.connections)
		switch {
		case to == cell{}:
			for _, o := range r[of] {
				measured = max(measured, o[claim.figure])
			}
		case to.operation == of.operation:
			text += " ÷ that of " + to.contender
		default:
			text += " ÷ " + to.operation
		}
		if measured == 0 {
			continue
		}
		verdict := "reached"
		if measured != claim.limit && (measured > claim.limit) == (claim.figure.sign == "≤") {
			verdict = "**missed**"
		}
		row(w, c.title, text, fmt.Sprintf("%.2f", measured), fmt.Sprintf("%s %g", claim.figure.sign, claim.limit), verdict)
	}
}

// slower writes a row for each cell of c in which the service is slower than a baseline
// that a team would write.
func (r results) slower(c comparison, w io.Writer) {
	for _, o := range c.operations {
		figures := []figure{rate}
		if o.arrivals > 0 {
			figures = []figure{p50, p99} // the rates are equal
		}
		for _, connections := range c.connections {
			for _, name := range baselines {
				for _, figure := range figures {
					measured, _, _ := r.ratio(figure, o.by(service, connections), o.by(name, connections))
					if measured > 0 && (measured < 1) == (figure == rate) {
						row(w, c.title, o.name, connections, name, figure.name, fmt.Sprintf("%.2f ×", measured))
					}
				}
			}
		}
	}
}

// table writes the medians of the cells of c.
func (r results) table(c comparison, w io.Writer) {
	shown := c.figures
	if shown == nil {
		shown = []figure{rate, ratio, mean, p50, p99, p999, cpu, idle, peak}
	}
	columns := []string{"operation", "connections", "contender"}
	for _, figure := range shown {
		columns = append(columns, figure.name)
	}
	fmt.Fprint(w, heading(columns...))
	for _, connections := range c.connections {
		for _, op := range c.operations {
			for _, name := range c.contenders {
				of := op.by(name, connections)
				if len(r[of]) > 0 {
					row(w, append([]any{op.name, connections, name}, r.median(of).format(shown...)...)...)
				}
			}
		}
	}
}

// against writes the medians of the service and of another revision, the first contender of c. It marks
// the cells in which the service is slower.
func (r results) against(c comparison, w io.Writer) {
	old := c.contenders[0]
	fmt.Fprint(w, heading("operation", "connections", "requests/s, "+old, "now", "ratio", "quartiles",
		"CPU per request, "+old, "now", "p99, "+old, "now"))
	for _, op := range c.operations {
		for _, connections := range c.connections {
			before, after := op.by(old, connections), op.by(service, connections)
			median, low, high := r.ratio(rate, after, before)
			if median == 0 {
				continue
			}
			text := fmt.Sprintf("%.2f", median)
			if median < 0.97 {
				text = "**" + text + " slower**"
			}
			b, a := r.median(before).format(rate, cpu, p99), r.median(after).format(rate, cpu, p99)
			row(w, op.name, connections, b[0], a[0], text, fmt.Sprintf("%.2f–%.2f", low, high), b[1], a[1], b[2], a[2])
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

// format returns figures with their units. A figure that was not measured is empty.
func (o outcome) format(figures ...figure) (cells []any) {
	for _, figure := range figures {
		cell := ""
		if o[figure] != 0 {
			cell = fmt.Sprintf(figure.format, o[figure])
		}
		cells = append(cells, cell)
	}
	return cells
}

// find returns the match of the group in pattern in text, or "".
func find(text []byte, pattern string) string {
	if match := regexp.MustCompile(pattern).FindSubmatch(text); match != nil {
		return string(match[1])
	}
	return ""
}

// number is find for a number.
func number(text []byte, pattern string) float64 {
	n, _ := strconv.ParseFloat(find(text, pattern), 64)
	return n
}
