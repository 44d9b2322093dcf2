package middleware_test

import (
	"errors"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"

	"plantstore/middleware"
)

// TestOwnSite has the headers that browsers, probes and other clients send.
func TestOwnSite(t *testing.T) {
	own := middleware.Handle(middleware.OwnSite([]string{"plants.internal"}, []string{"https://app.example.org"}))
	const link, image, write = "GET Sec-Fetch-Dest: document", "GET Sec-Fetch-Dest: image", "POST Sec-Fetch-Dest: empty"
	for _, test := range []struct {
		name, host, request, site, origin string
		want                              string // a part of the message, or "" if it is accepted
	}{
		{name: "a probe of Kubernetes", host: "10.0.0.7:9090", request: "GET"},
		{name: "a probe of HTTP/1.0", request: "GET"},
		{name: "an address of IPv6", host: "[2001:db8::1]:9090", request: "GET"},
		{name: "an address without a port", host: "127.0.0.1", request: "GET"},
		{name: "localhost", host: "LocalHost:8080", request: "GET"},
		{name: "a configured name", host: "Plants.internal:9090", request: "GET"},
		{name: "another name, as of DNS rebinding", host: "attacker.example:9090", request: "GET", want: "server.allowed_hosts"},
		{name: "a name below a configured name", host: "x.plants.internal", request: "GET", want: "server.allowed_hosts"},
		{name: "a name that begins like an address", host: "127.0.0.1.attacker.example", request: "GET", want: "server.allowed_hosts"},
		{name: "another name, although its own page asks", host: "attacker.example:9090", request: image, site: "same-origin", origin: "http://attacker.example:9090", want: "server.allowed_hosts"},
		{name: "an own page", host: "localhost:8080", request: write, site: "same-origin", origin: "http://localhost:8080"},
		{name: "an own page in an old browser", host: "localhost:8080", request: write, origin: "http://localhost:8080"},
		{name: "an address that a person types", host: "localhost:8080", request: link, site: "none"},
		{name: "an image of another site", host: "localhost:9090", request: image, site: "cross-site", want: "server.cors_origins"},
		{name: "an image of another port", host: "localhost:9090", request: image, site: "same-site", want: "server.cors_origins"},
		{name: "a link of another site", host: "localhost:8080", request: link, site: "cross-site"},
		{name: "a form of another site", host: "localhost:8080", request: "POST Sec-Fetch-Dest: document", site: "cross-site", origin: "https://attacker.example", want: "server.cors_origins"},
		{name: "a read of another origin in an old browser", host: "localhost:8080", request: "GET", origin: "https://attacker.example", want: "server.cors_origins"},
		{name: "a page without an origin", host: "localhost:8080", request: "GET", origin: "null", want: "server.cors_origins"},
		{name: "a configured origin", host: "localhost:8080", request: write, site: "cross-site", origin: "https://app.example.org"},
		{name: "an image of a configured origin, which does not tell", host: "localhost:8080", request: image, site: "cross-site", want: "server.cors_origins"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, _ := gin.CreateTestContext(httptest.NewRecorder())
			method, header, _ := strings.Cut(test.request, " ")
			name, value, _ := strings.Cut(header, ": ")
			c.Request = httptest.NewRequest(method, "/", nil)
			c.Request.Host = test.host
			for name, value := range map[string]string{name: value, "Sec-Fetch-Site": test.site, "Origin": test.origin} {
				if value != "" {
					c.Request.Header.Set(name, value)
				}
			}
			own(c)
			site, isSite := errors.AsType[*middleware.SiteError](rejection(c))
			if isSite != (test.want != "") || isSite && !strings.Contains(site.Error(), test.want) || c.Request.Method != method {
				t.Errorf("got %v, want an error with %q", rejection(c), test.want)
			}
		})
	}
}
