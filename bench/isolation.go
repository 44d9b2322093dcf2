package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
)

// The drill of isolation measures a load of clients while an import is stored, with and
// without rivals: clients that write rows of the import, which are locked.
const (
	rivals     = 12
	lockedRows = 40_000  // the rivals begin once they are locked, and write the first of them
	firstRow   = 1 << 50 // apart from the rows of the clients
	rivalToken = "token-of-the-rivals-with-more-than-32-characters"

	// awaitCopy waits until an import has stored, and not committed, a number of rows.
	awaitCopy = `DO $$ BEGIN WHILE (SELECT coalesce(sum(tuples_processed), 0) FROM pg_stat_progress_copy) < %d LOOP
	PERFORM pg_sleep(0.001), pg_stat_clear_snapshot();
END LOOP; END $$`
)

var hugeImport = operation{
	method: "POST", path: "/plants/import", contentType: csv, status: 200, moves: 2 * million,
	id: func(n int64) int64 { return firstRow + n },
}

// drill measures l beside an import and, if name says so, rivals. It fails if a response to a rival
// has a status that the API does not promise.
func drill(ctx context.Context, name string, s *server, st *store, l load) (o outcome, err error) {
	st.rows = unknown
	importing, end := context.WithCancel(ctx)
	defer end()
	var clients errgroup.Group
	clients.Go(func() error {
		defer end()
		huge := load{operation: hugeImport, connections: 1}
		huge.body = huge.table()
		if _, err := huge.send(importing, s); !errors.Is(err, context.Canceled) {
			return err
		}
		return nil
	})
	locked := st.server.Command("psql", "-q", "-c", "SET statement_timeout = '1min'", "-c", fmt.Sprintf(awaitCopy, lockedRows), st.url)
	if err := execute(locked); err != nil {
		end()
		return nil, errors.Join(err, clients.Wait())
	}
	if name == rivalry {
		clients.Go(func() error {
			_, err := load{operation: rivalOf(l.operation), connections: rivals, duration: time.Minute}.send(importing, s)
			return err
		})
	}
	o, err = l.send(importing, s)
	end()
	return o, errors.Join(err, clients.Wait())
}

// rivalOf returns what rivals send beside an operation: they create rows of the import beside a load
// that writes, and replace them beside a load that reads.
func rivalOf(beside operation) operation {
	o := create
	if beside.method == "GET" {
		o = put
	}
	o.token, o.id, o.refusals = rivalToken, hugeImport.id, []int{201, 409, 503}
	return o
}
