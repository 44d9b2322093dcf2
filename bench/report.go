package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// row writes a row of a Markdown table.
func row(w io.Writer, cells ...any) {
	for _, cell := range cells {
		fmt.Fprintf(w, "| %v ", cell)
	}
	fmt.Fprintln(w, "|")
}

// heading writes the head of a Markdown table.
func heading(w io.Writer, columns ...string) {
	fmt.Fprintf(w, "| %s |\n|%s\n", strings.Join(columns, " | "), strings.Repeat(" --- |", len(columns)))
}

// format returns a figure with its unit, or "" if it was not measured.
func format(o outcome, figure int) string {
	if o[figure] == 0 {
		return ""
	}
	return fmt.Sprintf(units[figure].format, o[figure])
}

// writeHeading describes the run.
func writeHeading(w io.Writer, b *bench) {
	processors, _ := os.ReadFile("/proc/cpuinfo")
	kernel, _ := os.ReadFile("/proc/version")
	machine := fmt.Sprintf("%s, %d processors, %s, Linux %s", find(processors, `model name\s*: (.*)`),
		runtime.NumCPU(), runtime.Version(), find(kernel, `^Linux version (\S+)`))
	today := time.Now().UTC().Format(time.DateOnly)
	if b.against != "" {
		fmt.Fprintf(w, `# The working tree and %s

Written by %s on %s. Machine: %s.
The two programs took turns of %v, each after a start and a warm-up of %v, with a database
each on one PostgreSQL server. Figures are medians; a ratio is the median of the ratios within
each round. CPU time is the program's own, without PostgreSQL and the client.
`, b.against, "`make bench-against`", today, machine, b.duration, warmup)
		return
	}
	fmt.Fprintf(w, `# Results

Written by %s on %s. Do not edit; run it again.

Machine: %s. The client, the contender and the
database share it, so absolute figures depend on it; compare the ratios. The
contenders took turns, %d of %v each after a warm-up of %v. Figures are medians of
the turns; ratios are medians of the ratios within each round. All contenders write
a line per request, with the same fields, to a file in memory; that of gin+gorm is
Gin's own. A 200 means that the row is durable: fsync and synchronous_commit are on,
and SQLite uses WAL with synchronous=FULL. PUT, PATCH and DELETE write each row at
most once in a turn, on a table of %d rows; with If-Match, they send its version.
In an open loop, requests arrive at regular times, whether or not the contender keeps
up, and latencies count from then.

Contenders, in [baseline](baseline): **gin+gorm** follows the first pages of their
documentation; **tuned gin+gorm** has no default transaction and uses prepared
statements; **net/http+pgx** has no framework and runs one prepared statement per
row; **no storage** is the service's own stack without a database. **one by one** is
the service with writes.max_batch 1; **no tracing** and **no metrics** are the service
built without the code for tracing, and without that and the code for metrics; **no feed**
is it without the feed of changes. **pgbench** runs the same INSERT, prepared, one row
per transaction, without HTTP.
`, "`make bench`", today, machine, cmp.Or(b.rounds, defaultRounds), b.duration, warmup, existingRows)
	if b.only != "" {
		fmt.Fprintf(w, "\nThis run had only the sections %s.\n", strings.ReplaceAll(b.only, ",", ", "))
	}
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
