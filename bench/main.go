// Command bench compares the service with its baselines, or with another revision of it, on
// databases of its own, and prints the medians of alternating turns, and their ratios, in
// Markdown. See table.go for the measurements.
package main

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
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
	folder           string // for programs and logs; on the RAM disk
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
	flag.IntVar(&b.rounds, "rounds", 0, "the number of rounds of each section (default its own)")
	flag.StringVar(&b.ramDisk, "ram-disk", "/dev/shm", "a folder on a RAM disk")
	flag.StringVar(&b.disk, "disk", os.TempDir(), "a folder on a real disk")
	flag.StringVar(&b.only, "only", "", "run only these sections of bench/table.go, separated by commas")
	flag.StringVar(&b.contenders, "contenders", "", "run only these contenders, separated by commas")
	flag.StringVar(&b.against, "against", "", "compare the service with this revision of it instead of the baselines")
	flag.StringVar(&b.chart, "chart", "", "draw the comparison of operations on PostgreSQL as an SVG file of this name")
	flag.Parse()
	table, about := results.table, introduction
	if b.against != "" {
		comparisons, table, about = []comparison{against(b.against)}, results.against, ""
	}
	if b.folder, err = os.MkdirTemp(b.ramDisk, "plantstore-bench-*"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.folder)) }()
	if err := os.Chmod(b.folder, 0o755); err != nil { //nolint:gosec // PostgreSQL runs as another user and loads slowfsync.so
		return err
	}

	var claims, slower, tables bytes.Buffer
	var failed error // it ends the run, which prints what it has measured
	for _, c := range comparisons {
		if !selected(b.only, c.section) {
			c.operations = slices.DeleteFunc(slices.Clone(c.operations), func(o operation) bool {
				return !c.everyOperation || !selected(b.only, o.section)
			})
		}
		if len(c.operations) == 0 || failed != nil {
			continue
		}
		fmt.Fprintln(os.Stderr, "==", c.title)
		if err := b.build(ctx, c); err != nil {
			return err
		}
		r, err := b.compare(ctx, c)
		if err := errors.Join(err, b.close()); err != nil {
			failed = fmt.Errorf("%s: %w", c.title, err)
		}
		fmt.Fprintf(&tables, "\n## %s\n\n", c.title)
		table(r, c, &tables)
		if b.notes != nil {
			fmt.Fprintf(&tables, "\n%s\n", strings.Join(b.notes, "\n"))
		}
		b.notes = nil
		r.check(c, &claims)
		r.slower(c, &slower)
		if c.section == "postgres" && b.chart != "" {
			if err := r.chart(c, b.chart); err != nil {
				return err
			}
		}
	}
	if tables.Len() == 0 {
		return fmt.Errorf("no section is called %q", b.only)
	}
	processors, _ := os.ReadFile("/proc/cpuinfo")
	kernel, _ := os.ReadFile("/proc/version")
	fmt.Printf("# Results\n\nWritten on %s by the program in bench/. Do not edit; run it again.\n\nMachine: %s, %d processors, %s, Linux %s. Turns: %v, after a warm-up of %v.\n%s",
		time.Now().UTC().Format(time.DateOnly), find(processors, `model name\s*: (.*)`), runtime.NumCPU(), runtime.Version(),
		find(kernel, `^Linux version (\S+)`), b.duration, warmup, about)
	if b.only != "" {
		fmt.Printf("\nThis run had only the sections %s.\n", strings.ReplaceAll(b.only, ",", ", "))
	}
	if claims.Len() > 0 {
		fmt.Print("\n## Claims\n\n", heading("comparison", "figure of "+service, "measured", "limit", ""), &claims)
	}
	if slower.Len() > 0 {
		fmt.Printf("\n## Where %s is slower than a baseline\n\n", service)
		fmt.Print(heading("comparison", "operation", "connections", "baseline", "figure", service+" ÷ baseline"), &slower)
	}
	fmt.Print(&tables)
	return failed
}

//go:embed introduction.md
var introduction string

// selected reports whether name is in the list of a flag, or the list is empty.
func selected(list, name string) bool {
	return list == "" || slices.Contains(strings.Split(list, ","), name)
}

// note adds a line below the table of the comparison, once.
func (b *bench) note(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(b.notes, text) {
		b.notes = append(b.notes, text)
		fmt.Fprintln(os.Stderr, text)
	}
}
