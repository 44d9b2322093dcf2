package tests

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
)

// TestClientAddress reads the client address from the access log. The test is the proxy,
// 127.0.0.1.
func TestClientAddress(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		trusted string
		headers http.Header
		client  string
	}{
		{"no proxy is trusted", "", http.Header{"X-Forwarded-For": {"203.0.113.7"}}, "127.0.0.1"},
		{"another is trusted", "10.0.0.0/8", http.Header{"X-Forwarded-For": {"203.0.113.7"}}, "127.0.0.1"},
		{"the peer is trusted", "127.0.0.1", http.Header{"X-Forwarded-For": {"203.0.113.7"}}, "203.0.113.7"},
		{"the range of the peer is trusted", "127.0.0.0/8", http.Header{"X-Forwarded-For": {"2001:db8::7"}}, "2001:db8::7"},
		{"no header", "127.0.0.1", nil, "127.0.0.1"},
		{"two proxies", "127.0.0.1,10.0.0.0/8", http.Header{"X-Forwarded-For": {"203.0.113.7, 10.1.2.3"}}, "203.0.113.7"},
		{"the client forged an entry", "127.0.0.1,10.0.0.0/8", http.Header{"X-Forwarded-For": {"198.51.100.1, 203.0.113.7, 10.1.2.3"}}, "203.0.113.7"},
		{"the client forged a header", "127.0.0.1", http.Header{"X-Forwarded-For": {"198.51.100.1", "203.0.113.7"}}, "203.0.113.7"},
		{"the client forged a proxy", "127.0.0.1,10.0.0.0/8", http.Header{"X-Forwarded-For": {"10.9.9.9, 203.0.113.7"}}, "203.0.113.7"},
		{"no address", "127.0.0.1", http.Header{"X-Forwarded-For": {"203.0.113.7, unknown"}}, "127.0.0.1"},
		{"other headers", "127.0.0.1", http.Header{"X-Real-Ip": {"203.0.113.7"}, "Forwarded": {"for=203.0.113.7"}, "Cf-Connecting-Ip": {"203.0.113.7"}}, "127.0.0.1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := start(t, "PLANTSTORE_SERVER_TRUSTED_PROXIES="+test.trusted)
			request, err := http.NewRequest(http.MethodGet, s.url+"/plants", nil)
			must(t, err)
			if test.headers != nil {
				request.Header = test.headers
			}
			resp, err := http.DefaultClient.Do(request)
			must(t, err)
			_ = resp.Body.Close()
			if client := s.awaitLog(t, "request")["client"]; client != test.client {
				t.Errorf("got client %v, want %s", client, test.client)
			}
		})
	}
}

// TestBasePath follows the addresses in responses behind a proxy that removes a prefix.
func TestBasePath(t *testing.T) {
	t.Parallel()
	s := start(t, "PLANTSTORE_SERVER_BASE_PATH=/our/store")
	base := s.behind(t, "/our/store", nil)
	proxy := &service{url: strings.TrimSuffix(base, "/our/store")}
	for i := range 3 {
		r := proxy.call(t, "POST", "/our/store/plants", fmt.Sprintf(`{"id":%d,"name":"x"}`, i))
		requireOK(t, r)
		checkHeader(t, r, "Location", fmt.Sprintf("/our/store/plants/%d", i))
		checkStatus(t, proxy.call(t, "GET", r.header.Get("Location"), ""), 200)
	}
	created := proxy.call(t, "PUT", "/our/store/plants/9", `{"name":"x"}`)
	checkHeader(t, created, "Location", "/our/store/plants/9")
	first := proxy.call(t, "GET", "/our/store/plants?limit=2", "")
	checkHeader(t, first, "Link", `</our/store/plants?after=1&limit=2>; rel="next"`)
	if ids := proxy.call(t, "GET", "/our/store/plants?after=1&limit=2", "").idsOf(t); ids != "2 9" {
		t.Errorf("got plants %s on the second page, want 2 9", ids)
	}
	if document := proxy.call(t, "GET", "/our/store/openapi.json", ""); !strings.Contains(document.body, `"url": "/our/store"`) {
		t.Error("the document does not name the server /our/store")
	}
	checkError(t, proxy.call(t, "GET", "/our/store/nothing", ""), 40402, "/our/store/swagger/index.html")
	for path, want := range map[string]string{
		"": "/our/store/swagger/index.html", "/": "/our/store/swagger/index.html", "/swagger": "/our/store/swagger/index.html",
		"/swagger/": "index.html", // relative to the path
	} {
		t.Run(path, func(t *testing.T) {
			r := proxy.call(t, "GET", "/our/store"+path, "")
			checkStatus(t, r, 302)
			checkHeader(t, r, "Location", want)
		})
	}
}

// behind serves the service behind a reverse proxy that removes prefix from requests and may
// change responses. It returns the URL of the API there.
func (s *service) behind(t *testing.T, prefix string, change func(*http.Response) error) string {
	t.Helper()
	target, err := url.Parse(s.url)
	must(t, err)
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
