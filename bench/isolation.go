package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// The drill of isolation measures a load of clients while an import is stored, with and
// without rivals: clients that write rows of the import, which are locked.
const (
	rivals     = 12
	lockedRows = 5000 // the rivals begin once they are locked, and write the first of them; an import copies 10,000 at a time

	// awaitCopy waits until an import has stored, and not committed, a number of rows.
	awaitCopy = `DO $$ BEGIN WHILE (SELECT coalesce(sum(tuples_processed), 0) FROM pg_stat_progress_copy) < %d LOOP
	PERFORM pg_sleep(0.001), pg_stat_clear_snapshot();
END LOOP; END $$`
)

var hugeImport = operation{
	method: "POST", path: "/plants/import", contentType: csv, status: 200, moves: 2 * million,
	id: from(1 << 50), // apart from the rows of the clients
}

// drill measures l beside an import and, if name says so, rivals. It fails if a response to a rival
// has a status that the API does not promise.
func drill(ctx context.Context, name string, s *server, st *store, l load) (o outcome, err error) {
	st.rows = unknown
	huge := load{operation: hugeImport, connections: 1}
	huge.body = huge.table()
	importing, stop := huge.begin(ctx, s)
	locked := st.server.Command("psql", "-q", "-c", "SET statement_timeout = '1min'", "-c", fmt.Sprintf(awaitCopy, lockedRows), st.url)
	err = execute(locked)
	if err == nil && name == rivalry {
		_, end := load{operation: rivalOf(l.operation), connections: rivals, duration: time.Minute}.begin(importing, s)
		defer func() { err = errors.Join(err, end()) }()
	}
	if err == nil {
		o, err = l.send(importing, s)
	}
	return o, errors.Join(err, stop())
}

// begin sends l to s beside another load, until end is called. The context ends when l does. Only an unexpected
// status is an error: l may take longer than the other load.
func (l load) begin(ctx context.Context, s *server) (running context.Context, end func() error) {
	running, cancel := context.WithCancel(ctx)
	failed := make(chan error, 1)
	go func() {
		defer cancel()
		_, err := l.send(running, s)
		if _, ok := errors.AsType[statusError](err); !ok {
			err = nil
		}
		failed <- err
	}()
	return running, func() error { cancel(); return <-failed }
}

// rivalOf returns what rivals send beside an operation: they create rows of the import beside a load
// that writes, and replace them beside a load that reads.
func rivalOf(beside operation) operation {
	o := create
	if beside.method == "GET" {
		o = put
	}
	o.tokens, o.id, o.refusals = 1, hugeImport.id, []int{201, 409, 503}
	return o
}

// rivalToken returns the token of the n-th rival.
func rivalToken(n int) string {
	return fmt.Sprintf("token-of-rival-%02d-with-more-than-32-characters", n)
}

// others are what ordinary clients send.
var others = operation{name: "GET, POST, PUT", method: "POST", status: 200, id: existing, rows: existingRows, mix: []operation{get, create, put}}

var (
	endlessExport = export.but("", func(o *operation) { o.moves = 0 })
	smallImport   = endlessExport.but("", func(o *operation) {
		o.method, o.contentType, o.path, o.moves, o.id = "POST", csv, "/plants/import?on_conflict=replace", 5000, hugeImport.id
		o.body, o.moves = o.table(), 0
	})
	dryRun = smallImport.but("", func(o *operation) { o.path += "&dry_run=true" })
)

type rivalLoad struct {
	name                string
	tokens, connections int
	mix                 []operation
	keep                float64
}

// rivalLoads are what clients with tokens of their own send beside others, who keep at least a part of their rate.
var rivalLoads = []rivalLoad{
	{"2 ordinary clients", 1, 2, []operation{get, rivalOf(get), rivalOf(create)}, 0.7},
	{"an export", 1, 1, []operation{endlessExport}, 0.75},
	{"4 exports", 1, 4, []operation{endlessExport}, 0.75},
	{"4 imports", 1, 4, []operation{smallImport}, 0.75},
	{"4 dry runs", 1, 4, []operation{dryRun}, 0.75},
	{"exports, imports and dry runs of 10 tokens", 10, 20, []operation{endlessExport, smallImport, dryRun}, 0.6},
	{"2 clients with pages of 1,000", 1, 2, []operation{list("", "limit=1000")}, 0.75},
	{"2 clients with 1,000 changes", 1, 2, []operation{list("", "").but("", func(o *operation) { o.path = "/plants/changes?after=0&limit=1000" })}, 0.75},
	{"4 searches that match nothing", 1, 4, []operation{list("", "q=nothing")}, 0.75},
}

// sharing measures how much of their rate others keep beside rivals.
func sharing(e *engine) comparison {
	c := comparison{
		section: "sharing", title: "12 clients beside clients with other tokens, " + e.name, engine: e,
		operations: []operation{others}, connections: []int{12}, rounds: 1,
	}
	for _, r := range rivalLoads {
		c.contenders = append(c.contenders, r.name)
		c.claims = append(c.claims, claim{left, others.by(r.name, 12), cell{}, r.keep})
	}
	return c
}

// beside measures l beside the rivals name, and without them, in alternating turns.
func beside(ctx context.Context, name string, s *server, l load) (o outcome, err error) {
	r := rivalLoads[slices.IndexFunc(rivalLoads, func(r rivalLoad) bool { return r.name == name })]
	rival := operation{status: 200, refusals: []int{201, 409, 429, 503}, id: existing, mix: r.mix, tokens: r.tokens}
	var parts []float64
	for range 3 {
		alone, err := l.send(ctx, s)
		if err != nil {
			return nil, err
		}
		l.first += million
		_, end := load{operation: rival, connections: r.connections, duration: time.Minute, first: l.first}.begin(ctx, s)
		o, err = l.send(ctx, s)
		if err = errors.Join(err, end()); err != nil {
			return nil, err
		}
		l.first += million
		parts = append(parts, o[rate]/alone[rate])
	}
	o[left], _, _ = quartiles(parts)
	return o, nil
}
