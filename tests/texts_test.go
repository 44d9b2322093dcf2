package tests

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"testing"
)

// oddTexts are texts that could be changed on their way.
var oddTexts = []string{
	" x ", "é" + "e\u0301", "🌵", "\u200b\ufeff\U0010ffff", `<b>&"\/`, `'; DROP TABLE plants; -- `, `% _ \ $1 ? @name :id {}`,
	"=1+1", "+1", "-1", "@SUM(A1)", "'", "'=1", "''", "'x", "a,b;c", `"`, `""`, `"quoted", and 'so'`, "null", "NULL", `\N`, `\.`, "#x", "\u2028\u00a0x",
	"a;=1+1", "a;'=1", `a;"-1`, "＝1+1", "'＠x;＋1",
	"\ufffd", strings.Repeat("🌵", 255), "x" + strings.Repeat(" ", 254),
}

// quote returns text in JSON as the service writes it.
func quote(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text) + `"`
}

// TestPlantsTexts stores and reads texts by each operation.
func TestPlantsTexts(t *testing.T) {
	t.Parallel()
	eachService(t, func(t *testing.T, s *service) {
		for i, text := range oddTexts {
			t.Run(fmt.Sprintf("%.20q", text), func(t *testing.T) {
				if strings.TrimSpace(text) == "" {
					t.Fatal("blank text")
				}
				for j, want := range []string{`,"name":` + quote(text), `,"name":"x","tag":` + quote(text)} {
					id := strconv.Itoa(2*i + j)
					path, want, body := "/plants/"+id, `{"id":`+id+want+`}`, "{"+want[1:]+"}"
					checkStatus(t, s.post(t, want), 200)
					checkStored(t, s.call(t, "GET", path, ""), want)
					checkStored(t, s.call(t, "PUT", path, body), want)
					checkStored(t, s.call(t, "GET", path, ""), want)
					s.call(t, "PUT", path, `{"name":"x"}`)
					checkStored(t, s.call(t, "PATCH", path, body), want)
					if r := s.call(t, "GET", "/plants?limit=1&after="+strconv.Itoa(2*i+j-1), ""); withoutTimes(r.body) != "["+want+"]" {
						t.Errorf("got %v, want %s", r, want)
					}
					query := "/plants?q=" + url.QueryEscape(text)
					if j == 1 {
						query = "/plants?tag=" + url.QueryEscape(text)
					}
					if r := s.call(t, "GET", query, ""); !strings.Contains(withoutTimes(r.body), want) {
						t.Errorf("got %v, want %s", r, want)
					}
				}
			})
		}
	})
}
