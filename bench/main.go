// Command bench measures the service beside its baselines, on databases of its
// own, and prints the medians of alternating rounds with their ratios, in
// Markdown: go run ./bench > bench/RESULTS.md.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
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

func run(ctx context.Context) (err error) {
	b := &bench{}
	flag.DurationVar(&b.duration, "duration", 3*time.Second, "how long one contender's turn is")
	flag.IntVar(&b.rounds, "rounds", 3, "how many turns each contender has")
	flag.StringVar(&b.ramDisk, "ram-disk", "/dev/shm", "a folder in memory, for the comparisons")
	flag.StringVar(&b.disk, "disk", os.TempDir(), "a folder on a real disk")
	flag.Func("only", "the sections to run, separated by commas; empty: all", list(&b.only))
	flag.Func("contenders", "those who take part, separated by commas; empty: all", list(&b.contenders))
	flag.Parse()

	if b.folder, err = os.MkdirTemp(b.ramDisk, "plantstore-bench-*"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.folder)) }()
	if b.programs, err = build(ctx, b.folder); err != nil {
		return err
	}

	var tables bytes.Buffer
	for _, s := range sections {
		if len(b.only) > 0 && !slices.Contains(b.only, s.name) {
			continue
		}
		fmt.Fprintf(os.Stderr, "== %s\n", s.name)
		fmt.Fprintf(&tables, "\n## %s\n\n", s.title)
		if err := s.run(ctx, b, &tables); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	writeHeading(os.Stdout, b)
	_, err = io.Copy(os.Stdout, &tables)
	return err
}

// bench is one run of the benchmark.
type bench struct {
	programs
	folder   string // for what is built and written, on the RAM disk
	ramDisk  string
	disk     string
	duration time.Duration
	rounds   int
	claims   []claim

	only, contenders []string // empty: all
}

// list returns what reads a flag's values, separated by commas, into target.
func list(target *[]string) func(string) error {
	return func(text string) error {
		*target = strings.Split(text, ",")
		return nil
	}
}

// section is one table of the results.
type section struct {
	name, title string
	run         func(ctx context.Context, b *bench, w io.Writer) error
}

var sections = []section{
	{"postgres", "PostgreSQL on a RAM disk", onRAMDisk},
	{"disk", "PostgreSQL on a real disk", onDisk},
	{"sqlite", "SQLite, synchronous=FULL", onSQLite},
	{"growth", "Growth: rows that are there before", growth},
	{"reads", "Reads, of a million rows", reads},
	{"bulk", "Import and export of a million rows", bulk},
	{"memory", "Memory over a minute at 256 connections", memory},
}
