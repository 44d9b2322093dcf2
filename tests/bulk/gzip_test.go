package bulk

import (
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"plantstore/database/dbtest"
	"plantstore/tests/service"
)

// TestGzipExportIsCutOff ends compressed exports before their end: the part that arrived is
// no complete gzip stream, even where HTTP shows no end.
func TestGzipExportIsCutOff(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		s := service.Start(t, "DATABASE_URL="+url)
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
		s.ImportRows(t, "", service.InNDJSON, rows.String()).RequireOK(t)
		for _, version := range []string{"1.0", "1.1"} {
			t.Run("HTTP/"+version, func(t *testing.T) {
				issued := service.Issue(t, url)
				conn := s.Dial(t)
				fmt.Fprintf(conn, "GET /plants/export HTTP/%s\r\nHost: localhost\r\nConnection: close\r\nAccept-Encoding: gzip\r\nAuthorization: Bearer %s\r\n\r\n", version, issued)
				start := make([]byte, 4096)
				_, err := io.ReadFull(conn, start)
				service.Must(t, err)
				s.Call(t, "DELETE", "/tokens/"+service.PrefixOf(issued), "").CheckEmpty(t, 204)
				awaitRequests(t, s, "/plants/export", map[string]int{"1.0": 1, "1.1": 2}[version])
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
				if content, err := service.Unzip(body); err == nil || !strings.Contains(head, "gzip") || !strings.HasPrefix(rows.String(), content[:min(len(content), 1000)]) {
					t.Errorf("got %d bytes of a complete export with the headers %s", len(content), head)
				}
			})
		}
	})
}

func TestImportGzip(t *testing.T) {
	t.Parallel()
	url := dbtest.SQLite(t)
	s := service.Start(t, "DATABASE_URL="+url, "PLANTSTORE_BULK_MAX_BODY_BYTES=100000")
	rows, whole := service.Numbered(1, 500), service.Gzipped(t, service.Numbered(1, 500))
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
		{"two members", service.Gzipped(t, rows[:777], rows[777:]), 0, stored},
		{"an empty member at the end", service.Gzipped(t, rows, ""), 0, stored},
		{"4,000 empty members", strings.Repeat(service.Gzipped(t, ""), 4000) + whole, 0, stored},
		{"an empty file", service.Gzipped(t, ""), 0, "0: 0 new, 0 unchanged, 0 rejected, stored"},
		{"an invalid row", service.Gzipped(t, service.Numbered(1, 1)+"{}\n"), 40004, "2: 1 new, 0 unchanged, 1 rejected; 2 40004"},
		{"no byte", "", 40001, "the gzip data of the body ends early"},
		{"a byte", whole[:1], 40001, "the gzip data of the body ends early"},
		{"a plain file", rows, 40001, "not gzip"},
		{"a file without its end", whole[:len(whole)-1], 40001, "the gzip data of the body ends early"},
		{"a half of a file", whole[:len(whole)/2], 40001, "the gzip data of the body ends early"},
		{"half a header", whole[:5], 40001, "the gzip data of the body ends early"},
		{"a damaged file", string(damaged), 40001, ""},
		{"a wrong checksum", string(wrongSum), 40001, "damaged"},
		{"bytes after the end", whole + "garbage, garbage", 40001, "not gzip"},
		{"zeros before the start", "\x00\x00" + whole, 40001, "not gzip"},
		{"half a second member", whole + whole[:len(whole)/2], 40001, "the gzip data of the body ends early"},
		{"content at the limit", service.Gzipped(t, rows+strings.Repeat("\n", 100_000-len(rows))), 0, stored},
		{"content beyond the limit", service.Gzipped(t, rows+strings.Repeat("\n", 100_001-len(rows))), 41301, "100000 bytes"},
		{"members beyond the limit", strings.Repeat(service.Gzipped(t, strings.Repeat("\n", 60_000)), 2), 41301, "100000 bytes"},
		{"a long line", service.Gzipped(t, strings.Repeat(" ", 70_000)), 41301, "line 1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, query := range []string{"?dry_run=true", "?mode=partial&dry_run=true", ""} {
				for _, length := range []string{"known", "unknown"} {
					body := io.Reader(strings.NewReader(test.body))
					if length == "unknown" {
						body = io.MultiReader(body)
					}
					r := s.Send(t, "POST", "/plants/import"+query, body, service.As(service.Token, "Content-Type", service.InNDJSON, "Content-Encoding", "gzip")...)
					switch {
					case !strings.Contains(test.want, "rejected"):
						r.CheckError(t, test.code, test.want)
					case query == "" && length == "known":
						r.CheckReport(t, test.code, test.want)
					}
				}
			}
			if test.code != 0 {
				s.CheckNoPlants(t)
			}
			emptyTable(t, url)
		})
	}
	for _, coding := range []string{"GZIP", "gzip"} {
		t.Run("CSV with "+coding, func(t *testing.T) {
			r := s.Send(t, "POST", "/plants/import", strings.NewReader(service.Gzipped(t, "id,name\n7,a\n")), service.As(service.Token, "Content-Type", service.InCSV, "Content-Encoding", coding)...)
			r.CheckReport(t, 0, "1: "+map[bool]string{true: "1 new, 0", false: "0 new, 1"}[coding == "GZIP"]+" unchanged, 0 rejected, stored")
		})
	}
}
