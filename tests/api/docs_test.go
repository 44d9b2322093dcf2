package api

import (
	"path/filepath"
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
		for _, path := range []string{"/", "/docs/api.md", "/docs/home.js", "/openapi.json", "/swagger/index.html", "/swagger/swagger-ui-bundle.js", "/swagger", "/swagger/", "/nothing"} {
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

// TestFirstPage follows the links of the first page, which has a link to each page in docs/.
func TestFirstPage(t *testing.T) {
	t.Parallel()
	s := service.Start(t)
	page := s.Get(t, "/")
	page.CheckStatus(t, 200)
	linked := make(map[string]bool)
	for _, link := range regexp.MustCompile(`(?:href|src)="\.([^"]+)"`).FindAllStringSubmatch(page.Body, -1) {
		linked[link[1]] = true
		t.Run(link[1], func(t *testing.T) {
			r := s.Get(t, link[1])
			r.CheckStatus(t, 200)
			if strings.HasSuffix(link[1], ".md") { // which browsers would otherwise save to a file
				r.CheckHeader(t, "Content-Type", "text/plain; charset=utf-8")
			}
		})
	}
	pages, err := filepath.Glob("../../docs/*.md")
	service.Must(t, err)
	for _, name := range pages {
		if !linked["/docs/"+filepath.Base(name)] {
			t.Errorf("got no link to %s", name)
		}
	}
	if n := strings.Count(page.Body, `href="`); n != strings.Count(page.Body, `href="./`) {
		t.Error("got a link that leaves the service")
	}
}
