package tests

import (
	"compress/gzip"
	"io"
	"regexp"
	"strings"
	"testing"
)

// TestDocsCanBeOff checks that without documentation no response or output mentions it.
func TestDocsCanBeOff(t *testing.T) {
	t.Parallel()
	s := start(t, "PLANTSTORE_DOCS_ENABLED=false")
	for _, method := range []string{"GET", "POST"} {
		for _, path := range []string{"/", "/openapi.json", "/swagger/index.html", "/swagger/swagger-ui-bundle.js", "/swagger", "/swagger/", "/nothing"} {
			t.Run(method+" "+path, func(t *testing.T) {
				r := s.send(t, method, path, nil)
				checkError(t, r, 40402)
				if strings.Contains(r.body, "swagger") {
					t.Errorf("got %v, want no mention of Swagger UI", r)
				}
			})
		}
	}
	checkStatus(t, s.post(t, `{"id":1,"name":"x"}`), 200)
	if r := start(t).get(t, "/nothing"); !strings.Contains(r.body, "/swagger/index.html") {
		t.Errorf("got %v, want a mention of Swagger UI", r)
	}

	quiet := launch(t, command(t, []string{"PORT=0", "PLANTSTORE_DOCS_ENABLED=false"}))
	quiet.stdout.await(quiet.ended, func(line string) bool { return strings.Contains(line, "Try it") })
	if welcome := quiet.stdout.String(); strings.Contains(strings.ToLower(welcome), "swagger") || !regexp.MustCompile(`Service +http://localhost:\d+\n`).MatchString(welcome) {
		t.Errorf("got output %q, want no mention of Swagger UI", welcome)
	}
}

// TestDocsAreCompressed gets the files of Swagger UI as browsers do, and as clients that
// cannot decompress them.
func TestDocsAreCompressed(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, file := range []string{"swagger-ui-bundle.js", "swagger-ui.css"} {
		plain := s.get(t, "/swagger/"+file, "Accept-Encoding", "identity")
		checkStatus(t, plain, 200)
		for accept, compressed := range map[string]bool{"gzip, deflate, br": true, "br": false, "gzip;q=0": false} {
			t.Run(file+" "+accept, func(t *testing.T) {
				r := s.get(t, "/swagger/"+file, "Accept-Encoding", accept)
				checkStatus(t, r, 200)
				checkHeader(t, r, "Vary", "Accept-Encoding")
				body := r.body
				if compressed {
					checkHeader(t, r, "Content-Encoding", "gzip")
					reader, err := gzip.NewReader(strings.NewReader(r.body))
					must(t, err)
					text, err := io.ReadAll(reader)
					must(t, err)
					body = string(text)
				}
				if body != plain.body {
					t.Errorf("got %d bytes, want the %d bytes of the plain file", len(body), len(plain.body))
				}
			})
		}
	}
}
