package api

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"plantstore/database/dbtest"
	"plantstore/tests/service"
)

// TestPlantsEdit writes to plants that a query selects: 1 to 30, the even ones with the tag even, and 31 with an empty tag.
func TestPlantsEdit(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		s := service.Start(t, "DATABASE_URL="+url)
		reset := func() {
			t.Helper()
			rows := []string{`{"id":31,"name":"last","tag":""}`}
			for id := range 30 {
				tag := ""
				if id%2 == 1 {
					tag = `,"tag":"even"`
				}
				rows = append(rows, fmt.Sprintf(`{"id":%d,"name":"plant %[1]d"%s}`, id+1, tag))
			}
			s.ImportRows(t, "?on_conflict=replace", service.InNDJSON, strings.Join(rows, "\n")).RequireOK(t)
		}
		reset()
		count := func(query string) string {
			t.Helper()
			return s.Call(t, "GET", "/plants?count=true&"+query, "").Header.Get("X-Total-Count")
		}
		t.Run("without a filter", func(t *testing.T) {
			for _, query := range []string{"", "?dry_run=true", "?max=1000", "?dry_run=true&max=5"} {
				s.Call(t, "PATCH", "/plants"+query, `{"tag":"x"}`).CheckError(t, 40007, "required, to select plants: tag", "q, created_after, created_before")
				s.Call(t, "DELETE", "/plants"+query, "").CheckError(t, 40007, "required, to select plants: tag", "q, created_after, created_before")
			}
		})
		for query, mentions := range map[string]string{
			"after=1": "unknown parameter after", "tag=even&limit=5": "unknown parameter limit", "tag=even&sort=id": "unknown parameter sort",
			"tag=even&max=0": "from 1 to 10000", "tag=even&max=10001": "from 1 to 10000", "tag=even&dry_run=yes": "dry_run must be false or true", "q=": "q must have",
			"tag=even&tag=&max=15": "more than 15 plants, and nothing was written", strings.Repeat("tag=even&", 21): "the parameter tag is given 21 times",
			"tag=even&max=14": "more than 14 plants, and nothing was written", "q=plant&max=29&dry_run=true": "more than 29 plants",
		} {
			t.Run(query, func(t *testing.T) {
				s.Call(t, "PATCH", "/plants?"+query, `{"tag":"x"}`).CheckError(t, 40007, mentions)
				s.Call(t, "DELETE", "/plants?"+query, "").CheckError(t, 40007, mentions)
			})
		}
		for body, code := range map[string]int{`{"tag":"\u0000"}`: 40006, `{"name":null}`: 40004, `{"id":1}`: 40002, `[]`: 40001} {
			t.Run("PATCH "+body, func(t *testing.T) { s.Call(t, "PATCH", "/plants?tag=even", body).CheckError(t, code) })
		}
		t.Run("a condition", func(t *testing.T) {
			s.Call(t, "PATCH", "/plants?tag=even", `{"tag":"x"}`, "If-Match", `"x"`).CheckError(t, 40007, "with their etag")
			s.Call(t, "DELETE", "/plants?tag=even", "", "If-None-Match", "*").CheckError(t, 40007, "with their etag")
		})
		t.Run("a token that only reads", func(t *testing.T) {
			reader := service.CreateToken(t, s, "plants:read")
			s.Call(t, "DELETE", "/plants?tag=even", "", service.As(reader)...).CheckError(t, 40301)
			s.Call(t, "PATCH", "/plants?tag=even", `{"tag":"x"}`, service.As(reader)...).CheckError(t, 40301)
		})
		if got := count("tag=even"); got != "15" || count("q=plant") != "30" {
			t.Errorf("after rejected requests: %s plants have the tag", got)
		}
		for _, test := range []struct{ method, query, body, want, left, none string }{
			{"PATCH", "tag=even&dry_run=true", `{"tag":"x"}`, "15: 0 new, 15 merged, 0 unchanged, 0 rejected", "tag=even", "tag=x"},
			{"PATCH", "tag=even", `{"tag":"x"}`, "15: 0 new, 15 merged, 0 unchanged, 0 rejected, stored", "tag=x", "tag=even"},
			{"PATCH", "q=plant&max=30", `{"tag":"even"}`, "30: 0 new, 15 merged, 15 unchanged, 0 rejected, stored", "", ""},
			{"PATCH", "q=plant", `{"tag":null}`, "30: 0 new, 15 merged, 15 unchanged, 0 rejected, stored", "", "tag=even"},
			{"PATCH", "tag=even", `{}`, "15: 0 new, 15 unchanged, 0 rejected, stored", "tag=even", ""},
			{"PATCH", "tag=none", `{"tag":"x"}`, "0: 0 new, 0 unchanged, 0 rejected, stored", "tag=even", "tag=x"},
			{"DELETE", "tag=even&dry_run=true", "", "15: 0 new, 15 deleted, 0 unchanged, 0 rejected", "tag=even", ""},
			{"DELETE", "tag=even&q=plant&max=15", "", "15: 0 new, 15 deleted, 0 unchanged, 0 rejected, stored", "", "tag=even"},
			{"PATCH", "tag=even&tag=none&dry_run=true", `{"tag":"x"}`, "15: 0 new, 15 merged, 0 unchanged, 0 rejected", "tag=even", "tag=x"},
			{"PATCH", "tag=even&tag=", `{"tag":"x"}`, "16: 0 new, 16 merged, 0 unchanged, 0 rejected, stored", "", "tag=even&tag="},
			{"PATCH", "tag=even&tag=even", `{"tag":"x"}`, "15: 0 new, 15 merged, 0 unchanged, 0 rejected, stored", "tag=x", "tag=even"},
			{"DELETE", "tag=&tag=even&q=plant", "", "15: 0 new, 15 deleted, 0 unchanged, 0 rejected, stored", "", "tag=even"},
			{"DELETE", "tag=", "", "1: 0 new, 1 deleted, 0 unchanged, 0 rejected, stored", "tag=even", "tag="},
			{"DELETE", "created_before=2020-01-01T00:00:00Z", "", "0: 0 new, 0 unchanged, 0 rejected, stored", "tag=even", ""},
		} {
			t.Run(test.method+" "+test.query+" "+test.body, func(t *testing.T) {
				defer reset()
				before := s.Call(t, "GET", "/plants/2", "").ETag()
				s.Call(t, test.method, "/plants?"+test.query, test.body).CheckReport(t, 0, test.want)
				if test.left != "" && count(test.left) != "15" || test.none != "" && count(test.none) != "0" {
					t.Errorf("%s plants have %s, and %s have %s", count(test.left), test.left, count(test.none), test.none)
				}
				if after := s.Call(t, "GET", "/plants/2", "").ETag(); strings.Contains(test.want, "stored") && strings.Contains(test.want, "merged") && test.query != "q=plant&max=30" && after == before {
					t.Errorf("plant 2 still has the ETag %s", after)
				}
			})
		}
		t.Run("the feed has them", func(t *testing.T) {
			cursor := service.Objects(t, s.Call(t, "GET", "/plants/changes", "").Body)[0]["cursor"].(string)
			s.Call(t, "PATCH", "/plants?tag=", `{"tag":"new"}`).RequireOK(t)
			s.Call(t, "DELETE", "/plants?tag=new", "").RequireOK(t)
			if r := s.Call(t, "GET", "/plants/changes?wait=30s&after="+cursor, ""); !strings.Contains(r.Body, `{"id":31,"plant":null}`) {
				t.Errorf("got %v", r)
			}
			reset()
		})
	})
}

// TestPlantsEditOfMany deletes up to the highest max while other clients write the same plants.
func TestPlantsEditOfMany(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		s := service.Start(t, "DATABASE_URL="+url)
		s.ImportRows(t, "", service.InNDJSON, strings.ReplaceAll(service.Numbered(1, 10_000), "}", `,"tag":"x"}`)).RequireOK(t)
		s.Call(t, "DELETE", "/plants?tag=x", "").CheckError(t, 40007, "more than 1000 plants")
		s.Call(t, "PATCH", "/plants?tag=x&max=10000", `{"tag":"y"}`).CheckReport(t, 0, "10000: 0 new, 10000 merged, 0 unchanged, 0 rejected, stored")
		s.Call(t, "PATCH", "/plants/5", `{"tag":"z"}`).RequireOK(t)

		const dryRun = "/plants?tag=y&max=10000&dry_run=true"
		stop := make(chan struct{})
		var others sync.WaitGroup
		others.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
					s.Call(t, "PUT", "/plants/9999", fmt.Sprintf(`{"name":"%d","tag":"y"}`, n)).CheckStatus(t, 200)
				}
			}
		})
		service.Eventually(t, "a rejection, as another client writes a plant again and again", func() bool {
			r := s.Call(t, "DELETE", dryRun, "")
			return r.Code() == 41201 && strings.Contains(r.Body, "other clients write the selected plants again and again, and nothing was written: repeat the request")
		})
		close(stop)
		others.Wait()
		s.Call(t, "PUT", "/plants/9999", `{"name":"plant 9999","tag":"y"}`).RequireOK(t)

		done := make(chan service.Response)
		go func() { done <- s.Call(t, "PATCH", "/plants/7", `{"tag":"y"}`) }()
		s.Call(t, "DELETE", "/plants?tag=y&max=10000", "").CheckReport(t, 0, "9999: 0 new, 9999 deleted, 0 unchanged, 0 rejected, stored")
		if r := <-done; r.Status != 200 && r.Code() != 40401 {
			t.Errorf("another client: got %v", r)
		}
		if got := s.Export(t, service.InNDJSON); got != `{"id":5,"name":"plant 5","tag":"z"}`+"\n" {
			t.Errorf("got %.200s, want plant 5", got)
		}
	})
}

// TestPlantsEditTakesTooLong: the advice is not that for the file of an import.
func TestPlantsEditTakesTooLong(t *testing.T) {
	t.Parallel()
	url := dbtest.Postgres(t)
	dbtest.Migrated(t, url)
	dbtest.Exec(t, url, `
		CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(10); RETURN NULL; END';
		CREATE TRIGGER slow BEFORE UPDATE OR DELETE ON plants FOR EACH STATEMENT EXECUTE FUNCTION slow()`)
	s := service.Start(t, "DATABASE_URL="+url, "PLANTSTORE_BULK_TIMEOUT=1s", "PLANTSTORE_DATABASE_TIMEOUT=1m")
	s.Post(t, `{"id":1,"name":"x","tag":"x"}`).RequireOK(t)
	for method, body := range map[string]string{"PATCH": `{"tag":"y"}`, "DELETE": ""} {
		t.Run(method, func(t *testing.T) {
			s.Call(t, method, "/plants?tag=x", body).CheckError(t, 50302, "longer than bulk.timeout allows. The outcome of the write is unknown: repeat the request")
		})
	}
}
