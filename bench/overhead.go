package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"
)

// The turns of overhead are short and many, so that other load on the machine, and the state
// of the database, are the same for all contenders: it tells differences of a hundredth.
const (
	starts         = 8  // of each contender: two processes of one program can differ by 3 %
	roundsPerStart = 11 // of each start, of which the first is a warm-up
	shortTurn      = 250 * time.Millisecond
)

// overhead is compare for contenders that hardly differ. All of them run all the time, and
// the turns of a round are in another order than those of the last one.
func overhead(ctx context.Context, b *bench, c comparison, w io.Writer) (r results, err error) {
	s, err := b.open(ctx, c.database)
	if err != nil {
		return nil, err
	}
	r = results{}
	var order []cell
	for _, op := range c.operations {
		if err := s.prepare(ctx, op.rows); err != nil {
			return nil, err
		}
		cells, err := b.takeTurns(ctx, func(string) *store { return s }, op, c.connections[0], r)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", op.name, err)
		}
		order = append(order, cells...)
	}
	r.table(w, order)
	return r, nil
}

// takeTurns adds the outcomes of op to r, and returns their cells. storeOf returns the database
// of a contender.
func (b *bench) takeTurns(ctx context.Context, storeOf func(contender string) *store, op operation, connections int, r results) (cells []cell, err error) {
	for _, name := range op.contenders {
		if b.runs(name, op, storeOf(name)) {
			storeOf(name).used(op.method)
			cells = append(cells, op.by(name, connections))
		}
	}
	turns, ids, begin := slices.Clone(cells), op.id, int64(0)
	op.id = func(n int64) int64 { return ids(begin + n) } // an id is created once
	for range starts {
		running := make(map[cell]*server)
		for _, of := range cells {
			if running[of], err = b.start(ctx, of.contender, storeOf(of.contender).url); err != nil {
				delete(running, of)
				break
			}
		}
		for round := 0; round < roundsPerStart && err == nil; round++ {
			for _, of := range turns {
				var o outcome
				if o, err = running[of].measure(ctx, load{operation: op, connections: connections, duration: shortTurn}); err != nil {
					err = fmt.Errorf("%s: %w", of.contender, err)
					break
				}
				if begin += 1 << 20; round > 0 {
					r[of] = append(r[of], o)
				}
			}
			slices.Reverse(turns)
		}
		for _, server := range running {
			err = errors.Join(err, server.stop())
		}
		if err != nil {
			return nil, err
		}
	}
	for _, of := range cells {
		fmt.Fprintf(os.Stderr, "%s, %s: %.0f/s, CPU %.1f µs, ÷ %s: rate %.3f, CPU %.3f\n", op.name, of.contender,
			r.median(of)[rate], r.median(of)[cpu], service, r.ratio(rate, of, cells[0]), r.ratio(cpu, of, cells[0]))
	}
	return cells, nil
}
