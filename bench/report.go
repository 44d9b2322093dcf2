package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"
)

// claim is something that the results are to show: a figure of this run, and the
// one that it was meant to reach.
type claim struct {
	what   string
	figure float64
	limit  float64
	atMost bool // limit is the most, not the least
}

// median returns the middle one of values, ordered by key.
func median[T any, K cmp.Ordered](values []T, key func(T) K) T {
	sorted := slices.SortedFunc(slices.Values(values), func(a, b T) int { return cmp.Compare(key(a), key(b)) })
	return sorted[len(sorted)/2]
}

// row writes one row of a Markdown table.
func row(w io.Writer, cells ...any) {
	for _, cell := range cells {
		switch v := cell.(type) {
		case float64:
			fmt.Fprintf(w, "| %.2f ", v)
		case time.Duration:
			fmt.Fprintf(w, "| %.2f ms ", float64(v)/float64(time.Millisecond))
		default:
			fmt.Fprintf(w, "| %v ", v)
		}
	}
	fmt.Fprintln(w, "|")
}

// heading writes the head of a Markdown table.
func heading(w io.Writer, columns ...string) {
	fmt.Fprintf(w, "| %s |\n|%s\n", strings.Join(columns, " | "), strings.Repeat(" --- |", len(columns)))
}

// writeHeading writes what was measured, where and when, and what it shows.
func writeHeading(w io.Writer, b *bench) {
	fmt.Fprintf(w, `# Results

Written by %s on %s. Do not edit: run it again.

The machine: %s, %d processors, %s, Linux %s. Everything runs on it at once: the
client, the contender and the database. Such figures say little in themselves and
shift with the machine; what counts are the ratios of contenders that took turns in
the same run. Each contender had %d turns of %v after a second to warm up, in
alternation; the figures are medians of the turns, and the ratios medians of the ratios within each round. Access logs are on in all of
them, written to a file in memory. Every 200 is durable in the sense of its
database: fsync on, synchronous_commit on, SQLite in WAL with synchronous=FULL.

The contenders, in [baseline](baseline): **gin+gorm** as their documentation starts;
**gin+gorm, tuned** without the default transaction and with prepared statements;
**net/http+pgx** without a framework, one prepared statement a row; **no storage**,
the service's own stack with a store that keeps nothing. **pgbench** runs the
same INSERT, prepared, one row a transaction, without HTTP: what the database can do.
`, "`make bench`", time.Now().UTC().Format(time.DateOnly), processorName(), runtime.NumCPU(), runtime.Version(), kernel(), b.rounds, b.duration)
	if len(b.claims) == 0 {
		return
	}
	fmt.Fprint(w, "\n## What it shows\n\n")
	heading(w, "ratio", "measured", "meant to be", "")
	for _, c := range b.claims {
		sign, met := "≥", c.figure >= c.limit
		if c.atMost {
			sign, met = "≤", c.figure <= c.limit
		}
		verdict := "reached"
		if !met {
			verdict = "**missed**"
		}
		row(w, c.what, c.figure, fmt.Sprintf("%s %g", sign, c.limit), verdict)
	}
}

func processorName() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(text)) {
		if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

func kernel() string {
	release, err := exec.Command("uname", "-r").Output()
	if err != nil {
		return "of unknown version"
	}
	return strings.TrimSpace(string(release))
}
