package tests

import (
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
