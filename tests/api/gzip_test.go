package api

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"plantstore/tests/service"
)

// raw sends a request over a transport that leaves Accept-Encoding and bodies as they are.
func raw(t *testing.T, s *service.Service, method, path, acceptEncoding string, headers ...string) service.Response {
	t.Helper()
	transport := &http.Transport{DisableCompression: true, DisableKeepAlives: true}
	return s.Over(t, transport, method, path, "", service.As(service.Token, append(headers, "Accept-Encoding", acceptEncoding)...)...)
}

func TestGzipResponses(t *testing.T) {
	t.Parallel()
	s := service.Start(t)
	s.ImportRows(t, "", service.InNDJSON, service.Numbered(1, 900)).RequireOK(t)
	long := strings.Repeat("x", 255)
	s.Call(t, "PUT", "/plants/1000", fmt.Sprintf(`{"name":"%s","tag":"%[1]s"}`, long)).RequireOK(t)
	for i := range 20 {
		s.Call(t, "POST", "/tokens", fmt.Sprintf(`{"name":"token %d","scopes":["plants:read"]}`, i)).RequireOK(t)
	}
	for _, path := range []string{
		"/plants", "/plants?limit=1000", "/plants?q=plant", "/tokens", "/plants/export", "/plants/export?after=800", "/plants/changes?after=0",
		"/", "/docs/api.md", "/openapi.json", "/swagger/index.html", "/swagger/swagger-ui-bundle.js", "/swagger/swagger-ui.css",
	} {
		plain := raw(t, s, "GET", path, "")
		for _, test := range []struct {
			accept  string
			gzipped bool
		}{
			{accept: "gzip", gzipped: true},
			{accept: "GZIP", gzipped: true},
			{accept: "gzip, deflate, br, zstd", gzipped: true},
			{accept: "br;q=1.0, gzip;q=0.001", gzipped: true},
			{accept: "gzip;q=1.0, identity; q=0.5, *;q=0", gzipped: true},
			{accept: "identity;q=0, gzip;q=0.2", gzipped: true},
			{accept: "*", gzipped: true},
			{accept: "gzip;q=0.5, *;q=0.4", gzipped: true},
			{accept: "gzip;q=0.5, *;q=0.9"},
			{accept: ""},
			{accept: "identity"},
			{accept: "gzip;q=0"},
			{accept: "gzip;q=0.0, identity"},
			{accept: "identity, gzip;q=0.5"},
			{accept: "gzip;q=x"},
			{accept: "gzip;q=2"},
			{accept: "br, zstd"},
			{accept: "gzipped"},
			{accept: "gzip;x=" + strings.Repeat("x", 256)}, // too long to be read
		} {
			t.Run(path+" with "+test.accept, func(t *testing.T) {
				r := raw(t, s, "GET", path, test.accept)
				if values := r.Header.Values("Vary"); !slices.Contains(values, "Accept-Encoding") {
					t.Errorf("got Vary %q, want Accept-Encoding", values)
				}
				coding, content := "", r.Body
				if test.gzipped {
					coding = "gzip"
					var err error
					content, err = service.Unzip(r.Body)
					service.Must(t, err)
				}
				r.CheckHeader(t, "Content-Encoding", coding)
				if r.Status != 200 || content != plain.Body {
					t.Errorf("got %d with %d bytes, want the %d of a plain response", r.Status, len(content), len(plain.Body))
				}
				r.CheckHeader(t, "Content-Type", plain.Header.Get("Content-Type"))
				r.CheckHeader(t, "ETag", plain.ETag())
				if !strings.Contains(path, "export") { // which is a stream
					r.CheckHeader(t, "Content-Length", strconv.Itoa(len(r.Body)))
				}
				if test.gzipped && len(r.Body) > len(plain.Body)/2 {
					t.Errorf("got %d bytes, want less than half of %d", len(r.Body), len(plain.Body))
				}
				head := raw(t, s, "HEAD", path, test.accept)
				head.CheckStatus(t, 200)
				if !strings.Contains(path, "export") {
					head.CheckHeader(t, "Content-Encoding", coding)
					head.CheckHeader(t, "Content-Length", r.Header.Get("Content-Length"))
				}
			})
		}
	}
	t.Run("an export in CSV", func(t *testing.T) {
		r := raw(t, s, "GET", "/plants/export", "gzip", "Accept", service.InCSV)
		content, err := service.Unzip(r.Body)
		if err != nil || content != s.Export(t, service.InCSV) || len(content) < 10_000 {
			t.Errorf("got %d bytes, %v, want the whole export", len(content), err)
		}
		if vary := strings.Join(r.Header.Values("Vary"), ", "); vary != "Accept, Accept-Encoding" {
			t.Errorf("got Vary %q, want both", vary)
		}
	})
	for _, path := range []string{
		"/plants?limit=2",           // less than 1 KiB
		"/plants/1", "/plants/1000", // of which the latter is not small
		"/plants?limit=x", "/healthz",
	} {
		t.Run(path+" is not compressed", func(t *testing.T) {
			r := raw(t, s, "GET", path, "gzip")
			r.CheckHeader(t, "Content-Encoding", "")
			if _, err := service.Unzip(r.Body); err == nil {
				t.Errorf("got %v, want a plain body", r)
			}
		})
	}
}

// TestDocumentsAreCached asks again for what the client has.
func TestDocumentsAreCached(t *testing.T) {
	t.Parallel()
	s := service.Start(t)
	for _, path := range []string{"/", "/docs/api.md", "/openapi.json", "/swagger/index.html", "/swagger/swagger-initializer.js", "/swagger/swagger-ui-bundle.js", "/swagger/swagger-ui.css", "/swagger/favicon-32x32.png"} {
		t.Run(path, func(t *testing.T) {
			first := raw(t, s, "GET", path, "")
			first.CheckStatus(t, 200)
			first.CheckHeader(t, "Cache-Control", "private, no-cache")
			for _, accept := range []string{"", "gzip"} {
				for name, test := range map[string]struct {
					tag    string
					status int
				}{
					"the version":            {first.ETag(), 304},
					"the version, strong":    {strings.TrimPrefix(first.ETag(), "W/"), 304},
					"the version and others": {`"x", ` + first.ETag(), 304},
					"any version":            {"*", 304},
					"another version":        {`W/"x"`, 200},
				} {
					t.Run(name+" "+accept, func(t *testing.T) {
						for _, method := range []string{"GET", "HEAD"} {
							r := raw(t, s, method, path, accept, "If-None-Match", test.tag)
							r.CheckStatus(t, test.status)
							r.CheckHeader(t, "ETag", first.ETag())
							r.CheckHeader(t, "Cache-Control", "private, no-cache")
							r.CheckHeader(t, "Content-Security-Policy", first.Header.Get("Content-Security-Policy")) // a 304 replaces it
							if test.status == 304 && (r.Body != "" || r.Header.Get("Content-Encoding") != "" || r.Header.Get("Content-Type") != "") {
								t.Errorf("got %v with %v, want no body", r, r.Header)
							}
						}
					})
				}
			}
		})
	}
	// A redirect and an Error are neither.
	for _, path := range []string{"/swagger", "/swagger/nothing"} {
		s.Get(t, path).CheckHeader(t, "Cache-Control", "no-store")
	}
}
