package tests

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// response is a response to request, which is a method and a path.
type response struct {
	request string
	status  int
	header  http.Header
	body    string
}

func (r response) String() string { return fmt.Sprintf("%s: %d %.1000s", r.request, r.status, r.body) }

// code returns the error code in the body, or 0.
func (r response) code() int {
	var e struct{ Error int }
	_ = json.Unmarshal([]byte(r.body), &e)
	return e.Error
}

func (r response) etag() string { return r.header.Get("ETag") }

// storedPlant is a StoredPlant of the API.
type storedPlant struct {
	ID        int64
	Name      string
	Tag       *string
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}

func (r response) plant() (p storedPlant) {
	_ = json.Unmarshal([]byte(r.body), &p)
	return p
}

func (r response) plants(t *testing.T) (plants []storedPlant) {
	t.Helper()
	if err := json.Unmarshal([]byte(r.body), &plants); err != nil {
		t.Fatalf("%v: %v", r, err)
	}
	return plants
}

// idsOf returns the ids in a list, separated by spaces.
func (r response) idsOf(t *testing.T) string {
	t.Helper()
	var ids []string
	for _, p := range r.plants(t) {
		ids = append(ids, strconv.FormatInt(p.ID, 10))
	}
	return strings.Join(ids, " ")
}

// next returns the path of the next page, or an empty string.
func (r response) next() string {
	link := regexp.MustCompile(`^<(/\w+\?[!-;=?-~]+)>; rel="next"$`).FindStringSubmatch(r.header.Get("Link"))
	if link == nil {
		return r.header.Get("Link")
	}
	return link[1]
}

// as returns the headers of a request with a token, and other headers.
func as(token string, headers ...string) []string {
	return append([]string{"Authorization", "Bearer " + token}, headers...)
}

// connections keeps the connections of call.
var connections = &http.Transport{MaxIdleConnsPerHost: 4}

// call sends a request with the token and headers, in pairs.
func (s *service) call(t *testing.T, method, path, body string, headers ...string) response {
	t.Helper()
	return s.over(t, connections, method, path, body, as(token, headers...)...)
}

// post sends body to POST /plants with the token and headers, in pairs, on a
// connection of its own.
func (s *service) post(t *testing.T, body string, headers ...string) response {
	t.Helper()
	return s.send(t, http.MethodPost, "/plants", strings.NewReader(body), append(as(token, "Content-Type", "application/json"), headers...)...)
}

// get sends a GET without a token.
func (s *service) get(t *testing.T, path string, headers ...string) response {
	t.Helper()
	return s.send(t, http.MethodGet, path, nil, headers...)
}

// send sends a request on a connection of its own. A header with an empty value is
// left out.
func (s *service) send(t *testing.T, method, path string, body io.Reader, headers ...string) response {
	t.Helper()
	r, err := s.try(method, path, body, headers...)
	must(t, err)
	return r
}

// over sends a request over transport.
func (s *service) over(t *testing.T, transport *http.Transport, method, path, body string, headers ...string) response {
	t.Helper()
	r, err := s.tryOn(transport, method, path, strings.NewReader(body), headers...)
	must(t, err)
	return r
}

// try is send for goroutines other than the test's.
func (s *service) try(method, path string, body io.Reader, headers ...string) (response, error) {
	return s.tryOn(&http.Transport{DisableKeepAlives: true}, method, path, body, headers...)
}

// tryOn is try over transport, which may keep its connection.
func (s *service) tryOn(transport *http.Transport, method, path string, body io.Reader, headers ...string) (response, error) {
	request, err := http.NewRequest(method, s.url+path, body)
	if err != nil {
		return response{}, err
	}
	for i := 0; i < len(headers); i += 2 {
		if request.Header.Del(headers[i]); headers[i+1] != "" {
			request.Header.Set(headers[i], headers[i+1])
		}
	}
	client := http.Client{
		Timeout:       patience,
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := client.Do(request)
	if err != nil {
		return response{}, err
	}
	return readResponse(resp)
}

// readResponse reads resp to its end and closes it.
func readResponse(resp *http.Response) (response, error) {
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	r := response{status: resp.StatusCode, header: resp.Header, body: string(body)}
	if resp.Request != nil {
		r.request = resp.Request.Method + " " + resp.Request.URL.RequestURI()
	}
	return r, err
}

// checkStatus reports an error if the status is another.
func checkStatus(t *testing.T, r response, status int) {
	t.Helper()
	if r.status != status {
		t.Errorf("got %v, want %d", r, status)
	}
}

// requireOK ends the test if the status is not 200 or, after a PUT, 201.
func requireOK(t *testing.T, r response) {
	t.Helper()
	if r.status != http.StatusOK && r.status != http.StatusCreated {
		t.Fatalf("got %v, want 200 or 201", r)
	}
}

// statusOf returns the status of responses with an error code, or 200 if it is 0.
func statusOf(code int) int {
	switch status := code / 100; status {
	case 0:
		return 200
	case 413, 415:
		return 400
	default:
		return status
	}
}

// checkCode is checkError or, if code is 0, checks for status 200.
func checkCode(t *testing.T, r response, code int) {
	t.Helper()
	if code == 0 {
		checkStatus(t, r, 200)
	} else {
		checkError(t, r, code)
	}
}

// headersOf are the headers that a response with an error has, by its status.
var headersOf = map[int][]string{
	401: {"WWW-Authenticate"}, 403: {"WWW-Authenticate"}, 405: {"Allow"}, 429: {"Retry-After", "RateLimit"}, 503: {"Retry-After"},
}

// checkError checks each field of an error, that its message has each of mentions, and the headers
// of its status.
func checkError(t *testing.T, r response, code int, mentions ...string) {
	t.Helper()
	if r.status != statusOf(code) || r.code() != code {
		t.Errorf("got %v, want %d with error %d", r, statusOf(code), code)
		return
	}
	if !regexp.MustCompile(`^\{"error":\d{5},"message":"(\\.|[^"\\]){1,400}"\}$`).MatchString(r.body) {
		t.Errorf("got %v, want an Error", r)
	}
	for _, text := range mentions {
		if !strings.Contains(r.body, strings.ReplaceAll(text, `"`, `\"`)) {
			t.Errorf("got %v, want %s in the message", r, text)
		}
	}
	for _, header := range headersOf[r.status] {
		checkHas(t, r, header)
	}
	checkJSON(t, r)
}

// checkStored checks a StoredPlant. Content is its JSON without the times.
func checkStored(t *testing.T, r response, content string) {
	t.Helper()
	status, location := 200, r.header.Get("Location")
	if location != "" {
		status = 201
	}
	if got := withoutTimes(r.body); r.status != status || got != content {
		t.Errorf("got %v with Location %q, want %d %s with its times", r, location, status, content)
		return
	}
	checkJSON(t, r)
	checkETag(t, r)
}

// times are the last fields of a StoredPlant.
var times = regexp.MustCompile(`,"created_at":"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z)","updated_at":"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z)"\}`)

func withoutTimes(body string) string { return times.ReplaceAllString(body, "}") }

// checkETag checks that a response has a strong ETag.
func checkETag(t *testing.T, r response) {
	t.Helper()
	if !regexp.MustCompile(`^"[!#-~]+"$`).MatchString(r.etag()) {
		t.Errorf("%v: got ETag %q, want a strong one", r, r.etag())
	}
}

// checkEmpty checks a response without a body.
func checkEmpty(t *testing.T, r response, status int) {
	t.Helper()
	if r.status != status || r.body != "" {
		t.Errorf("got %v, want %d without a body", r, status)
	}
	checkHeaders(t, r)
}

func checkJSON(t *testing.T, r response) {
	t.Helper()
	checkHeader(t, r, "Content-Type", "application/json")
	checkHeaders(t, r)
}

// checkHeader checks the first value of a header, which is empty if there is no such
// header.
func checkHeader(t *testing.T, r response, header, want string) {
	t.Helper()
	if got := r.header.Get(header); got != want {
		t.Errorf("%v: got %s %q, want %q", r, header, got, want)
	}
}

// checkHas checks that a response has a header, such as Retry-After.
func checkHas(t *testing.T, r response, header string) {
	t.Helper()
	if r.header.Get(header) == "" {
		t.Errorf("%v: got no %s", r, header)
	}
}

// checkHeaders checks the headers common to all responses of the API.
func checkHeaders(t *testing.T, r response) {
	t.Helper()
	cache := `^no-store$`
	if r.etag() != "" {
		cache = `^private, no-cache$`
	}
	for header, want := range map[string]string{
		"X-Request-ID":            `^[A-Za-z0-9._-]{1,64}$`,
		"X-Content-Type-Options":  `^nosniff$`,
		"Cache-Control":           cache,
		"Referrer-Policy":         `^no-referrer$`,
		"Content-Security-Policy": `^default-src 'none'; frame-ancestors 'none'$`,
	} {
		if got := r.header.Values(header); len(got) != 1 || !regexp.MustCompile(want).MatchString(got[0]) {
			t.Errorf("%v: got %s %q, want %s", r, header, got, want)
		}
	}
	checkHeader(t, r, "Access-Control-Allow-Origin", "")
}

// must ends the test if err is not nil.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually waits until condition holds.
func eventually(t *testing.T, awaited string, condition func() bool) {
	t.Helper()
	ticker := time.NewTicker(2 * time.Millisecond)
	defer ticker.Stop()
	for deadline := time.Now().Add(patience); !condition(); <-ticker.C {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v for %s", patience, awaited)
		}
	}
}

// receive waits for the next value from channel.
func receive[T any](t *testing.T, channel <-chan T) (value T) {
	t.Helper()
	select {
	case value = <-channel:
	case <-time.After(patience):
		t.Fatalf("received nothing within %v", patience)
	}
	return value
}

// readConn reads a response from conn.
func readConn(t *testing.T, conn net.Conn) response {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	must(t, err)
	r, err := readResponse(resp)
	if err != nil {
		t.Error(err)
	}
	return r
}

// checkSame checks that two responses have the same plant and version.
func checkSame(t *testing.T, got, want response) {
	t.Helper()
	if got.body != want.body || got.etag() != want.etag() {
		t.Errorf("got %v with ETag %s, want %s with ETag %s", got, got.etag(), want.body, want.etag())
	}
}
