package bulk

import (
	"fmt"
	"strings"
	"testing"

	"plantstore/database/dbtest"
	"plantstore/tests/service"
)

// TestExportFilters exports with the parameters of a list.
func TestExportFilters(t *testing.T) {
	t.Parallel()
	service.Each(t, func(t *testing.T, s *service.Service) {
		rows := strings.Split(`{"id":-5,"name":"Aloe vera","tag":"succulent"}
{"id":0,"name":"Aloe ferox"}
{"id":1,"name":"100% aloe","tag":""}
{"id":2,"name":"Ficus","tag":"succulent"}
{"id":3,"name":"Aloe arborescens","tag":"succulent"}
`, "\n")
		s.ImportRows(t, "", service.InNDJSON, strings.Join(rows, "\n")).RequireOK(t)
		for query, want := range map[string][]int{
			"":                               {0, 1, 2, 3, 4},
			"?tag=succulent":                 {0, 3, 4},
			"?tag=":                          {2},
			"?tag=none":                      {},
			"?tag=&tag=succulent&tag=none":   {0, 2, 3, 4},
			"?tag=&tag=succulent&q=ficus":    {3},
			"?q=ALOE":                        {0, 1, 2, 4},
			"?q=%25":                         {2},
			"?after=0":                       {2, 3, 4},
			"?after=-9223372036854775808":    {0, 1, 2, 3, 4},
			"?after=9223372036854775807":     {},
			"?after=-5&q=aloe&tag=succulent": {4},
		} {
			t.Run(query, func(t *testing.T) {
				var lines, cells strings.Builder
				cells.WriteString(service.CSVHeader)
				for _, i := range want {
					o := service.Objects(t, rows[i])[0]
					tag, ok := o["tag"]
					if tag == "" {
						tag = "'"
					} else if !ok {
						tag = ""
					}
					fmt.Fprintln(&lines, rows[i])
					fmt.Fprintf(&cells, "%v,%v,%v%s", o["id"], o["name"], tag, service.CSVRest)
				}
				for accept, want := range map[string]string{service.InNDJSON: lines.String(), service.InCSV: cells.String()} {
					if r := s.Call(t, "GET", "/plants/export"+query, "", "Accept", accept); r.Status != 200 || r.Body != want {
						t.Errorf("got %v, want %s", r, want)
					}
				}
				list := service.WithoutTimes(strings.ReplaceAll(strings.Trim(s.Call(t, "GET", "/plants"+query, "").Body, "[]"), "},", "}\n"))
				if got := strings.TrimSpace(lines.String()); list != got {
					t.Errorf("got %s in a list, want %s", list, got)
				}
			})
		}
		settings := service.ClientOf(s.URL)
		service.CheckCLI(t, settings, []string{"export", "--tag", "succulent", "--q", "aloe", "--after", "-5"}, 0, rows[4]+"\n")
		service.CheckCLI(t, settings, []string{"export", "--tag", "", "--format", "csv"}, 0, service.CSVHeader+"1,100% aloe,'"+service.CSVRest)
		service.CheckCLI(t, settings, []string{"export", "--tag", "a,b", "--tag", "", "--tag=succulent", "--q", "1", "--after", "0"}, 0, rows[2]+"\n")
		service.CheckCLI(t, settings, []string{"export", "--q", "a", "--q", "b"}, 1, "", "40007", "the parameter q is given more than once")
		service.CheckCLI(t, settings, []string{"export", "--after", "01"}, 1, "", "40007", "after")
	})
}

// TestHEADOfAnExport: it takes no slot, of which the token has none left, and reads no
// table.
func TestHEADOfAnExport(t *testing.T) {
	t.Parallel()
	url := dbtest.Postgres(t)
	s := service.Start(t, "DATABASE_URL="+url)
	dbtest.Exec(t, url, "INSERT INTO plants (id, name, tag, created_at, updated_at) SELECT i, repeat('🌵', 255), repeat('🌵', 255), now(), now() FROM generate_series(1, 20000) AS i")
	check := func(t *testing.T) {
		for accept, want := range map[string][]string{
			service.InNDJSON: {"application/x-ndjson", `attachment; filename="plants.ndjson"`},
			service.InCSV:    {"text/csv; charset=utf-8; header=present", `attachment; filename="plants.csv"`},
		} {
			r := s.Call(t, "HEAD", "/plants/export", "", "Accept", accept)
			r.CheckEmpty(t, 200)
			r.CheckHeader(t, "Content-Type", want[0])
			r.CheckHeader(t, "Content-Disposition", want[1])
			r.CheckHeader(t, "Vary", "Accept")
		}
	}
	t.Run("without a slot", func(t *testing.T) {
		for range 2 { // not read to their end
			rest, _ := beginExport(t, s)
			defer rest.Close()
		}
		s.Call(t, "GET", "/plants/export", "").CheckError(t, 50301)
		check(t)
	})
	t.Run("without the table", func(t *testing.T) {
		defer service.LockTable(t, url)()
		check(t)
	})
}
