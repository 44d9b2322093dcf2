package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The isolation drill measures a load of clients while an import is stored, with and
// without rivals: clients that write rows of the import, which are locked.
const (
	clients      = 32
	rivals       = 12
	importedRows = 2 * million
	lockedRows   = 40_000  // of which the rivals write some, once they are locked; a COPY of an import has more
	firstRow     = 1 << 50 // apart from the rows of the clients
	fileImport   = "import.csv"
	rivalToken   = "token-of-the-rivals-with-more-than-32-characters"
)

// beside is what happens during a turn.
type beside struct {
	name           string
	imports, rival bool
}

var (
	nothing = beside{"nothing", false, false}
	imports = beside{"an import", true, false}
	rivalry = beside{fmt.Sprintf("an import and %d rivals", rivals), true, true}
)

func (b beside) cell(op operation) cell { return cell{op.name + " beside " + b.name, service, clients} }

// isolation measures the drill.
func isolation(ctx context.Context, b *bench, c comparison, w io.Writer) (results, error) {
	var file bytes.Buffer
	file.WriteString("id,name\n")
	for n := range int64(importedRows) {
		fmt.Fprintf(&file, "%d,Planta numerata\n", firstRow+n)
	}
	if err := os.WriteFile(filepath.Join(b.folder, fileImport), file.Bytes(), 0o600); err != nil {
		return nil, err
	}
	st, err := b.open(ctx, c.database)
	if err != nil {
		return nil, err
	}
	r, responses := results{}, map[cell]map[string]int{}
	for range b.rounds {
		for _, op := range c.operations {
			for _, beside := range []beside{nothing, imports, rivalry} {
				of := beside.cell(op)
				o, got, err := b.isolationTurn(ctx, st, op, beside)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", of.operation, err)
				}
				fmt.Fprintf(os.Stderr, "%s: %.0f/s, p99 %.2f ms; rivals: %v\n", of.operation, o[rate], o[p99], got)
				r[of] = append(r[of], o)
				if responses[of] == nil {
					responses[of] = map[string]int{}
				}
				for response, n := range got {
					responses[of][response] += n
				}
			}
		}
	}
	heading(w, "operation", "beside", "requests/s", "p50", "p99", "responses to the rivals")
	for _, op := range c.operations {
		for _, beside := range []beside{nothing, imports, rivalry} {
			of := beside.cell(op)
			m, counts := r.median(of), []string(nil)
			for _, response := range slices.Sorted(maps.Keys(responses[of])) {
				counts = append(counts, fmt.Sprintf("%d × %s", responses[of][response], response))
			}
			row(w, op.name, beside.name, format(m, rate), format(m, p50), format(m, p99), strings.Join(counts, ", "))
		}
	}
	return r, nil
}

// isolationTurn measures op while the rest happens, and returns how many responses of
// each kind the rivals had. It fails if one of them is not as the API promises.
func (b *bench) isolationTurn(ctx context.Context, st *store, op operation, rest beside) (o outcome, responses map[string]int, err error) {
	if err := st.prepare(ctx, op.rows); err != nil {
		return o, nil, err
	}
	st.rows = -1
	s, err := b.start(ctx, service, st.url)
	if err != nil {
		return o, nil, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	turn, end := context.WithCancel(ctx)
	defer end()
	imported := make(chan error, 1)
	if rest.imports {
		go func() {
			imported <- transfer{file: fileImport, contentType: "text/csv"}.send(turn, s.address, b.folder)
			end()
		}()
		if err := st.awaitCopy(turn); err != nil {
			return o, nil, cmp.Or(err, <-imported)
		}
	} else {
		imported <- nil
	}
	time.AfterFunc(6*b.duration, end) // at the latest
	var group sync.WaitGroup
	counts := make([]map[string]int, rivals)
	if rest.rival {
		for i := range counts {
			group.Go(func() { counts[i] = rival(turn, s.address, op) })
		}
	}
	o, err = load{operation: op, connections: clients}.until(turn, s.address, time.Now())
	group.Wait()
	if failed := <-imported; !errors.Is(failed, context.Canceled) {
		err = errors.Join(err, failed)
	}
	if err != nil {
		return o, nil, err
	}
	responses = map[string]int{}
	for _, count := range counts {
		for response, n := range count {
			responses[response] += n
			switch response {
			case "200", "201", "40901", "40902", "50301":
			default:
				err = fmt.Errorf("a rival got the response %s", response)
			}
		}
	}
	return o, responses, err
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
