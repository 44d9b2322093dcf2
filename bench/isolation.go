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

var (
	nothing = service
	imports = "beside an import"
	rivalry = fmt.Sprintf("beside an import and %d rivals", rivals)
)

// drills are the contenders of the drill: the service, and the number of rivals.
var drills = map[string]int{imports: 0, rivalry: rivals}

var hugeImport = operation{
	method: "POST", path: "/plants/import", status: 200, contentType: csv, moves: 2 * million,
	id: func(n int64) int64 { return firstRow + n },
}

// drill measures l beside an import and rivals. It fails if a response to a rival is not as the API
// promises.
func (b *bench) drill(ctx context.Context, s *server, st *store, l load, rivals int) (o outcome, err error) {
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
		return o, cmp.Or(<-imported, err)
	}
	var group sync.WaitGroup
	counts := make([]map[string]int, rivals)
	for i := range counts {
		group.Go(func() { counts[i] = rival(turn, s.address, l.operation) })
	}
	l.warmup = 0
	o, err = l.send(turn, s)
	end()
	group.Wait()
	if failed := <-imported; !errors.Is(failed, context.Canceled) {
		err = errors.Join(err, failed)
	}
	responses := map[string]int{}
	for _, count := range counts {
		for response, n := range count {
			responses[response] += n
			if !slices.Contains([]string{"200", "201", "40901", "40902", "50301"}, response) {
				err = fmt.Errorf("a rival got the response %s", response)
			}
		}
	}
	if rivals > 0 {
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

// rival writes rows of the import, one after another, until ctx ends: it creates them
// beside a load that writes, and replaces them beside one that reads. It returns how many
// responses of each status or error code it had.
func rival(ctx context.Context, address string, beside operation) map[string]int {
	responses := map[string]int{}
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for ctx.Err() == nil {
		id := firstRow + rand.Int64N(lockedRows)
		method, path, body := "POST", "/plants", fmt.Sprintf(`{"id":%d,"name":"rival"}`, id)
		if beside.method == http.MethodGet {
			method, path, body = "PUT", fmt.Sprintf("/plants/%d", id), `{"name":"rival"}`
		}
		// Without ctx: each request gets its response.
		request, err := http.NewRequest(method, "http://"+address+path, strings.NewReader(body)) //nolint:noctx // see above
		if err != nil {
			return map[string]int{err.Error(): 1}
		}
		request.Header.Set("Authorization", "Bearer "+rivalToken)
		response, err := client.Do(request)
		if err != nil {
			responses[err.Error()]++
			return responses
		}
		var fault struct{ Error int }
		err = json.NewDecoder(response.Body).Decode(&fault)
		kind := strconv.Itoa(cmp.Or(fault.Error, response.StatusCode))
		if err = errors.Join(err, response.Body.Close()); err != nil {
			kind = err.Error()
		}
		responses[kind]++
	}
	return responses
}
