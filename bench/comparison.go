package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"
)

// comparison is a table of contenders that take turns at the same load.
type comparison struct {
	contenders  []string
	connections []int
	database    func(ctx context.Context, name string, connections int) (outcome, error) // one turn
	turns       map[cell][]outcome                                                       // by round
	medians     map[cell]outcome
}

// cell is what one figure is of.
type cell struct {
	name        string
	connections int
}

// run gives each contender b.rounds turns and writes the table of the medians.
func (c *comparison) run(ctx context.Context, b *bench, w io.Writer) error {
	if len(b.contenders) > 0 {
		c.contenders = b.contenders
	}
	c.turns = map[cell][]outcome{}
	for _, connections := range c.connections {
		for round := range b.rounds {
			for _, name := range c.contenders {
				o, err := c.database(ctx, name, connections)
				if err != nil {
					return err
				}
				fmt.Fprintf(os.Stderr, "%3d connections, round %d: %-16s %8.0f/s  p50 %v  p99 %v  processor %v\n",
					connections, round+1, name, o.rate, o.p50, o.p99, o.processor)
				t := cell{name, connections}
				c.turns[t] = append(c.turns[t], o)
			}
		}
	}
	c.medians = map[cell]outcome{}
	heading(w, "connections", "contender", "requests/s", "plantstore is", "p50", "p99", "p99.9", "processor per request", "peak memory")
	for _, connections := range c.connections {
		for _, name := range c.contenders {
			turns := c.turns[cell{name, connections}]
			m := outcome{
				rate:      median(turns, func(o outcome) float64 { return o.rate }).rate,
				p50:       median(turns, func(o outcome) time.Duration { return o.p50 }).p50,
				p99:       median(turns, func(o outcome) time.Duration { return o.p99 }).p99,
				p999:      median(turns, func(o outcome) time.Duration { return o.p999 }).p999,
				processor: median(turns, func(o outcome) time.Duration { return o.processor }).processor,
				memory:    median(turns, func(o outcome) int64 { return o.memory }).memory,
			}
			c.medians[cell{name, connections}] = m
			ratio := "" // where the service has not taken part
			if figure, ok := c.ratio(name, connections, func(o outcome) float64 { return o.rate }); ok {
				ratio = fmt.Sprintf("%.2f ×", figure)
			}
			if name == pgbench {
				row(w, connections, name, fmt.Sprintf("%.0f", m.rate), ratio, fmt.Sprintf("%.2f ms on average", m.p50.Seconds()*1e3), "", "", "", "")
				continue
			}
			row(w, connections, name, fmt.Sprintf("%.0f", m.rate), ratio, m.p50, m.p99, m.p999,
				fmt.Sprintf("%d µs", m.processor.Microseconds()), fmt.Sprintf("%d MB", m.memory/1e6))
		}
	}
	return nil
}

// rates claims that the service's rate is at least limit times that of other.
func (c *comparison) rates(b *bench, where, other string, connections int, limit float64) {
	c.claim(b, claim{what: "requests/s", limit: limit}, where, other, connections, func(o outcome) float64 { return o.rate })
}

// latency claims that a latency of the service is at most limit times that of
// other.
func (c *comparison) latency(b *bench, what string, of func(outcome) time.Duration, where, other string, connections int, limit float64) {
	c.claim(b, claim{what: what, limit: limit, atMost: true}, where, other, connections,
		func(o outcome) float64 { return of(o).Seconds() })
}

// claim adds the ratio of the service's figure to that of other to the claims of
// b, unless one of the two has not taken part.
func (c *comparison) claim(b *bench, to claim, where, other string, connections int, figure func(outcome) float64) {
	ratio, ok := c.ratio(other, connections, figure)
	if !ok {
		return
	}
	to.what = fmt.Sprintf("%s ÷ that of %s, %s, %d at a time", to.what, other, where, connections)
	to.figure = ratio
	b.claims = append(b.claims, to)
}

// ratio returns the median of the rounds' ratios of the service's figure to that of
// other: the two are compared with each other while the machine is the same. It
// reports false where one of the two has not taken part.
func (c *comparison) ratio(other string, connections int, figure func(outcome) float64) (float64, bool) {
	mine, its := c.turns[cell{service, connections}], c.turns[cell{other, connections}]
	if len(mine) == 0 || len(its) == 0 {
		return 0, false
	}
	ratios := make([]float64, len(mine))
	for i := range mine {
		ratios[i] = figure(mine[i]) / figure(its[i])
	}
	return median(ratios, func(r float64) float64 { return r }), true
}
