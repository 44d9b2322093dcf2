// Command bench compares the service with its baselines, or with another revision of it, on
// databases of its own, and prints the medians of alternating turns, and their ratios, in
// Markdown. See table.go for the measurements.
package main

import (
	"bytes"
	"cmp"
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
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

const ramDisk = "/dev/shm"

//go:embed introduction.md
var introduction string

// bench is one run of the benchmark.
type bench struct {
	folder  string // for programs and logs; on the RAM disk
	rounds  int    // of each comparison; 0: its own number
	against string // a revision; "": the baselines
}

func run() (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	b := &bench{}
	flag.IntVar(&b.rounds, "rounds", 0, "the number of rounds of each comparison (default its own)")
	flag.StringVar(&b.against, "against", "", "compare the service with this revision of it instead of the baselines")
	only := flag.String("only", "", "run only these comparisons of bench/table.go or, with -against, these operations, separated by commas")
	chart := flag.String("chart", "", "draw the comparison of operations on PostgreSQL as an SVG file of this name")
	flag.Parse()
	planned, about := comparisons, introduction
	if b.against != "" {
		planned, about = []comparison{against(b.against)}, ""
	}
	if b.folder, err = os.MkdirTemp(ramDisk, "plantstore-bench-*"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.folder)) }()

	var claims, tables bytes.Buffer
	for _, c := range planned {
		c.operations = slices.DeleteFunc(slices.Clone(c.operations), func(o operation) bool {
			return *only != "" && !slices.Contains(strings.Split(*only, ","), cmp.Or(c.section, o.section))
		})
		if len(c.operations) == 0 || err != nil {
			continue
		}
		fmt.Fprintln(os.Stderr, "==", c.title)
		var r results
		r, err = b.compare(ctx, c) // after an error, print what was measured
		r.table(c, &tables)
		r.check(c, &claims)
		if c.section == "postgres" && *chart != "" {
			err = errors.Join(err, os.WriteFile(*chart, r.chart(c), 0o600))
		}
	}
	if tables.Len() == 0 {
		return cmp.Or(err, fmt.Errorf("nothing to measure is called %q", *only))
	}
	fmt.Printf("# Results\n\nWritten on %s by the program in bench/. Do not edit; run it again.\n\n", time.Now().UTC().Format(time.DateOnly))
	processors, _ := os.ReadFile("/proc/cpuinfo")
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	fmt.Printf("Machine: %s, %d processors, %s, Linux %s. Turns: %v, unless a title says otherwise, after a warm-up of %v.\n%s",
		field(processors, "model name\t: "), runtime.NumCPU(), runtime.Version(), bytes.TrimSpace(kernel), turn, warmup, about)
	if *only != "" {
		fmt.Printf("\nThis run measured only %s.\n", strings.ReplaceAll(*only, ",", ", "))
	}
	if claims.Len() > 0 {
		fmt.Print("\n## Claims\n\n", heading("comparison", "figure", "of", "÷ that of", "measured", "limit", ""), &claims)
	}
	fmt.Print(&tables)
	return err
}

// field returns the rest of the first line in text that begins with name, or "".
func field(text []byte, name string) string {
	_, after, _ := strings.Cut(string(text), name)
	value, _, _ := strings.Cut(after, "\n")
	return value
}
