package service

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// OpenImport is an import with an open body.
type OpenImport struct {
	T         *testing.T
	Body      *io.PipeWriter
	Leave     func()        // disconnects the client
	Responses chan Response // closed if there is no response
}

// BeginImportAs begins an import with a token. Its body stays open.
func (s *Service) BeginImportAs(t *testing.T, bearer, query string) *OpenImport {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	i := &OpenImport{T: t, Body: in, Responses: make(chan Response, 1)}
	i.Leave = func() {
		cancel()
		_ = in.CloseWithError(context.Canceled) // ends the transport
	}
	// With Expect, the client sends the body when the service asks for it.
	begun := make(chan struct{})
	body := &WatchedReader{Reader: out, OnRead: sync.OnceFunc(func() { close(begun) })}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+"/plants/import"+query, body)
	Must(t, err)
	for header, value := range map[string]string{"Authorization": "Bearer " + bearer, "Content-Type": InNDJSON, "Expect": "100-continue"} {
		request.Header.Set(header, value)
	}
	go func() {
		defer close(i.Responses)
		defer cancel()
		transport := &http.Transport{DisableKeepAlives: true, ExpectContinueTimeout: 2 * Patience}
		resp, err := transport.RoundTrip(request)
		if err != nil {
			return
		}
		if r, err := ReadResponse(resp); err == nil {
			i.Responses <- r
		}
	}()
	Receive(t, begun)
	return i
}

// Write sends rows.
func (i *OpenImport) Write(rows string) {
	i.T.Helper()
	if _, err := io.WriteString(i.Body, rows); err != nil {
		i.T.Fatal(err)
	}
}

// CheckNoPlants checks that no plants are stored.
func (s *Service) CheckNoPlants(t *testing.T) {
	t.Helper()
	if got := s.Export(t, InNDJSON); got != "" {
		t.Errorf("got %d plants, want no plants", strings.Count(got, "\n"))
	}
}

// Object is a JSON object, or a row of CSV without its empty cells.
type Object = map[string]any

// Objects returns the objects in JSON, in a JSON array, or in NDJSON.
func Objects(t *testing.T, text string) (rows []Object) {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	for {
		var v any
		if err := decoder.Decode(&v); errors.Is(err, io.EOF) {
			return rows
		} else if err != nil {
			t.Fatalf("%v in %s", err, text)
		}
		list, ok := v.([]any)
		if !ok {
			list = []any{v}
		}
		for _, v := range list {
			rows = append(rows, v.(Object))
		}
	}
}

// Export exports the plants.
func (s *Service) Export(t *testing.T, accept string) string {
	t.Helper()
	r := s.Call(t, "GET", "/plants/export", "", "Accept", accept)
	r.RequireOK(t)
	return r.Body
}

// Cells returns the rows of an export in CSV.
func Cells(t *testing.T, text string) [][]string {
	t.Helper()
	rows, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	Must(t, err)
	return rows
}

// CSVHeader is the header of an export, and CSVRest what follows the tag in a row: the empty
// cells of fields that most tests do not set.
const (
	CSVHeader = "id,name,tag\n"
	CSVRest   = "\n"
)

// BeginExportAs begins an export with a token and returns its first bytes.
func (s *Service) BeginExportAs(t *testing.T, bearer string) (rest io.ReadCloser, first string) {
	t.Helper()
	return s.BeginExportOver(t, &http.Transport{DisableKeepAlives: true}, bearer)
}

// BeginExportOver is BeginExportAs over transport.
func (s *Service) BeginExportOver(t *testing.T, transport *http.Transport, bearer string) (rest io.ReadCloser, first string) {
	t.Helper()
	request, err := http.NewRequest(http.MethodGet, s.URL+"/plants/export", nil)
	Must(t, err)
	request.Header.Set("Authorization", "Bearer "+bearer)
	request.Header.Set("Accept-Encoding", "identity") // compressed, it might fit into the buffers of a connection
	resp, err := transport.RoundTrip(request)
	Must(t, err)
	start := make([]byte, 1000)
	if _, err := io.ReadFull(resp.Body, start); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("got %s, %v, want 200", resp.Status, err)
	}
	return resp.Body, string(start)
}

// OddTexts are texts that could be changed on their way.
var OddTexts = []string{
	" x ", "é" + "e\u0301", "🌵", "\u200b\ufeff\U0010ffff", `<b>&"\/`, `'; DROP TABLE plants; -- `, `% _ \ $1 ? @name :id {}`,
	"=1+1", "+1", "-1", "@SUM(A1)", "'", "'=1", "''", "'x", "a,b;c", `"`, `""`, `"quoted", and 'so'`, "null", "NULL", `\N`, `\.`, "#x", "\u2028\u00a0x",
	"a;=1+1", "a;'=1", `a;"-1`, "＝1+1", "'＠x;＋1",
	"\ufffd", strings.Repeat("🌵", 255), "x" + strings.Repeat(" ", 254),
}

// Quote returns text in JSON as the service writes it.
func Quote(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\u2028", `\u2028`, "\u2029", `\u2029`).Replace(text) + `"`
}

// Gzipped returns texts compressed, each as a member of its own.
func Gzipped(t *testing.T, texts ...string) string {
	t.Helper()
	var out bytes.Buffer
	for _, text := range texts {
		w := gzip.NewWriter(&out)
		_, err := io.WriteString(w, text)
		Must(t, err)
		Must(t, w.Close())
	}
	return out.String()
}

// Unzip returns the content of a compressed text, up to an error.
func Unzip(text string) (string, error) {
	r, err := gzip.NewReader(strings.NewReader(text))
	if err != nil {
		return "", err
	}
	content, err := io.ReadAll(r)
	return string(content), err
}

// The formats of imports and exports.
const (
	InNDJSON = "application/x-ndjson"
	InCSV    = "text/csv"
)

// ImportRows sends body to POST /plants/import with the query.
func (s *Service) ImportRows(t *testing.T, query, contentType, body string) Response {
	t.Helper()
	return s.Call(t, "POST", "/plants/import"+query, body, "Content-Type", contentType)
}

// Summary returns the report of an import in one line, with the line and the code of each
// rejected row.
func (r Response) Summary() string {
	type report struct {
		Rows, Created, Replaced, Merged, Deleted, Unchanged, Refused *int
		Stored                                                       *bool
		Errors                                                       []struct {
			Line    int
			Error   int
			Message string
		}
	}
	var refused struct{ Report *report }
	rep := new(report)
	_ = json.Unmarshal([]byte(r.Body), rep)
	if _ = json.Unmarshal([]byte(r.Body), &refused); refused.Report != nil {
		rep = refused.Report
	}
	if rep.Rows == nil || rep.Created == nil || rep.Replaced == nil || rep.Merged == nil || rep.Deleted == nil || rep.Unchanged == nil || rep.Refused == nil || rep.Stored == nil || rep.Errors == nil {
		return "no report"
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%d: %d new, ", *rep.Rows, *rep.Created)
	for i, n := range []int{*rep.Replaced, *rep.Merged, *rep.Deleted} {
		if n > 0 {
			fmt.Fprintf(&text, "%d %s, ", n, []string{"replaced", "merged", "deleted"}[i])
		}
	}
	fmt.Fprintf(&text, "%d unchanged, %d rejected", *rep.Unchanged, *rep.Refused)
	if *rep.Stored {
		text.WriteString(", stored")
	}
	for _, e := range rep.Errors {
		fmt.Fprintf(&text, "; %d %d", e.Line, e.Error)
		if e.Message == "" {
			text.WriteString(" without a message")
		}
	}
	return text.String()
}

// CheckReport checks the code of an import, 0 for success, and its report.
func (r Response) CheckReport(t *testing.T, code int, want string) {
	t.Helper()
	if r.Status != StatusOf(code) || r.Code() != code || r.Summary() != want {
		t.Errorf("got %v, want error %d and the report %s", r, code, want)
	}
}

// Numbered returns rows of NDJSON with the ids from first to last.
func Numbered(first, last int64) string {
	var rows strings.Builder
	for id := first; id <= last; id++ {
		rows.WriteString(BodyOf(id) + "\n")
	}
	return rows.String()
}
