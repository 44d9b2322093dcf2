package tests

import (
	"regexp"
	"strings"
	"testing"
)

// TestDocsCanBeOff checks that nothing is left of the documentation, nor points to
// it.
func TestDocsCanBeOff(t *testing.T) {
	t.Parallel()
	s := start(t, "PLANTSTORE_DOCS_ENABLED=false")
	for _, method := range []string{"GET", "POST"} {
		for _, path := range []string{"/", "/openapi.json", "/swagger/index.html", "/swagger/swagger-ui-bundle.js", "/swagger/", "/nothing"} {
			a := s.send(method, path, nil)
			checkError(t, method+" "+path, a, 404, 40402)
			if strings.Contains(a.body, "swagger") {
				t.Errorf("%s %s points to Swagger UI: %s", method, path, a.body)
			}
		}
	}
	if a := s.post(`{"id":1,"name":"x"}`); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := start(t).get("/nothing"); !strings.Contains(a.body, "/swagger/index.html") {
		t.Errorf("with the documentation, no such path: %s", a.body)
	}

	quiet := launch(t, command(t, []string{"PORT=0", "PLANTSTORE_DOCS_ENABLED=false"}))
	quiet.stdout.await(quiet.ended, func(line string) bool { return strings.Contains(line, "Try it") })
	if welcome := quiet.stdout.String(); strings.Contains(strings.ToLower(welcome), "swagger") || !regexp.MustCompile(`Service +http://localhost:\d+\n`).MatchString(welcome) {
		t.Errorf("printed %q", welcome)
	}
}
