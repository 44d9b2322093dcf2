package api

import (
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"plantstore/tests/service"
)

// TestHeadersAreWrittenAsDocumented reads responses byte by byte: net/http would change
// the names of headers, and some clients look for exactly those of the document.
func TestHeadersAreWrittenAsDocumented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/openapi.json")
	service.Must(t, err)
	document, err := openapi3.NewLoader().LoadFromData(text)
	service.Must(t, err)
	unseen := maps.Clone(document.Components.Headers)
	s, _ := service.StartWithStandby(t, "PLANTSTORE_LIMITS_REQUESTS_PER_SECOND=1", "PLANTSTORE_LIMITS_BURST=5")
	const body = `{"id":1,"name":"Monstera deliciosa"}`
	for _, test := range []struct {
		request, token, body, status string
		headers                      []string
	}{
		{"POST /plants", service.Token, body, "200", []string{"ETag", "Location", "RateLimit", "RateLimit-Policy", "Write-Position", "X-Request-ID"}},
		{"PUT /plants/2", service.Token, `{"name":"Aloe vera"}`, "201", []string{"ETag", "Location", "Write-Position", "X-Request-ID"}},
		{"GET /plants/1", service.Token, "", "200", []string{"ETag", "X-Request-ID"}},
		{"GET /plants?limit=1&count=true", service.Token, "", "200", []string{"Link", "X-Request-ID", "X-Total-Count"}},
		{"GET /plants/export", service.Token, "", "200", []string{"Content-Disposition", "X-Request-ID"}},
		{"GET /plants/1", "", "", "401", []string{"WWW-Authenticate", "X-Request-ID"}},
		{"GET /plants", service.Token, "", "429", []string{"Retry-After", "RateLimit", "RateLimit-Policy", "X-Request-ID"}},
	} {
		t.Run(test.request+" "+test.status, func(t *testing.T) {
			for {
				head := rawHead(t, s, test.request, test.token, test.body)
				if test.status == "429" && !strings.HasPrefix(head, "HTTP/1.1 429 ") {
					continue // until the limit is reached
				}
				if !strings.HasPrefix(head, "HTTP/1.1 "+test.status+" ") {
					t.Fatalf("got %s, want %s", head, test.status)
				}
				for _, name := range test.headers {
					if !strings.Contains(head, "\r\n"+name+": ") {
						t.Errorf("got\n%s\nwant the header %s", head, name)
					}
					delete(unseen, name)
				}
				return
			}
		})
	}
	if len(unseen) > 0 {
		t.Errorf("no response had the documented headers %v", slices.Collect(maps.Keys(unseen)))
	}
}

// rawHead sends a request on a connection of its own, and returns the response up to its
// body, as it was received.
func rawHead(t *testing.T, s *service.Service, request, token, body string) string {
	t.Helper()
	conn, err := net.DialTimeout("tcp", strings.TrimPrefix(s.URL, "http://"), service.Patience)
	service.Must(t, err)
	defer conn.Close()
	service.Must(t, conn.SetDeadline(time.Now().Add(service.Patience)))
	authorization := ""
	if token != "" {
		authorization = "Authorization: Bearer " + token + "\r\n"
	}
	_, err = fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%sContent-Length: %d\r\n\r\n%s", request, authorization, len(body), body)
	service.Must(t, err)
	response, err := io.ReadAll(conn)
	service.Must(t, err)
	head, _, _ := strings.Cut(string(response), "\r\n\r\n")
	return head
}
