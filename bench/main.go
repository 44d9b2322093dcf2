// Command bench compares the service with its baselines on databases of its own
// and prints the medians of alternating turns, and their ratios, in Markdown:
// go run ./bench > bench/RESULTS.md. See table.go for the measurements.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// bench is one run of the benchmark.
type bench struct {
	folder           string // for programs, logs and input files; on the RAM disk
	ramDisk, disk    string
	duration         time.Duration
	rounds           int
	only, contenders string         // separated by commas; "": all
	against          string         // a revision; "": the baselines
	chart            string         // a file; "": no chart
	closers          []func() error // of the databases of a comparison
	notes            []string       // for below the table of a comparison
}

func run(ctx context.Context) (err error) {
	b := &bench{}
	flag.DurationVar(&b.duration, "duration", time.Second, "the length of a turn")
	flag.IntVar(&b.rounds, "rounds", 0, fmt.Sprintf("the number of rounds of each section; 0: %d, or another default of the section", defaultRounds))
	flag.StringVar(&b.ramDisk, "ram-disk", "/dev/shm", "a folder on a RAM disk")
	flag.StringVar(&b.disk, "disk", os.TempDir(), "a folder on a real disk")
	flag.StringVar(&b.only, "only", "", "run only these sections, separated by commas: "+strings.Join(sections(), ", "))
	flag.StringVar(&b.contenders, "contenders", "", "run only these contenders, separated by commas")
	flag.StringVar(&b.against, "against", "", "compare the service with this revision of it instead of the baselines")
	flag.StringVar(&b.chart, "chart", "", "draw the comparison of operations on PostgreSQL as an SVG file of this name")
	flag.Parse()
	if b.against != "" {
		comparisons = []comparison{against(b.against)}
	}

	if b.folder, err = os.MkdirTemp(b.ramDisk, "plantstore-bench-*"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.folder)) }()
	if err := os.Chmod(b.folder, 0o755); err != nil { //nolint:gosec // PostgreSQL runs as another user and reads files from it
		return err
	}

	var claims, slower, tables bytes.Buffer
	for _, c := range comparisons {
		if !selected(b.only, c.section) {
			c.operations = c.chosen(b.only)
			if len(c.operations) == 0 {
				continue
			}
		}
		fmt.Fprintln(os.Stderr, "==", c.title)
		if err := b.build(ctx, c); err != nil {
			return err
		}
		results, err := b.compare(ctx, c)
		if err := errors.Join(err, b.close()); err != nil {
			return fmt.Errorf("%s: %w", c.title, err)
		}
		if b.against != "" {
			fmt.Fprintln(&tables)
			results.against(c, &tables)
		} else {
			fmt.Fprintf(&tables, "\n## %s\n\n", c.title)
			results.table(c, &tables)
		}
		for _, note := range b.notes {
			fmt.Fprintf(&tables, "\n%s\n", note)
		}
		b.notes = nil
		if c.drawn && b.chart != "" {
			if err := results.chart(c, b.chart); err != nil {
				return err
			}
		}
		results.check(c, &claims)
		results.slower(c, &slower)
	}
	if tables.Len() == 0 {
		return fmt.Errorf("no section is called %q", b.only)
	}
	writeHeading(os.Stdout, b)
	if claims.Len() > 0 {
		fmt.Print("\n## Claims\n\n")
		heading(os.Stdout, "comparison", "figure of "+service, "measured", "limit", "")
	}
	fmt.Print(claims.String())
	if slower.Len() > 0 {
		fmt.Printf("\n## Where %s is slower than a baseline\n\n", service)
		heading(os.Stdout, "comparison", "operation", "connections", "baseline", "figure", service+" ÷ baseline")
	}
	_, err = fmt.Print(slower.String(), tables.String())
	return err
}

// note adds a sentence below the table of the comparison.
func (b *bench) note(format string, args ...any) {
	b.notes = append(b.notes, fmt.Sprintf(format, args...))
	fmt.Fprintln(os.Stderr, b.notes[len(b.notes)-1])
}

// sections returns what the flag -only may list.
func sections() (names []string) {
	for _, c := range comparisons {
		names = append(names, c.section)
	}
	for _, o := range append(operations, page) {
		names = append(names, o.section)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// selected reports whether name is in the list of a flag, or the list is empty.
func selected(list, name string) bool {
	return list == "" || slices.Contains(strings.Split(list, ","), name)
}
