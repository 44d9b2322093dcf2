package api

import (
	"regexp"
	"strings"
	"testing"

	"plantstore/tests/service"
)

// TestDocsCanBeOff checks that without documentation no response or output mentions it.
func TestDocsCanBeOff(t *testing.T) {
	t.Parallel()
	s := service.Start(t, "PLANTSTORE_DOCS_ENABLED=false")
	for _, method := range []string{"GET", "POST"} {
		for _, path := range []string{"/", "/openapi.json", "/swagger/index.html", "/swagger/swagger-ui-bundle.js", "/swagger", "/swagger/", "/nothing"} {
			t.Run(method+" "+path, func(t *testing.T) {
				r := s.Send(t, method, path, nil)
				r.CheckError(t, 40402)
				if strings.Contains(r.Body, "swagger") {
					t.Errorf("got %v, want no mention of Swagger UI", r)
				}
			})
		}
	}
	s.Post(t, `{"id":1,"name":"x"}`).CheckStatus(t, 200)
	if r := service.Start(t).Get(t, "/nothing"); !strings.Contains(r.Body, "/swagger/index.html") {
		t.Errorf("got %v, want a mention of Swagger UI", r)
	}

	quiet := service.Launch(t, service.Command(t, []string{"PORT=0", "PLANTSTORE_DOCS_ENABLED=false"}))
	quiet.Stdout.Await(quiet.Ended, func(line string) bool { return strings.Contains(line, "Try it") })
	if welcome := quiet.Stdout.String(); strings.Contains(strings.ToLower(welcome), "swagger") || !regexp.MustCompile(`Service +http://localhost:\d+\n`).MatchString(welcome) {
		t.Errorf("got output %q, want no mention of Swagger UI", welcome)
	}
}
