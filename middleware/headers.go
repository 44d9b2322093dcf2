package middleware

import (
	"maps"
	"net/http"
	"slices"

	"github.com/gin-gonic/gin"
)

// policy forbids a browser to load anything for a response, or to show it in a frame.
// Only browsers from before 2018 would need X-Frame-Options for the latter.
const policy = "default-src 'none'; frame-ancestors 'none'"

// NoStore is the value of Cache-Control for a response that caches must not store.
const NoStore = "no-store"

// Headers sets the headers of every response. overTLS means that it is sent by HTTPS. While
// draining, a client sends its next request on another connection, and thus to another replica
// (RFC 9112, section 9.6; net/http sends a GOAWAY over HTTP/2). Pages of origins may call the API.
func Headers(overTLS bool, draining func() bool, origins []string) gin.HandlerFunc {
	always := http.Header{ // whose values responses share: net/http copies them
		"X-Content-Type-Options":  {"nosniff"},
		"Cache-Control":           {NoStore},
		"Content-Security-Policy": {policy},
	}
	if overTLS {
		always["Strict-Transport-Security"] = []string{"max-age=31536000"} // RFC 6797, section 7.2
	}
	return func(c *gin.Context) {
		to := c.Writer.Header()
		maps.Copy(to, always)
		if draining() {
			to.Set("Connection", "close")
		}
		if len(origins) > 0 {
			allowOrigin(c, to, origins)
		}
	}
}

// PositionHeader carries the position of a write in the database: in its response, or a response with
// changes, and in a request that must read it, although another token, or replica, has written it.
const PositionHeader = "Write-Position"

// SetHeader sets a header of the response under exactly this name. HTTP ignores case, but
// some clients do not, and [http.Header.Set] would turn ETag into Etag.
func SetHeader(c *gin.Context, name, value string) {
	r := RequestOf(c)
	r.values = append(r.values, value) // the values of a response share an array
	n := len(r.values)
	c.Writer.Header()[name] = r.values[n-1 : n : n]
}

// The headers that a page of another origin may send and read (Fetch standard, section
// 3.3), and for how many seconds a browser may cache that: Chromium's maximum.
const (
	corsMethods = "GET, HEAD, POST, PUT, PATCH, DELETE"
	corsHeaders = "Authorization, Content-Encoding, Content-Type, If-Match, If-None-Match, Last-Event-ID, baggage, sentry-trace, traceparent, tracestate, " + RequestIDHeader + ", " + PositionHeader
	corsExposed = "Accept-Encoding, Accept-Patch, Allow, Content-Disposition, ETag, Link, Location, Retry-After, RateLimit, RateLimit-Policy, WWW-Authenticate, X-Total-Count, " + RequestIDHeader + ", " + PositionHeader
	corsMaxAge  = "7200"
)

// allowOrigin lets pages of origins call the API from a browser, without cookies: a page sends
// its token itself. It responds to preflights, which have no token. Responses to other
// origins lack these headers, so that browsers hide them from the page.
func allowOrigin(c *gin.Context, header http.Header, origins []string) {
	header.Add("Vary", "Origin") // for caches, in every response
	origin := c.GetHeader("Origin")
	if !slices.Contains(origins, origin) {
		return
	}
	header.Set("Access-Control-Allow-Origin", origin)
	if c.Request.Method != http.MethodOptions || c.GetHeader("Access-Control-Request-Method") == "" {
		header.Set("Access-Control-Expose-Headers", corsExposed)
		return
	}
	header.Set("Access-Control-Allow-Methods", corsMethods)
	header.Set("Access-Control-Allow-Headers", corsHeaders)
	header.Set("Access-Control-Max-Age", corsMaxAge)
	c.AbortWithStatus(http.StatusNoContent)
}
