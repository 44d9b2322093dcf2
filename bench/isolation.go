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
	"strconv"
	"strings"
	"sync"
	"time"
)

// The isolation drill measures a load of clients while an import is stored, with and
// without rivals: clients that write rows of the import, which are locked.
const (
	rivals     = 12
	lockedRows = 40_000  // of which the rivals write some, once they are locked; a COPY of an import has more
	firstRow   = 1 << 50 // apart from the rows of the clients
	rivalToken = "token-of-the-rivals-with-more-than-32-characters"
)

var hugeImport = operation{
	method: "POST", path: "/plants/import", status: 200, contentType: csv, moves: 2 * million,
	id: func(n int64) int64 { return firstRow + n },
}

// drill measures l beside an import and, if name says so, rivals. It fails if a response to a rival
// is not as the API promises.
func (b *bench) drill(ctx context.Context, name string, s *server, st *store, l load) (o outcome, err error) {
	st.rows = -1
	turn, end := context.WithCancel(ctx)
	defer end()
	huge := load{operation: hugeImport, connections: 1}
	huge.body = hugeImport.table()
	imported := make(chan error, 1)
	go func() {
		_, err := huge.send(turn, s)
		imported <- err
		end()
	}()
	if err := st.awaitCopy(turn); err != nil {
		return nil, cmp.Or(<-imported, err)
	}
	var mu sync.Mutex
	var group sync.WaitGroup
	responses := map[string]int{}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: rivals}}
	defer client.CloseIdleConnections()
	for range rivals {
		group.Go(func() {
			for name == rivalry && turn.Err() == nil {
				response := rival(client, s.address, l.operation)
				mu.Lock()
				responses[response]++
				mu.Unlock()
			}
		})
	}
	l.warmup = 0
	o, err = l.send(turn, s)
	end()
	group.Wait()
	if failed := <-imported; !errors.Is(failed, context.Canceled) {
		err = errors.Join(err, failed)
	}
	for response := range responses {
		if !slices.Contains([]string{"200", "201", "40901", "40902", "50301"}, response) {
			err = errors.Join(err, fmt.Errorf("a rival got the response %s", response))
		}
	}
	if name == rivalry {
		b.note("Responses to the rivals beside %s: %v.", l.name, responses)
	}
	return o, err
}

// awaitCopy waits until an import has stored, and not committed, the lockedRows.
func (s *store) awaitCopy(ctx context.Context) error {
	for stored := 0; stored < lockedRows; time.Sleep(time.Millisecond) {
		if err := s.db.QueryRowContext(ctx, "SELECT coalesce(sum(tuples_processed), 0) FROM pg_stat_progress_copy").Scan(&stored); err != nil {
			return err
		}
	}
	return nil
}

// rival writes a row of the import: it creates the row beside a load that writes, and replaces it
// beside a load that reads. It returns the status or error code of the response.
func rival(client *http.Client, address string, beside operation) string {
	id := firstRow + rand.Int64N(lockedRows)
	method, path, body := "POST", "/plants", fmt.Sprintf(`{"id":%d,"name":"rival"}`, id)
	if beside.method == http.MethodGet {
		method, path, body = "PUT", fmt.Sprintf("/plants/%d", id), `{"name":"rival"}`
	}
	// Without a context: each request gets its response.
	request, err := http.NewRequest(method, "http://"+address+path, strings.NewReader(body)) //nolint:noctx // see above
	if err != nil {
		return err.Error()
	}
	request.Header.Set("Authorization", "Bearer "+rivalToken)
	response, err := client.Do(request)
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	var fault struct{ Error int }
	if err := json.NewDecoder(response.Body).Decode(&fault); err != nil {
		return err.Error()
	}
	return strconv.Itoa(cmp.Or(fault.Error, response.StatusCode))
}
