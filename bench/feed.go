package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// on returns the operation with the name of a database.
func (o operation) on(d database) operation {
	o.name = d.name + ", " + o.name
	return o
}

// of returns the transfer by a contender.
func (t transfer) of(contender string) transfer {
	t.by = contender
	return t
}

// feedCost compares the service with itself without the feed of changes, on databases of their
// own, each of which its owner has migrated.
func feedCost(ctx context.Context, b *bench, c comparison, w io.Writer) (results, error) {
	if err := b.writeRows(); err != nil {
		return nil, err
	}
	r := results{}
	heading(w, "operation", "contender", "per second", service+" is")
	for _, d := range []database{postgresRAM, sqliteRAM} {
		stores := make(map[string]*store)
		for _, name := range c.contenders {
			d.migratedBy = name
			var err error
			if stores[name], err = b.open(ctx, d); err != nil {
				return nil, err
			}
		}
		for range starts {
			for _, name := range c.contenders {
				if err := b.importInto(ctx, stores[name], importNDJSON.of(name), r); err != nil {
					return nil, err
				}
			}
		}
		op := create.on(d).among(c.contenders...)
		for _, s := range stores {
			if err := s.prepare(ctx, 0); err != nil {
				return nil, err
			}
		}
		cells, err := b.takeTurns(ctx, func(contender string) *store { return stores[contender] }, op, c.connections[0], r)
		if err != nil {
			return nil, err
		}
		for _, of := range cells {
			row(w, of.operation, of.contender, format(r.median(of), rate), fmt.Sprintf("%.3f ×", r.ratio(rate, cells[0], of)))
		}
		for _, name := range c.contenders {
			of := importNDJSON.of(name).on(d)
			row(w, of.operation, name, format(r.median(of), rows), fmt.Sprintf("%.3f ×", r.ratio(rows, importNDJSON.on(d), of)))
		}
		if err := b.closeStores(); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// importInto adds the rate of a transfer into the empty table of s to r.
func (b *bench) importInto(ctx context.Context, s *store, t transfer, r results) error {
	if err := s.prepare(ctx, 0); err != nil {
		return err
	}
	server, err := b.start(ctx, t.by, s.url)
	if err != nil {
		return err
	}
	begin := time.Now()
	err = t.send(ctx, server.address, b.folder)
	took := time.Since(begin)
	s.used("POST")
	of := t.on(database{engine: s.engine})
	if err := errors.Join(err, server.stop()); err != nil {
		return fmt.Errorf("%s: %w", of.operation, err)
	}
	fmt.Fprintf(os.Stderr, "%s, %s: %v\n", of.operation, t.by, took)
	r[of] = append(r[of], outcome{rows: million / took.Seconds()})
	return nil
}
