package bulk

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"plantstore/database/dbtest"
	"plantstore/tests/service"
)

const merging = "?on_conflict=merge"

// TestImportEdits imports rows over the plants 1 to 3, which are named a, b and c and have the tag t. In the rows, @1
// stands for the ETag of plant 1 as text in JSON, and for a cell in CSV.
func TestImportEdits(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		s := service.Start(t, "DATABASE_URL="+url)
		for _, test := range []struct {
			name, query, body string
			code              int
			want, stored      string
		}{
			{"a tag", merging, `{"id":2,"tag":"x"}`, 0, "1: 0 new, 1 merged, 0 unchanged, 0 rejected, stored", "1at 2bx 3ct"},
			{"a tag of none", merging, `{"id":2,"tag":null}`, 0, "1: 0 new, 1 merged, 0 unchanged, 0 rejected, stored", "1at 2b 3ct"},
			{"a name of none", merging, `{"id":2,"name":null}`, 40004, "1: 0 new, 0 unchanged, 1 rejected; 1 40004", "1at 2bt 3ct"},
			{"a name and a tag", merging, `{"id":1,"name":"A"}` + "\n" + `{"id":3,"tag":"T"}`, 0, "2: 0 new, 2 merged, 0 unchanged, 0 rejected, stored", "1At 2bt 3cT"},
			{"what is stored", merging, `{"id":1,"name":"a"}` + "\n" + `{"id":2}`, 0, "2: 0 new, 2 unchanged, 0 rejected, stored", "1at 2bt 3ct"},
			{"a new plant", merging, `{"id":4,"name":"d"}`, 0, "1: 1 new, 0 unchanged, 0 rejected, stored", "1at 2bt 3ct 4d"},
			{"a new plant without a name", merging, `{"id":4,"tag":"x"}`, 40006, "1: 0 new, 0 unchanged, 1 rejected; 1 40006", "1at 2bt 3ct"},
			{"an invalid tag", merging, `{"id":1,"tag":"\u0000"}`, 40006, "1: 0 new, 0 unchanged, 1 rejected; 1 40006", "1at 2bt 3ct"},
			{"no id", merging, `{"tag":"x"}`, 40004, "1: 0 new, 0 unchanged, 1 rejected; 1 40004", "1at 2bt 3ct"},
			{"an unknown field", merging, `{"id":1,"tags":"x"}`, 40002, "1: 0 new, 0 unchanged, 1 rejected; 1 40002", "1at 2bt 3ct"},
			{"an id again", merging, `{"id":1,"tag":"x"}` + "\n" + `{"id":1,"tag":"x"}` + "\n" + `{"id":1,"tag":"y"}`, 40901, "3: 0 new, 1 merged, 1 unchanged, 1 rejected; 3 40901", "1at 2bt 3ct"},
			{"an id again with another field", merging, `{"id":1,"tag":"x"}` + "\n" + `{"id":1,"name":"x"}`, 40901, "2: 0 new, 1 merged, 0 unchanged, 1 rejected; 2 40901", "1at 2bt 3ct"},
			{"a rejected row", merging, `{"id":1,"tag":"x"}` + "\n" + `{"id":9}`, 40006, "2: 0 new, 1 merged, 0 unchanged, 1 rejected; 2 40006", "1at 2bt 3ct"},
			{"a rejected row, partial", merging + "&mode=partial", `{"id":1,"tag":"x"}` + "\n" + `{"id":9}`, 0, "2: 0 new, 1 merged, 0 unchanged, 1 rejected, stored; 2 40006", "1ax 2bt 3ct"},
			{"a dry run", merging + "&dry_run=true", `{"id":1,"tag":"x"}`, 0, "1: 0 new, 1 merged, 0 unchanged, 0 rejected", "1at 2bt 3ct"},
			{"CSV of tags", merging, "id,tag\n1,x\n3,y\n", 0, "2: 0 new, 2 merged, 0 unchanged, 0 rejected, stored", "1ax 2bt 3cy"},
			{"CSV with empty cells", merging, "id,name,tag\n1,A,\n2,,'\n3,,\n", 0, "3: 0 new, 2 merged, 1 unchanged, 0 rejected, stored", `1At 2b 3ct`},
			{"CSV without ids", merging, "tag\nx\n", 40004, "no report", "1at 2bt 3ct"},

			{"an ETag that holds", replacing, `{"id":1,"name":"A","etag":@1}`, 0, "1: 0 new, 1 replaced, 0 unchanged, 0 rejected, stored", "1A 2bt 3ct"},
			{"an ETag of another plant", replacing, `{"id":2,"name":"B","etag":@1}`, 41201, "1: 0 new, 0 unchanged, 1 rejected; 1 41201", "1at 2bt 3ct"},
			{"an ETag of another plant with the same content", replacing, `{"id":2,"name":"b","tag":"t","etag":@1}`, 0, "1: 0 new, 1 unchanged, 0 rejected, stored", "1at 2bt 3ct"},
			{"an ETag of no plant", replacing, `{"id":4,"name":"d","etag":@1}`, 41201, "1: 0 new, 0 unchanged, 1 rejected; 1 41201", "1at 2bt 3ct"},
			{"an ETag of a time before 1970", replacing, `{"id":4,"name":"d","etag":"\"-1\""}`, 41201, "1: 0 new, 0 unchanged, 1 rejected; 1 41201", "1at 2bt 3ct"},
			{"the ETag 0", replacing, `{"id":4,"name":"d","etag":"\"0\""}`, 41201, "1: 0 new, 0 unchanged, 1 rejected; 1 41201", "1at 2bt 3ct"},
			{"an ETag without quotes", replacing, `{"id":1,"name":"A","etag":@unquoted}`, 0, "1: 0 new, 1 replaced, 0 unchanged, 0 rejected, stored", "1A 2bt 3ct"},
			{"an ETag that is none", replacing, `{"id":1,"name":"A","etag":"new!"}`, 41201, "1: 0 new, 0 unchanged, 1 rejected; 1 41201", "1at 2bt 3ct"},
			{"an ETag without on_conflict", "", `{"id":1,"name":"A","etag":@1}`, 40901, "1: 0 new, 0 unchanged, 1 rejected; 1 40901", "1at 2bt 3ct"},
			{"ETags in CSV, partial", merging + "&mode=partial", "etag,id,tag\n@1,1,x\n@1,2,x\n,3,x\n", 0, "3: 0 new, 2 merged, 0 unchanged, 1 rejected, stored; 3 41201", "1ax 2bt 3cx"},

			{"a change", "", `{"id":2,"plant":{"id":2,"name":"B"}}`, 0, "1: 0 new, 1 replaced, 0 unchanged, 0 rejected, stored", "1at 2B 3ct"},
			{"a change as it is read", merging, `{"id":2,"plant":{"id":2,"name":"B","created_at":"2026-11-21T10:00:00.120000Z","updated_at":"2026-11-21T10:00:00.120000Z"}}`, 0, "1: 0 new, 1 replaced, 0 unchanged, 0 rejected, stored", "1at 2B 3ct"},
			{"a new plant in the feed", "", `{"plant":{"id":4,"name":"d"},"id":4}`, 0, "1: 1 new, 0 unchanged, 0 rejected, stored", "1at 2bt 3ct 4d"},
			{"a deletion", "", `{"id":2,"plant":null}`, 0, "1: 0 new, 1 deleted, 0 unchanged, 0 rejected, stored", "1at 3ct"},
			{"a deletion of no plant", "", `{"id":4,"plant":null}`, 0, "1: 0 new, 1 unchanged, 0 rejected, stored", "1at 2bt 3ct"},
			{"a deletion with its ETag", "", `{"id":1,"plant":null,"etag":@1}` + "\n" + `{"id":2,"plant":null,"etag":@1}`, 41201, "2: 0 new, 1 deleted, 0 unchanged, 1 rejected; 2 41201", "1at 2bt 3ct"},
			{"a dry run of a deletion", "?dry_run=true", `{"id":2,"plant":null}`, 0, "1: 0 new, 1 deleted, 0 unchanged, 0 rejected", "1at 2bt 3ct"},
			{
				"the last change of an id", "", `{"id":2,"plant":null}` + "\n" + `{"id":4,"plant":{"id":4,"name":"d"}}` + "\n" + `{"id":2,"plant":{"id":2,"name":"B"}}` + "\n" + `{"id":4,"plant":null}`,
				0, "4: 0 new, 1 replaced, 3 unchanged, 0 rejected, stored", "1at 2B 3ct",
			},
			{"a plant after its change", replacing, `{"id":2,"plant":null}` + "\n" + `{"id":2,"name":"B"}`, 40901, "2: 0 new, 1 deleted, 0 unchanged, 1 rejected; 2 40901", "1at 2bt 3ct"},
			{"a change of another id", "", `{"id":2,"plant":{"id":3,"name":"B"}}`, 40006, "1: 0 new, 0 unchanged, 1 rejected; 1 40006", "1at 2bt 3ct"},
			{"a change without a name", "", `{"id":2,"plant":{"id":2}}`, 40004, "1: 0 new, 0 unchanged, 1 rejected; 1 40004", "1at 2bt 3ct"},
			{"a change without an id", "", `{"plant":null}`, 40004, "1: 0 new, 0 unchanged, 1 rejected; 1 40004", "1at 2bt 3ct"},
			{"a change that is no object", "", `{"id":2,"plant":"x"}`, 40006, "1: 0 new, 0 unchanged, 1 rejected; 1 40006", "1at 2bt 3ct"},
			{"a change with another field", "", `{"id":2,"plant":null,"plants":1}`, 40002, "1: 0 new, 0 unchanged, 1 rejected; 1 40002", "1at 2bt 3ct"},
			{"a deletion with a name", "", `{"id":2,"plant":null,"name":"B"}`, 40002, "1: 0 new, 0 unchanged, 1 rejected; 1 40002", "1at 2bt 3ct"},
			{"the word in a name", "", `{"id":4,"name":"plant","tag":"\"plant\""}`, 0, "1: 1 new, 0 unchanged, 0 rejected, stored", `1at 2bt 3ct 4plant"plant"`},
		} {
			t.Run(test.name, func(t *testing.T) {
				tag := ""
				for id, name := range []string{1: "a", 2: "b", 3: "c"} {
					if id > 0 {
						r := s.Call(t, "PUT", fmt.Sprintf("/plants/%d", id), fmt.Sprintf(`{"name":"%s","tag":"t"}`, name))
						r.RequireOK(t)
						if id == 1 {
							tag = r.ETag()
						}
					}
				}
				contentType, quoted := service.InCSV, `"`+strings.ReplaceAll(tag, `"`, `""`)+`"`
				if test.body[0] == '{' {
					contentType, quoted = service.InNDJSON, service.Quote(tag)
				}
				r := s.ImportRows(t, test.query, contentType, strings.NewReplacer("@1", quoted, "@unquoted", tag).Replace(test.body))
				r.CheckReport(t, test.code, test.want)
				var stored []string
				for _, p := range service.Objects(t, s.Export(t, service.InNDJSON)) {
					if p["tag"] == nil {
						p["tag"] = ""
					}
					stored = append(stored, fmt.Sprint(p["id"], p["name"], p["tag"]))
				}
				if got := strings.Join(stored, " "); got != test.stored {
					t.Errorf("stored %s, want %s", got, test.stored)
				}
				emptyTable(t, url)
			})
		}
	})
}

// TestImportFollows lets a store follow another by the lines of its feed.
func TestImportFollows(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		from, to := service.Start(t, "DATABASE_URL="+url), service.Start(t, "DATABASE_URL=sqlite:"+t.TempDir()+"/copy.db")
		cursor := "0"
		follow := func() {
			t.Helper()
			want := from.Export(t, service.InNDJSON)
			for range 20 { // on PostgreSQL, the feed waits for the transactions of other tests
				feed := service.Objects(t, from.Call(t, "GET", "/plants/changes?limit=1000&wait=5s&after="+cursor, "").Body)[0]
				cursor = feed["cursor"].(string)
				var lines []string
				for _, change := range feed["changes"].([]any) {
					line, err := json.Marshal(change)
					service.Must(t, err)
					lines = append(lines, string(line))
				}
				to.ImportRows(t, "", service.InNDJSON, strings.Join(lines, "\n")).RequireOK(t)
				if to.Export(t, service.InNDJSON) == want {
					return
				}
			}
			t.Errorf("the copy has %.200s, want %.200s", to.Export(t, service.InNDJSON), want)
		}
		from.ImportRows(t, "", service.InNDJSON, service.Numbered(1, 500)).RequireOK(t)
		follow()
		from.ImportRows(t, merging, service.InCSV, "id,tag\n1,x\n2,y\n").RequireOK(t)
		from.ImportRows(t, "", service.InNDJSON, `{"id":3,"plant":null}`+"\n"+`{"id":501,"plant":{"id":501,"name":"new"}}`).RequireOK(t)
		follow()
	})
}

// TestImportOfAnEditedExport edits a spreadsheet with ETags while another client changes a plant in it.
func TestImportOfAnEditedExport(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		s := service.Start(t, "DATABASE_URL="+url)
		s.ImportRows(t, "", service.InNDJSON, service.Numbered(1, 2500)).RequireOK(t)
		for contentType, header := range map[string]string{service.InCSV: "id,name,tag,etag\n", service.InNDJSON: `{"id":1,"name":"plant 1","etag":"\"`} {
			r := s.Call(t, "GET", "/plants/export?etag=true", "", "Accept", contentType)
			r.RequireOK(t)
			if !strings.HasPrefix(r.Body, header) {
				t.Fatalf("got %.100s, want %s", r.Body, header)
			}
			s.Call(t, "PATCH", "/plants/7", `{"tag":"`+contentType+`"}`).RequireOK(t)
			edited := strings.ReplaceAll(r.Body, "plant", "Plant")
			s.ImportRows(t, replacing, contentType, edited).CheckStatus(t, 412)
			partial := s.ImportRows(t, replacing+"&mode=partial", contentType, edited)
			if !strings.Contains(partial.Summary(), "2499 replaced, 0 unchanged, 1 rejected") || !strings.Contains(partial.Body, "plant 7 was changed or deleted meanwhile, so its etag differs") {
				t.Errorf("got %v", partial)
			}
			again := s.ImportRows(t, replacing+"&mode=partial", contentType, edited)
			if !strings.Contains(again.Summary(), "2499 unchanged, 1 rejected") {
				t.Errorf("again: got %v", again)
			}
			s.ImportRows(t, replacing, service.InNDJSON, service.Numbered(1, 2500)).RequireOK(t)
		}
		if got := s.Export(t, service.InCSV); !strings.HasPrefix(got, service.CSVHeader) {
			t.Errorf("without etag=true: got %.100s", got)
		}
	})
}
