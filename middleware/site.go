package middleware

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"
)

// SiteError means that a web page may have sent a request to a service that is not for it.
type SiteError struct{ Reason string }

func (e *SiteError) Error() string { return e.Reason }

// OwnSite protects a service without tokens, or with a known token, from web pages: it rejects requests
// of pages of other origins than the service's own and origins, and requests to another Host than an
// address, localhost or one of hosts, which may be the name of such a page (DNS rebinding). A browser may
// follow a link of any page: the page cannot read the response.
func OwnSite(hosts, origins []string) Handler {
	protection := http.NewCrossOriginProtection()
	for _, origin := range origins {
		if err := protection.AddTrustedOrigin(origin); err != nil {
			panic(err) // config has checked them
		}
	}
	return func(c *gin.Context) error {
		host := c.Request.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		_, err := netip.ParseAddr(strings.Trim(host, "[]"))
		isKnown := func(name string) bool { return strings.EqualFold(name, host) }
		if err != nil && host != "" && !isKnown("localhost") && !slices.ContainsFunc(hosts, isKnown) { // HTTP/1.0 needs no Host
			return &SiteError{"the Host is unknown: call the service by an address or localhost, or add the name to server.allowed_hosts"}
		}
		unsafe := *c.Request
		unsafe.Method = http.MethodPost // the protection passes all reads
		isLink := c.Request.Method == http.MethodGet && c.GetHeader("Sec-Fetch-Dest") == "document"
		if !isLink && protection.Check(&unsafe) != nil {
			return &SiteError{"a web page of another origin has sent the request: add the origin of the page to server.cors_origins, which the admin address ignores"}
		}
		return nil
	}
}
