package tests

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"plantstore/database/dbtest"
)

// gzipped returns texts compressed, each as a member of its own.
func gzipped(t *testing.T, texts ...string) string {
	t.Helper()
	var out bytes.Buffer
	for _, text := range texts {
		w := gzip.NewWriter(&out)
		_, err := io.WriteString(w, text)
		must(t, err)
		must(t, w.Close())
	}
	return out.String()
}

// unzip returns the content of a compressed text, up to an error.
func unzip(text string) (string, error) {
	r, err := gzip.NewReader(strings.NewReader(text))
	if err != nil {
		return "", err
	}
	content, err := io.ReadAll(r)
	return string(content), err
}

// raw sends a request over a transport that leaves Accept-Encoding and bodies as they are.
func (s *service) raw(t *testing.T, method, path, acceptEncoding string, headers ...string) response {
	t.Helper()
	transport := &http.Transport{DisableCompression: true, DisableKeepAlives: true}
	return s.over(t, transport, method, path, "", as(token, append(headers, "Accept-Encoding", acceptEncoding)...)...)
}

func TestGzipResponses(t *testing.T) {
	t.Parallel()
	s := start(t)
	requireOK(t, s.importRows(t, "", inNDJSON, numbered(1, 900)))
	long := strings.Repeat("x", 255)
	requireOK(t, s.call(t, "PUT", "/plants/1000", fmt.Sprintf(`{"name":"%s","tag":"%[1]s"}`, long)))
	for i := range 20 {
		requireOK(t, s.call(t, "POST", "/tokens", fmt.Sprintf(`{"name":"token %d","scopes":["plants:read"]}`, i)))
	}
	for _, path := range []string{
		"/plants", "/plants?limit=1000", "/plants?q=plant", "/tokens", "/plants/export", "/plants/export?after=800", "/plants/changes?after=0",
		"/openapi.json", "/swagger/index.html", "/swagger/swagger-ui-bundle.js", "/swagger/swagger-ui.css",
	} {
		plain := s.raw(t, "GET", path, "")
		for _, test := range []struct {
			accept  string
			gzipped bool
		}{
			{accept: "gzip", gzipped: true},
			{accept: "GZIP", gzipped: true},
			{accept: "X-GZIP", gzipped: true},
			{accept: "x-gzip;q=0, identity"},
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
		} {
			t.Run(path+" with "+test.accept, func(t *testing.T) {
				r := s.raw(t, "GET", path, test.accept)
				if values := r.header.Values("Vary"); !slices.Contains(values, "Accept-Encoding") {
					t.Errorf("got Vary %q, want Accept-Encoding", values)
				}
				coding, content := "", r.body
				if test.gzipped {
					coding = "gzip"
					var err error
					content, err = unzip(r.body)
					must(t, err)
				}
				checkHeader(t, r, "Content-Encoding", coding)
				if r.status != 200 || content != plain.body {
					t.Errorf("got %d with %d bytes, want the %d of a plain response", r.status, len(content), len(plain.body))
				}
				checkHeader(t, r, "Content-Type", plain.header.Get("Content-Type"))
				checkHeader(t, r, "ETag", plain.etag())
				if !strings.Contains(path, "export") { // which is a stream
					checkHeader(t, r, "Content-Length", strconv.Itoa(len(r.body)))
				}
				if test.gzipped && len(r.body) > len(plain.body)/2 {
					t.Errorf("got %d bytes, want less than half of %d", len(r.body), len(plain.body))
				}
				head := s.raw(t, "HEAD", path, test.accept)
				checkStatus(t, head, 200)
				if !strings.Contains(path, "export") {
					checkHeader(t, head, "Content-Encoding", coding)
					checkHeader(t, head, "Content-Length", r.header.Get("Content-Length"))
				}
			})
		}
	}
	t.Run("an export in CSV", func(t *testing.T) {
		r := s.raw(t, "GET", "/plants/export", "gzip", "Accept", inCSV)
		content, err := unzip(r.body)
		if err != nil || content != s.export(t, inCSV) || len(content) < 10_000 {
			t.Errorf("got %d bytes, %v, want the whole export", len(content), err)
		}
		if vary := strings.Join(r.header.Values("Vary"), ", "); vary != "Accept, Accept-Encoding" {
			t.Errorf("got Vary %q, want both", vary)
		}
	})
	for _, path := range []string{
		"/plants?limit=2", "/plants/export?after=899&tag=no", "/plants/export?after=880&q=plant+88", // less than 1 KiB
		"/plants/1", "/plants/1000", // of which the latter is not small
		"/plants?limit=x", "/healthz",
	} {
		t.Run(path+" is not compressed", func(t *testing.T) {
			r := s.raw(t, "GET", path, "gzip")
			checkHeader(t, r, "Content-Encoding", "")
			if _, err := unzip(r.body); err == nil {
				t.Errorf("got %v, want a plain body", r)
			}
		})
	}
}

// TestDocumentsAreCached asks again for what the client has.
func TestDocumentsAreCached(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, path := range []string{"/openapi.json", "/swagger/index.html", "/swagger/swagger-initializer.js", "/swagger/swagger-ui-bundle.js", "/swagger/swagger-ui.css", "/swagger/favicon-32x32.png"} {
		t.Run(path, func(t *testing.T) {
			first := s.raw(t, "GET", path, "")
			checkStatus(t, first, 200)
			checkHeader(t, first, "Cache-Control", "private, no-cache")
			for _, accept := range []string{"", "gzip"} {
				for name, test := range map[string]struct {
					tag    string
					status int
				}{
					"the version":            {first.etag(), 304},
					"the version, strong":    {strings.TrimPrefix(first.etag(), "W/"), 304},
					"the version and others": {`"x", ` + first.etag(), 304},
					"any version":            {"*", 304},
					"another version":        {`W/"x"`, 200},
				} {
					t.Run(name+" "+accept, func(t *testing.T) {
						for _, method := range []string{"GET", "HEAD"} {
							r := s.raw(t, method, path, accept, "If-None-Match", test.tag)
							checkStatus(t, r, test.status)
							checkHeader(t, r, "ETag", first.etag())
							checkHeader(t, r, "Cache-Control", "private, no-cache")
							checkHeader(t, r, "Content-Security-Policy", first.header.Get("Content-Security-Policy")) // a 304 replaces it
							if test.status == 304 && (r.body != "" || r.header.Get("Content-Encoding") != "" || r.header.Get("Content-Type") != "") {
								t.Errorf("got %v with %v, want no body", r, r.header)
							}
						}
					})
				}
			}
		})
	}
	// A redirect and an Error are neither.
	for _, path := range []string{"/", "/swagger/nothing"} {
		checkHeader(t, s.get(t, path), "Cache-Control", "no-store")
	}
}

// TestGzipExportIsCutOff ends compressed exports before their end: the part that arrived is
// no complete gzip stream, even where HTTP shows no end.
func TestGzipExportIsCutOff(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		s := start(t, "DATABASE_URL="+url)
		var rows strings.Builder
		choice := rand.New(rand.NewPCG(1, 2))
		random := func() string {
			text := make([]rune, 255)
			for i := range text {
				text[i] = rune(0x4e00 + choice.IntN(0x5000)) // hardly compressible
			}
			return string(text)
		}
		for id := range 12_000 {
			fmt.Fprintf(&rows, `{"id":%d,"name":"%s","tag":"%s"}`+"\n", id, random(), random())
		}
		requireOK(t, s.importRows(t, "", inNDJSON, rows.String()))
		for _, version := range []string{"1.0", "1.1"} {
			t.Run("HTTP/"+version, func(t *testing.T) {
				issued := issue(t, url)
				conn := s.dial(t)
				fmt.Fprintf(conn, "GET /plants/export HTTP/%s\r\nHost: x\r\nConnection: close\r\nAccept-Encoding: gzip\r\nAuthorization: Bearer %s\r\n\r\n", version, issued)
				start := make([]byte, 4096)
				_, err := io.ReadFull(conn, start)
				must(t, err)
				checkEmpty(t, s.call(t, "DELETE", "/tokens/"+prefixOf(issued), ""), 204)
				s.awaitRequests(t, "/plants/export", map[string]int{"1.0": 1, "1.1": 2}[version])
				rest, _ := io.ReadAll(conn) // a reset is no error here
				head, body, _ := strings.Cut(string(start)+string(rest), "\r\n\r\n")
				if version == "1.1" {
					var chunks strings.Builder
					for {
						_, after, ok := strings.Cut(body, "\r\n")
						size, err := strconv.ParseInt(strings.TrimSpace(strings.SplitN(body, "\r\n", 2)[0]), 16, 64)
						if !ok || err != nil || int(size) > len(after) {
							chunks.WriteString(after)
							break
						}
						chunks.WriteString(after[:size])
						body = strings.TrimPrefix(after[size:], "\r\n")
					}
					body = chunks.String()
				}
				if content, err := unzip(body); err == nil || !strings.Contains(head, "gzip") || !strings.HasPrefix(rows.String(), content[:min(len(content), 1000)]) {
					t.Errorf("got %d bytes of a complete export with the headers %s", len(content), head)
				}
			})
		}
	})
}

func TestImportGzip(t *testing.T) {
	t.Parallel()
	url := dbtest.SQLite(t)
	s := start(t, "DATABASE_URL="+url, "PLANTSTORE_BULK_MAX_BODY_BYTES=100000")
	rows, whole := numbered(1, 500), gzipped(t, numbered(1, 500))
	damaged := []byte(whole)
	damaged[len(damaged)/2] ^= 0xff
	wrongSum := []byte(whole)
	wrongSum[len(wrongSum)-8] ^= 1
	const stored = "500: 500 new, 0 unchanged, 0 rejected, stored"
	for _, test := range []struct {
		name, body string
		code       int
		want       string // the report, or a part of the message
	}{
		{"a file", whole, 0, stored},
		{"two members", gzipped(t, rows[:777], rows[777:]), 0, stored},
		{"an empty member at the end", gzipped(t, rows, ""), 0, stored},
		{"4,000 empty members", strings.Repeat(gzipped(t, ""), 4000) + whole, 0, stored},
		{"an empty file", gzipped(t, ""), 0, "0: 0 new, 0 unchanged, 0 rejected, stored"},
		{"an invalid row", gzipped(t, numbered(1, 1)+"{}\n"), 40004, "2: 1 new, 0 unchanged, 1 rejected; 2 40004"},
		{"no byte", "", 40001, "the body is empty, and not gzip"},
		{"a byte", whole[:1], 40001, "the gzip data of the body ends early"},
		{"a plain file", rows, 40001, "not gzip"},
		{"a file without its end", whole[:len(whole)-1], 40001, "the gzip data of the body ends early"},
		{"a half of a file", whole[:len(whole)/2], 40001, "the gzip data of the body ends early"},
		{"half a header", whole[:5], 40001, "the gzip data of the body ends early"},
		{"a damaged file", string(damaged), 40001, ""},
		{"a wrong checksum", string(wrongSum), 40001, "damaged"},
		{"bytes after the end", whole + "garbage, garbage", 40001, "not gzip"},
		{"zeros after the end", whole + strings.Repeat("\x00", 10_000), 0, stored},
		{"a zero after the end", whole + "\x00", 0, stored},
		{"garbage after zeros", whole + strings.Repeat("\x00", 512) + "garbage, garbage", 40001, "not gzip"},
		{"zeros before the start", "\x00\x00" + whole, 40001, "not gzip"},
		{"a second member without the end of its name", whole + "\x1f\x8b\x08\x08\x00\x00\x00\x00\x00\x03plan", 40001, "the gzip data of the body ends early"},
		{"half a second member", whole + whole[:len(whole)/2], 40001, "the gzip data of the body ends early"},
		{"content at the limit", gzipped(t, rows+strings.Repeat("\n", 100_000-len(rows))), 0, stored},
		{"content beyond the limit", gzipped(t, rows+strings.Repeat("\n", 100_001-len(rows))), 41301, "100000 bytes"},
		{"members beyond the limit", strings.Repeat(gzipped(t, strings.Repeat("\n", 60_000)), 2), 41301, "100000 bytes"},
		{"a long line", gzipped(t, strings.Repeat(" ", 70_000)), 41301, "line 1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, query := range []string{"?dry_run=true", "?mode=partial&dry_run=true", ""} {
				for _, length := range []string{"known", "unknown"} {
					body := io.Reader(strings.NewReader(test.body))
					if length == "unknown" {
						body = io.MultiReader(body)
					}
					r := s.send(t, "POST", "/plants/import"+query, body, as(token, "Content-Type", inNDJSON, "Content-Encoding", "gzip")...)
					switch {
					case !strings.Contains(test.want, "rejected"):
						checkError(t, r, test.code, test.want)
					case query == "" && length == "known":
						checkReport(t, r, test.code, test.want)
					}
				}
			}
			if test.code != 0 {
				s.checkNoPlants(t)
			}
			emptyTable(t, url)
		})
	}
	for _, coding := range []string{"GZIP", "x-gzip"} {
		t.Run("CSV with "+coding, func(t *testing.T) {
			r := s.send(t, "POST", "/plants/import", strings.NewReader(gzipped(t, "id,name\n7,a\n")), as(token, "Content-Type", inCSV, "Content-Encoding", coding)...)
			checkReport(t, r, 0, "1: "+map[bool]string{true: "1 new, 0", false: "0 new, 1"}[coding == "GZIP"]+" unchanged, 0 rejected, stored")
		})
	}
}
