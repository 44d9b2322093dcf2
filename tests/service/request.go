package service

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"
)

// Response is a response to request, which is a method and a path.
type Response struct {
	request string
	Status  int
	Header  http.Header
	Body    string
}

// String returns the request, the status and the begin of the body.
func (r Response) String() string { return fmt.Sprintf("%s: %d %.1000s", r.request, r.Status, r.Body) }

// Code returns the error code in the body, or 0.
func (r Response) Code() int {
	var e struct{ Error int }
	_ = json.Unmarshal([]byte(r.Body), &e)
	return e.Error
}

// ETag returns the header ETag.
func (r Response) ETag() string { return r.Header.Get("ETag") }

// StoredPlant is a StoredPlant of the API.
type StoredPlant struct {
	ID        int64
	Name      string
	Tag       *string
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}

// Plant returns the plant in the body.
func (r Response) Plant() (p StoredPlant) {
	_ = json.Unmarshal([]byte(r.Body), &p)
	return p
}

// Plants returns the plants in a list.
func (r Response) Plants(t *testing.T) (plants []StoredPlant) {
	t.Helper()
	if err := json.Unmarshal([]byte(r.Body), &plants); err != nil {
		t.Fatalf("%v: %v", r, err)
	}
	return plants
}

// As returns the headers of a request with a token, and other headers.
func As(token string, headers ...string) []string {
	return append([]string{"Authorization", "Bearer " + token}, headers...)
}

// Connections keeps the connections of Call.
var Connections = &http.Transport{MaxIdleConnsPerHost: 4}

// Call sends a request with the token and headers, in pairs.
func (s *Service) Call(t *testing.T, method, path, body string, headers ...string) Response {
	t.Helper()
	return s.Over(t, Connections, method, path, body, As(Token, headers...)...)
}

// Post sends body to POST /plants with the token and headers, in pairs, on a
// connection of its own.
func (s *Service) Post(t *testing.T, body string, headers ...string) Response {
	t.Helper()
	return s.Send(t, http.MethodPost, "/plants", strings.NewReader(body), append(As(Token, "Content-Type", "application/json"), headers...)...)
}

// Get sends a GET without a token.
func (s *Service) Get(t *testing.T, path string, headers ...string) Response {
	t.Helper()
	return s.Send(t, http.MethodGet, path, nil, headers...)
}

// Send sends a request on a connection of its own. A header with an empty value is
// left out.
func (s *Service) Send(t *testing.T, method, path string, body io.Reader, headers ...string) Response {
	t.Helper()
	r, err := s.Try(method, path, body, headers...)
	Must(t, err)
	return r
}

// Over sends a request over transport.
func (s *Service) Over(t *testing.T, transport *http.Transport, method, path, body string, headers ...string) Response {
	t.Helper()
	r, err := s.TryOn(transport, method, path, strings.NewReader(body), headers...)
	Must(t, err)
	return r
}

// Try is Send for goroutines other than the test's.
func (s *Service) Try(method, path string, body io.Reader, headers ...string) (Response, error) {
	return s.TryOn(&http.Transport{DisableKeepAlives: true}, method, path, body, headers...)
}

// TryOn is Try over transport, which may keep its connection.
func (s *Service) TryOn(transport *http.Transport, method, path string, body io.Reader, headers ...string) (Response, error) {
	request, err := http.NewRequest(method, s.URL+path, body)
	if err != nil {
		return Response{}, err
	}
	for i := 0; i < len(headers); i += 2 {
		if request.Header.Del(headers[i]); headers[i+1] != "" {
			request.Header.Set(headers[i], headers[i+1])
		}
	}
	client := http.Client{
		Timeout:       Patience,
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := client.Do(request)
	if err != nil {
		return Response{}, err
	}
	return ReadResponse(resp)
}

// ReadResponse reads resp to its end and closes it.
func ReadResponse(resp *http.Response) (Response, error) {
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	r := Response{Status: resp.StatusCode, Header: resp.Header, Body: string(body)}
	if resp.Request != nil {
		r.request = resp.Request.Method + " " + resp.Request.URL.RequestURI()
	}
	return r, err
}

// ReadConn reads a response from conn.
func ReadConn(t *testing.T, conn net.Conn) Response {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	Must(t, err)
	r, err := ReadResponse(resp)
	if err != nil {
		t.Error(err)
	}
	return r
}

// Dial connects to the service until the test ends.
func (s *Service) Dial(t *testing.T) net.Conn {
	t.Helper()
	_, address, _ := strings.Cut(s.URL, "://")
	conn, err := net.DialTimeout("tcp", address, Patience)
	Must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	Must(t, conn.SetDeadline(time.Now().Add(Patience)))
	return conn
}

// Behind serves the service behind a reverse proxy that removes prefix from requests and may
// change responses. It returns the URL of the API there.
func (s *Service) Behind(t *testing.T, prefix string, change func(*http.Response) error) string {
	t.Helper()
	target, err := url.Parse(s.URL)
	Must(t, err)
	proxy := httptest.NewServer(http.StripPrefix(prefix, &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Header.Del("Accept-Encoding") // for change, which reads the response
		},
		ModifyResponse: change,
	}))
	t.Cleanup(proxy.Close)
	return proxy.URL + prefix
}

// On sends a request with the token over transport.
func (s *Service) On(t *testing.T, transport *http.Transport, method, path, contentType string, body io.Reader) Response {
	t.Helper()
	r, err := s.TryOn(transport, method, path, body, "Authorization", "Bearer "+Token, "Content-Type", contentType)
	Must(t, err)
	return r
}

// WatchedReader calls OnRead before each read.
type WatchedReader struct {
	io.Reader
	OnRead func()
}

// Read calls OnRead and reads.
func (r *WatchedReader) Read(p []byte) (int, error) {
	r.OnRead()
	return r.Reader.Read(p)
}
