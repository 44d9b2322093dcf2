package api

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"plantstore/tests/service"
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
			s := service.Start(t, "PLANTSTORE_SERVER_TRUSTED_PROXIES="+test.trusted)
			request, err := http.NewRequest(http.MethodGet, s.URL+"/plants", nil)
			service.Must(t, err)
			if test.headers != nil {
				request.Header = test.headers
			}
			resp, err := http.DefaultClient.Do(request)
			service.Must(t, err)
			_ = resp.Body.Close()
			if client := s.AwaitLog(t, "request")["client"]; client != test.client {
				t.Errorf("got client %v, want %s", client, test.client)
			}
		})
	}
}

// TestBasePath follows the addresses in responses behind a proxy that removes a prefix.
func TestBasePath(t *testing.T) {
	t.Parallel()
	s := service.Start(t, "PLANTSTORE_SERVER_BASE_PATH=/our/store")
	base := s.Behind(t, "/our/store", nil)
	proxy := &service.Service{URL: strings.TrimSuffix(base, "/our/store")}
	for i := range 3 {
		r := proxy.Call(t, "POST", "/our/store/plants", fmt.Sprintf(`{"id":%d,"name":"x"}`, i))
		r.RequireOK(t)
		r.CheckHeader(t, "Location", fmt.Sprintf("/our/store/plants/%d", i))
		proxy.Call(t, "GET", r.Header.Get("Location"), "").CheckStatus(t, 200)
	}
	created := proxy.Call(t, "PUT", "/our/store/plants/9", `{"name":"x"}`)
	created.CheckHeader(t, "Location", "/our/store/plants/9")
	first := proxy.Call(t, "GET", "/our/store/plants?limit=2", "")
	first.CheckHeader(t, "Link", `</our/store/plants?after=1&limit=2>; rel="next"`)
	if ids := idsOf(t, proxy.Call(t, "GET", "/our/store/plants?after=1&limit=2", "")); ids != "2 9" {
		t.Errorf("got plants %s on the second page, want 2 9", ids)
	}
	if document := proxy.Call(t, "GET", "/our/store/openapi.json", ""); !strings.Contains(document.Body, `"url": "/our/store"`) {
		t.Error("the document does not name the server /our/store")
	}
	proxy.Call(t, "GET", "/our/store/nothing", "").CheckError(t, 40402, "/our/store/swagger/index.html")
	for _, path := range []string{"", "/"} { // relative addresses would not work without the / at the end
		if page := proxy.Call(t, "GET", "/our/store"+path, ""); !strings.Contains(page.Body, `src="/our/store/docs/home.js"`) || strings.Contains(page.Body, `"./`) {
			t.Errorf("got %v from %q, want addresses below /our/store", page, path)
		}
	}
	for path, want := range map[string]string{
		"/swagger":  "/our/store/swagger/index.html",
		"/swagger/": "index.html", // relative to the path
	} {
		t.Run(path, func(t *testing.T) {
			r := proxy.Call(t, "GET", "/our/store"+path, "")
			r.CheckStatus(t, 302)
			r.CheckHeader(t, "Location", want)
		})
	}
}
