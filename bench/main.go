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
	stores           []*store // of the comparison
	only, contenders string   // separated by commas; "": all
	chart            string   // a file; "": none
}

func run(ctx context.Context) (err error) {
	b := &bench{}
	flag.DurationVar(&b.duration, "duration", time.Second, "the length of a turn")
	flag.IntVar(&b.rounds, "rounds", 3, "the number of turns of each contender")
	flag.StringVar(&b.ramDisk, "ram-disk", "/dev/shm", "a folder on a RAM disk")
	flag.StringVar(&b.disk, "disk", os.TempDir(), "a folder on a real disk")
	flag.StringVar(&b.only, "only", "", "run only these sections, separated by commas: "+strings.Join(sections(), ", "))
	flag.StringVar(&b.contenders, "contenders", "", "run only these contenders, separated by commas")
	flag.StringVar(&b.chart, "chart", "", "draw the comparison of operations on PostgreSQL as an SVG file of this name")
	flag.Parse()

	if b.folder, err = os.MkdirTemp(b.ramDisk, "plantstore-bench-*"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.folder)) }()
	if err := os.Chmod(b.folder, 0o755); err != nil { //nolint:gosec // PostgreSQL runs as another user and reads files from it
		return err
	}
	if err := b.build(ctx); err != nil {
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
		fmt.Fprintf(&tables, "\n## %s\n\n", c.title)
		measure := compare
		if c.measure != nil {
			measure = c.measure
		}
		results, err := measure(ctx, b, c, &tables)
		if err := errors.Join(err, b.closeStores()); err != nil {
			return fmt.Errorf("%s: %w", c.title, err)
		}
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

// sections returns what the flag -only may list.
func sections() (names []string) {
	for _, c := range comparisons {
		names = append(names, c.section)
	}
	for _, o := range operations {
		names = append(names, o.section)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// selected reports whether name is in the list of a flag, or the list is empty.
func selected(list, name string) bool {
	return list == "" || slices.Contains(strings.Split(list, ","), name)
}
