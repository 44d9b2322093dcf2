package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
)

// The drill of isolation measures a load of clients while an import is stored, with and
// without rivals: clients that write rows of the import, which are locked.
const (
	rivals     = 12
	lockedRows = 40_000  // the rivals write some of them once they are locked; a COPY of an import has more
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
// is not as the API promises.
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
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: rivals}}
	defer client.CloseIdleConnections()
	for range rivals {
		clients.Go(func() error {
			for name == rivalry && importing.Err() == nil {
				if err := rival(client, s.address, l.operation); err != nil {
					return err
				}
			}
			return nil
		})
	}
	o, err = l.send(importing, s)
	end()
	return o, errors.Join(err, clients.Wait())
}

// rival writes a row of the import: it creates the row beside a load that writes, and replaces it
// beside a load that reads.
func rival(client *http.Client, address string, beside operation) error {
	id := firstRow + rand.Int64N(lockedRows)
	method, path, body := "POST", "/plants", fmt.Sprintf(`{"id":%d,"name":"rival"}`, id)
	if beside.method == "GET" {
		method, path, body = "PUT", fmt.Sprintf("/plants/%d", id), `{"name":"rival"}`
	}
	// Without a context: each request gets its response.
	request, err := http.NewRequest(method, "http://"+address+path, strings.NewReader(body)) //nolint:noctx // see above
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+rivalToken)
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	var fault struct{ Error int }
	err = json.NewDecoder(response.Body).Decode(&fault)
	if code := cmp.Or(fault.Error, response.StatusCode); !slices.Contains([]int{200, 201, 40901, 40902, 50301}, code) {
		err = errors.Join(err, fmt.Errorf("a rival got the response %d", code))
	}
	return err
}
