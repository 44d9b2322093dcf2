package tests

import (
	"net/http"
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
