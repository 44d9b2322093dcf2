package bulk

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"plantstore/database/dbtest"
	"plantstore/tests/service"
)

const replacing = "?on_conflict=replace"

// TestImportReplaces imports rows over those of ids 1 to 3, which are named a, b and c.
func TestImportReplaces(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		s := service.Start(t, "DATABASE_URL="+url)
		for _, test := range []struct {
			name, query string
			rows        string // id and name of each
			code        int
			want        string
			stored      string
			versions    string // the ids of 1 to 3 with a new version
		}{
			{"refused by default", "", "1a 2B 4d", 40901, "3: 1 new, 1 unchanged, 1 rejected; 2 40901", "abc", ""},
			{"refused", "?on_conflict=refuse", "1a 2B", 40901, "2: 0 new, 1 unchanged, 1 rejected; 2 40901", "abc", ""},
			{"new, equal and different rows", replacing, "4d 2B 1a", 0, "3: 1 new, 1 replaced, 1 unchanged, 0 rejected, stored", "aBcd", "2"},
			{"only new rows", replacing, "5e 4d", 0, "2: 2 new, 0 unchanged, 0 rejected, stored", "abcde", ""},
			{"only equal rows", replacing, "3c 1a 2b", 0, "3: 0 new, 3 unchanged, 0 rejected, stored", "abc", ""},
			{"only different rows", replacing, "3C 1A 2B", 0, "3: 0 new, 3 replaced, 0 unchanged, 0 rejected, stored", "ABC", "123"},
			{"an invalid row", replacing, "1A 2_ 4d", 40006, "3: 1 new, 1 replaced, 0 unchanged, 1 rejected; 2 40006", "abc", ""},
			{"an invalid row, partial", replacing + "&mode=partial", "1A 2_ 4d", 0, "3: 1 new, 1 replaced, 0 unchanged, 1 rejected, stored; 2 40006", "Abcd", "1"},
			{"a dry run", replacing + "&dry_run=true", "1A 2b 4d", 0, "3: 1 new, 1 replaced, 1 unchanged, 0 rejected", "abc", ""},
			{"a dry run of an invalid row", replacing + "&dry_run=true&mode=partial", "1A 2_", 0, "2: 0 new, 1 replaced, 0 unchanged, 1 rejected; 2 40006", "abc", ""},
			{"an equal row again", replacing, "1A 4d 1A 4d", 0, "4: 1 new, 1 replaced, 2 unchanged, 0 rejected, stored", "Abcd", "1"},
			{"a replaced id again", replacing, "1A 1B", 40901, "2: 0 new, 1 replaced, 0 unchanged, 1 rejected; 2 40901", "abc", ""},
			{"an id as it was before", replacing, "1A 1a", 40901, "2: 0 new, 1 replaced, 0 unchanged, 1 rejected; 2 40901", "abc", ""},
			{"an unchanged id again", replacing, "1a 2B 1A", 40901, "3: 0 new, 1 replaced, 1 unchanged, 1 rejected; 3 40901", "abc", ""},
			{"a new id again", replacing, "4d 4D", 40901, "2: 1 new, 0 unchanged, 1 rejected; 2 40901", "abc", ""},
			{"ids again, partial", replacing + "&mode=partial", "1A 4d 1B 4D 1A 3c", 0, "6: 1 new, 1 replaced, 2 unchanged, 2 rejected, stored; 3 40901; 4 40901", "Abcd", "1"},
		} {
			t.Run(test.name, func(t *testing.T) {
				for id, name := range map[int]string{1: "a", 2: "b", 3: "c"} {
					s.Call(t, "PUT", fmt.Sprintf("/plants/%d", id), fmt.Sprintf(`{"name":"%s","tag":"t"}`, name)).RequireOK(t)
				}
				before := s.Call(t, "GET", "/plants", "").Plants(t)
				var body strings.Builder
				for row := range strings.FieldsSeq(test.rows) {
					fmt.Fprintf(&body, `{"id":%s,"name":"%s","tag":"t"}`+"\n", row[:1], strings.ReplaceAll(row[1:], "_", " "))
				}
				r := s.ImportRows(t, test.query, service.InNDJSON, body.String())
				r.CheckReport(t, test.code, test.want)
				if strings.HasSuffix(test.name, "again") && test.code != 0 && !strings.Contains(r.Body, "first valid row") {
					t.Errorf("got %v, want a message about the first valid row", r)
				}
				var stored, versions strings.Builder
				for i, p := range s.Call(t, "GET", "/plants", "").Plants(t) {
					stored.WriteString(p.Name)
					if i >= len(before) {
						continue
					}
					if !p.UpdatedAt.Equal(before[i].UpdatedAt) {
						versions.WriteString(strconv.FormatInt(p.ID, 10))
						if !p.UpdatedAt.After(before[i].UpdatedAt) {
							t.Errorf("plant %d: updated_at went from %v to %v", p.ID, before[i].UpdatedAt, p.UpdatedAt)
						}
					}
					if !p.CreatedAt.Equal(before[i].CreatedAt) {
						t.Errorf("plant %d: created_at went from %v to %v", p.ID, before[i].CreatedAt, p.CreatedAt)
					}
				}
				if stored.String() != test.stored || versions.String() != test.versions {
					t.Errorf("stored %s with new versions of %q, want %s with those of %q", &stored, &versions, test.stored, test.versions)
				}
				emptyTable(t, url)
			})
		}
		t.Run("the ETag from before", func(t *testing.T) {
			before := s.Call(t, "PUT", "/plants/1", `{"name":"a"}`)
			before.RequireOK(t)
			s.ImportRows(t, replacing, service.InNDJSON, `{"id":1,"name":"b","tag":""}`).CheckReport(t, 0, "1: 0 new, 1 replaced, 0 unchanged, 0 rejected, stored")
			s.Call(t, "GET", "/plants/1", "", "If-None-Match", before.ETag()).CheckStatus(t, 200)
			s.Call(t, "PUT", "/plants/1", `{"name":"c"}`, "If-Match", before.ETag()).CheckError(t, 41201)
			s.Call(t, "GET", "/plants/1", "").CheckStored(t, `{"id":1,"name":"b","tag":""}`)
			emptyTable(t, url)
		})
	})
}

// TestImportReplacesManyRows edits a spreadsheet of more rows than a batch has and imports it
// again, in another order.
func TestImportReplacesManyRows(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		s := service.Start(t, "DATABASE_URL="+url)
		s.ImportRows(t, replacing, service.InNDJSON, service.Numbered(-1500, 3500)).RequireOK(t)
		rows := strings.Split(strings.TrimSpace(s.Export(t, service.InCSV)), "\n")
		for i := 1; i < len(rows); i += 2 {
			rows[i] += "edited" // its last cell
		}
		slices.Reverse(rows[1:])
		added := strings.TrimSpace("9001,new," + service.CSVRest)
		rows = append(rows, added, "-1500,plant -1500,otherwise"+strings.TrimSpace(service.CSVRest), rows[1])
		edited := strings.Join(rows, "\n") + "\n"
		s.ImportRows(t, replacing+"&dry_run=true", service.InCSV, edited).CheckReport(t, 40901,
			"5004: 1 new, 2501 replaced, 2501 unchanged, 1 rejected; 5004 40901")
		s.ImportRows(t, replacing+"&mode=partial", service.InCSV, edited).CheckReport(t, 0,
			"5004: 1 new, 2501 replaced, 2501 unchanged, 1 rejected, stored; 5004 40901")
		back := strings.Split(strings.TrimSpace(s.Export(t, service.InCSV)), "\n")
		want := slices.Concat(rows[:1], rows[1:5002])
		slices.Reverse(want[1:])
		if want = append(want, added); !slices.Equal(back, want) {
			t.Errorf("got %d rows that differ from the %d edited ones", len(back), len(want))
		}
		s.ImportRows(t, replacing, service.InCSV, strings.Join(back, "\n")).CheckReport(t, 0, "5002: 0 new, 5002 unchanged, 0 rejected, stored")
	})
}

// TestImportsReplaceEachOther imports two files at the same time, with the same ids in
// different orders: one of them is stored after the other. The content of every third plant
// differs from import to import; that of the others is what one of the files has, too.
func TestImportsReplaceEachOther(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		s := service.Start(t, "DATABASE_URL="+url)
		const plants = 3000
		for round := range 3 {
			var files [2]string
			for file := range files {
				rows := make([]string, plants)
				for id := range rows {
					version := round
					if id%3 == file { // as in the round before, if that file won it
						version = max(round-1, 0)
					}
					rows[id] = fmt.Sprintf(`{"id":%d,"name":"%d of %d"}`, id, version, file)
				}
				if file == 1 {
					slices.Reverse(rows)
				}
				files[file] = strings.Join(rows, "\n") + "\n"
			}
			var group sync.WaitGroup
			var responses [2]service.Response
			for file := range files {
				group.Go(func() {
					var err error
					responses[file], err = s.Try("POST", "/plants/import"+replacing, strings.NewReader(files[file]), service.As(service.Token, "Content-Type", service.InNDJSON)...)
					if err != nil {
						t.Error(err)
					}
				})
			}
			group.Wait()
			for _, r := range responses {
				if summary := r.Summary(); r.Status != 200 || !strings.HasSuffix(summary, " 0 rejected, stored") {
					t.Errorf("round %d: got %v, want all rows stored", round, r)
				}
			}
			got := strings.Split(strings.TrimSpace(s.Export(t, service.InNDJSON)), "\n")
			first := strings.Split(strings.TrimSpace(files[0]), "\n")
			second := strings.Split(strings.TrimSpace(files[1]), "\n")
			slices.Reverse(second)
			if !slices.Equal(got, first) && !slices.Equal(got, second) {
				t.Errorf("round %d: got a mixture of the two files", round)
			}
		}
	})
}

// TestReplacingImportLocksUnchangedRows: until all rows are replaced, nobody changes those
// that are as in the file; others can be read and written.
func TestReplacingImportLocksUnchangedRows(t *testing.T) {
	t.Parallel()
	url := dbtest.Postgres(t) // SQLite has one writer
	s := service.Start(t, "DATABASE_URL="+url)
	s.ImportRows(t, "", service.InNDJSON, service.Numbered(1, 3000)).RequireOK(t)
	stored, release := awaitReplacing(t, url, 2500)
	i := beginImport(t, s, replacing)
	rows := service.Numbered(1, 2499) + `{"id":2500,"name":"new"}` + "\n"
	i.Write(rows)
	service.Must(t, i.Body.Close())
	stored()
	s.Call(t, "PUT", "/plants/1", `{"name":"x"}`).CheckError(t, 50301)
	s.Call(t, "PUT", "/plants/2999", `{"name":"plant 2999"}`).RequireOK(t)
	s.Call(t, "GET", "/plants/1", "").RequireOK(t)
	release()
	service.Receive(t, i.Responses).CheckReport(t, 0, "2500: 0 new, 1 replaced, 2499 unchanged, 0 rejected, stored")
	if got := s.Export(t, service.InNDJSON); got != rows+service.Numbered(2501, 3000) {
		t.Errorf("got %d bytes, want the rows of the file and the others", len(got))
	}
}

// TestReplacingImportKilled kills the service while an import replaces rows.
func TestReplacingImportKilled(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		const rows = 10_000
		body := longRows(rows)
		s := service.Start(t, "DATABASE_URL="+url)
		before := service.Numbered(1, rows)
		s.ImportRows(t, "", service.InNDJSON, before).RequireOK(t)
		i := beginImport(t, s, replacing)
		i.Write(body)
		stored, release := awaitReplacing(t, url, rows/2)
		service.Must(t, i.Body.Close())
		stored()
		service.Must(t, s.Process.Kill())
		i.Leave()
		service.Receive(t, i.Responses).CheckStatus(t, 0)
		_ = s.Wait(t)
		release()
		s = service.Start(t, "DATABASE_URL="+url)
		if got := s.Export(t, service.InNDJSON); got != before {
			t.Errorf("got %d bytes of plants, want the %d from before", len(got), len(before))
		}
		s.ImportRows(t, replacing, service.InNDJSON, body).CheckReport(t, 0, fmt.Sprintf("%d: 0 new, %[1]d replaced, 0 unchanged, 0 rejected, stored", rows))
		if got := s.Export(t, service.InNDJSON); got != body {
			t.Errorf("got %d bytes of plants, want the %d of the file", len(got), len(body))
		}
	})
}
