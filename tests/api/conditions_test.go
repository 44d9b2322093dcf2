package api

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"plantstore/database/dbtest"
	"plantstore/tests/service"
)

// differentETags returns a list of n ETags of old versions, and a comma.
func differentETags(n int) string {
	var list strings.Builder
	for i := range n {
		fmt.Fprintf(&list, "%q,", strconv.FormatInt(int64(i+1), 36))
	}
	return list.String()
}

// TestIgnoredConditions sends each operation the conditions that it ignores.
func TestIgnoredConditions(t *testing.T) {
	t.Parallel()
	matches := []string{"If-Match", `"x"`}
	times := []string{"If-Modified-Since", "Fri, 31 Dec 9999 23:59:59 GMT", "If-Unmodified-Since", "Sat, 01 Jan 2000 00:00:00 GMT"}
	both := slices.Concat(matches, []string{"If-None-Match", "*"}, times)
	service.Each(t, func(t *testing.T, s *service.Service) {
		id := service.IDs.Add(1)
		path := fmt.Sprintf("/plants/%d", id)
		for _, test := range []struct {
			method, path, body string
			conditions         []string
			want               int
		}{
			{"POST", "/plants", service.BodyOf(id), both, 200},
			{"GET", path, "", slices.Concat(matches, times), 200},
			{"GET", "/plants", "", slices.Concat(matches, times), 200},
			{"PUT", path, `{"name":"x"}`, times, 200},
			{"PATCH", path, `{"name":"y"}`, times, 200},
			{"DELETE", path, "", times, 204},
			{"POST", "/plants/import", service.BodyOf(id), both, 200},
			{"GET", "/plants/export", "", both, 200},
			{"GET", "/plants/changes?after=0", "", both, 200},
			{"POST", "/tokens", `{"name":"x","scopes":["plants:read"]}`, both, 200},
			{"GET", "/tokens", "", slices.Concat(matches, times), 200},
		} {
			t.Run(test.method+" "+test.path, func(t *testing.T) {
				s.Call(t, test.method, test.path, test.body, test.conditions...).CheckStatus(t, test.want)
			})
		}
	})
}

// TestPlantsConditions writes under each kind of condition, to a plant that exists and to
// one that does not. In a header, NOW is the ETag of the plant and OLD its previous one.
func TestPlantsConditions(t *testing.T) {
	t.Parallel()
	const failed, malformed, absent = 41201, 40007, 40401
	bodies := map[string]string{"PUT": `{"name":"new"}`, "PATCH": `{"name":"new"}`, "DELETE": ""}
	service.Each(t, func(t *testing.T, s *service.Service) {
		for _, test := range []struct {
			name    string
			headers []string
			exists  int // the code if the plant exists
			put     int // the code of a PUT if it does not; others have absent, or malformed if exists is
		}{
			{"no condition", nil, 0, 0},
			{"the ETag", []string{"If-Match", "NOW"}, 0, failed},
			{"*", []string{"If-Match", "*"}, 0, failed},
			{"the ETag before", []string{"If-Match", "OLD"}, failed, failed},
			{"a list with the ETag", []string{"If-Match", `OLD, "x" ,NOW`}, 0, failed},
			{"a list with empty elements", []string{"If-Match", `NOW, ,,"x",`}, 0, failed},
			{"a list that begins with an empty element", []string{"If-Match", `, NOW`}, 0, failed},
			{"a list with a comma in a tag", []string{"If-Match", `"a,b",NOW`}, 0, failed},
			{"a list with a weak one before the ETag", []string{"If-Match", `W/"x",NOW`}, 0, failed},
			{"a list without the ETag", []string{"If-Match", `"x", OLD, ""`}, failed, failed},
			{"the ETag, weak", []string{"If-Match", "W/NOW"}, failed, failed},
			{"an empty ETag", []string{"If-Match", `""`}, failed, failed},
			{"an unknown ETag", []string{"If-Match", `"33a64df551425fcc55e4d42a148795d9f25f89d4"`}, failed, failed},
			{"an ETag with bytes beyond ASCII", []string{"If-Match", "\"\xff\""}, failed, failed},
			{"SQL in an ETag", []string{"If-Match", `"'--"`}, failed, failed},
			{"the largest number for an ETag", []string{"If-Match", `"1y2p0ij32e8e7"`}, failed, failed},
			{"a number that is too large", []string{"If-Match", `"1y2p0ij32e8e8"`}, failed, failed},
			{"the smallest number for an ETag", []string{"If-Match", `"-1y2p0ij32e8e8"`}, failed, failed},
			{"a time beyond those of PostgreSQL", []string{"If-Match", `"-zzzzzzzzzzzz"`}, failed, failed},
			{"a year of more than four digits", []string{"If-Match", `"zzzzzzzzzzz"`}, failed, failed},
			{"a year before Christ", []string{"If-Match", `"-zzzzzzzzzzz"`}, failed, failed},
			{"a thousand ETags", []string{"If-Match", strings.Repeat(`"1",`, 1000) + "NOW"}, 0, failed},
			{"a thousand ETags without NOW", []string{"If-Match", strings.Repeat(`"1",`, 1000) + "OLD"}, failed, failed},
			{"64 different ETags", []string{"If-Match", differentETags(63) + "NOW"}, 0, failed},
			{"64 different ETags, and one again", []string{"If-Match", `"1",` + differentETags(63) + "NOW"}, 0, failed},
			{"65 different ETags", []string{"If-Match", differentETags(64) + "NOW"}, malformed, malformed},
			{"65 different ETags of others", []string{"If-Match", strings.ReplaceAll(differentETags(64), `",`, `-",`) + "NOW"}, malformed, malformed},
			{"no quotes", []string{"If-Match", "x"}, malformed, malformed},
			{"no second quote", []string{"If-Match", `"x`}, malformed, malformed},
			{"single quotes", []string{"If-Match", "'x'"}, malformed, malformed},
			{"a space in a tag", []string{"If-Match", `"a b"`}, malformed, malformed},
			{"no comma", []string{"If-Match", `NOW "x"`}, malformed, malformed},
			{"* in a list", []string{"If-Match", "*, NOW"}, malformed, malformed},
			{"a small w", []string{"If-Match", "w/NOW"}, malformed, malformed},
			{"an empty header", []string{"If-Match", " "}, malformed, malformed},
			{"only a comma", []string{"If-Match", ","}, malformed, malformed},
			{"not exists", []string{"If-None-Match", "*"}, failed, 0},
			{"exists and not exists", []string{"If-Match", "*", "If-None-Match", "*"}, failed, failed},
			{"the ETag and not exists", []string{"If-Match", "NOW", "If-None-Match", "*"}, failed, failed},
			{"not the ETag before", []string{"If-None-Match", "OLD"}, malformed, malformed},
			{"not a malformed ETag", []string{"If-None-Match", "x"}, malformed, malformed},
		} {
			t.Run(test.name, func(t *testing.T) {
				for method, body := range bodies {
					t.Run(method, func(t *testing.T) {
						id := service.IDs.Add(1)
						path := fmt.Sprintf("/plants/%d", id)
						old := s.Call(t, "PUT", path, `{"name":"old"}`)
						now := s.Call(t, "PUT", path, `{"name":"now"}`)
						if old.Status != 201 || now.Status != 200 || old.ETag() == now.ETag() {
							t.Fatalf("got %v with ETag %s, then %v with ETag %s", old, old.ETag(), now, now.ETag())
						}
						headers := slices.Clone(test.headers)
						for i := range headers {
							headers[i] = strings.NewReplacer("NOW", now.ETag(), "OLD", old.ETag()).Replace(headers[i])
						}
						r, then := s.Call(t, method, path, body, headers...), s.Call(t, "GET", path, "")
						switch {
						case test.exists != 0:
							r.CheckError(t, test.exists)
							checkSame(t, then, now)
						case method == "DELETE":
							r.CheckEmpty(t, 204)
							then.CheckError(t, 40401)
						default:
							r.CheckStored(t, fmt.Sprintf(`{"id":%d,"name":"new"}`, id))
							checkSame(t, then, r)
							if r.ETag() == now.ETag() {
								t.Errorf("%v: got ETag %s again, want another", r, r.ETag())
							}
						}

						s.Call(t, "DELETE", path, "")
						r, then = s.Call(t, method, path, body, headers...), s.Call(t, "GET", path, "")
						switch {
						case method == "PUT" && test.put == 0:
							r.CheckStored(t, fmt.Sprintf(`{"id":%d,"name":"new"}`, id))
							return
						case method == "PUT":
							r.CheckError(t, test.put)
						case test.exists == malformed:
							r.CheckError(t, malformed)
						default:
							r.CheckError(t, absent)
						}
						then.CheckError(t, absent)
					})
				}
			})
		}
		// A plant that was deleted and created again has another ETag.
		gone := s.Call(t, "PUT", "/plants/0", `{"name":"x"}`)
		s.Call(t, "DELETE", "/plants/0", "")
		s.Call(t, "PUT", "/plants/0", `{"name":"x"}`)
		s.Call(t, "PUT", "/plants/0", `{"name":"y"}`, "If-Match", gone.ETag()).CheckError(t, 41201)
	})
}

// TestPlantsOneWinner sends concurrent writes of which only one may succeed.
func TestPlantsOneWinner(t *testing.T) {
	t.Parallel()
	service.Each(t, func(t *testing.T, s *service.Service) {
		ifMatch := func(etag string) []string { return []string{"If-Match", etag} }
		for _, test := range []struct {
			name, method, path, body string
			headers                  func(etag string) []string
			won, lost                int
		}{
			{name: "PATCH with one ETag", method: "PATCH", path: "/plants/1", body: `{"tag":"%d"}`, headers: ifMatch, won: 200, lost: 412},
			{name: "PUT with one ETag", method: "PUT", path: "/plants/1", body: `{"name":"x","tag":"%d"}`, headers: ifMatch, won: 200, lost: 412},
			{name: "PUT of a new plant", method: "PUT", path: "/plants/2", body: `{"name":"x","tag":"%d"}`, headers: func(string) []string { return []string{"If-None-Match", "*"} }, won: 201, lost: 412},
			{name: "DELETE with one ETag", method: "DELETE", path: "/plants/1", headers: ifMatch, won: 204, lost: 404},
			{name: "DELETE", method: "DELETE", path: "/plants/1", headers: func(string) []string { return nil }, won: 204, lost: 404},
		} {
			t.Run(test.name, func(t *testing.T) {
				const writers = 100
				etag := s.Call(t, "PUT", "/plants/1", `{"name":"x"}`).ETag()
				s.Call(t, "DELETE", "/plants/2", "")
				all, begin := make([]service.Response, writers), make(chan struct{})
				var group sync.WaitGroup
				for i := range writers {
					group.Go(func() {
						body := test.body
						if strings.Contains(body, "%d") {
							body = fmt.Sprintf(body, i)
						}
						<-begin
						var err error
						if all[i], err = s.Try(test.method, test.path, strings.NewReader(body),
							service.As(service.Token, test.headers(etag)...)...); err != nil {
							t.Error(err)
						}
					})
				}
				close(begin)
				group.Wait()
				winner, losers := -1, 0
				for i, r := range all {
					switch r.Status {
					case test.won:
						if winner >= 0 {
							t.Errorf("got two winners, %d and %d, want 1", winner, i)
						}
						winner = i
					case test.lost:
						losers++
					default:
						t.Errorf("got %v, want %d or %d", r, test.won, test.lost)
					}
				}
				if winner < 0 || losers != writers-1 {
					t.Errorf("got winner %d and %d losers, want 1 and %d", winner, losers, writers-1)
					return
				}
				if then := s.Call(t, "GET", test.path, ""); test.won == 200 && then.Body != all[winner].Body {
					t.Errorf("got %v, want the winner's %s", then, all[winner].Body)
				}
			})
		}
	}, "PLANTSTORE_DATABASE_TIMEOUT=30s") // on a slow disk, 100 writers wait long
}

// TestPlantsVersionsOnlyGrow writes plants with versions in the future, as after a wrong
// clock: their versions still increase.
func TestPlantsVersionsOnlyGrow(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		s := service.Start(t, "DATABASE_URL="+url)
		table := service.OpenTable(t, url)
		for _, written := range []string{
			"2999-01-01 00:00:00+00:00", "2999-01-01 00:00:10+00:00", "2999-01-01 00:00:00.1+00:00", "2999-01-01 00:00:00.123456+00:00",
			"2999-01-01 00:00:00.999+00:00", "2999-01-01 00:00:00.9996+00:00", "2999-01-01 00:00:59.999999+00:00", "2999-12-31 23:59:59.9994+00:00",
			"2999-12-31 23:59:59.999999+00:00", "2999-02-28 23:59:59.009999+00:00", "2999-06-30 12:00:00.09+00:00",
		} {
			t.Run(written, func(t *testing.T) {
				s.Call(t, "PUT", "/plants/1", `{"name":"x"}`).RequireOK(t)
				if _, err := table.ExecContext(t.Context(), "UPDATE plants SET updated_at = '"+written+"'"); err != nil {
					t.Fatal(err)
				}
				last := s.Call(t, "GET", "/plants/1", "")
				if want, err := time.Parse("2006-01-02 15:04:05Z07:00", written); err != nil || !last.Plant().UpdatedAt.Equal(want) {
					t.Fatalf("got %v, want updated_at %s", last, written)
				}
				for i := range 12 {
					method, body := "PATCH", `{}`
					if i%3 == 0 {
						method, body = "PUT", `{"name":"x"}`
					}
					var condition []string
					if i%2 == 0 {
						condition = []string{"If-Match", last.ETag()}
					}
					r := s.Call(t, method, "/plants/1", body, condition...)
					then := s.Call(t, "GET", "/plants/1", "")
					if r.Status != 200 || !r.Plant().UpdatedAt.After(last.Plant().UpdatedAt) || r.ETag() == last.ETag() ||
						then.Body != r.Body || then.ETag() != r.ETag() {
						t.Fatalf("write %d: got %v with ETag %s, then %v with ETag %s, want a version after %v with ETag %s",
							i, r, r.ETag(), then, then.ETag(), last, last.ETag())
					}
					if step := r.Plant().UpdatedAt.Sub(last.Plant().UpdatedAt); step > 2*time.Millisecond {
						t.Errorf("got a version %v later, want at most 2ms", step)
					}
					if !r.Plant().CreatedAt.Equal(last.Plant().CreatedAt) {
						t.Errorf("write %d: got created_at %v, want %v", i, r.Plant().CreatedAt, last.Plant().CreatedAt)
					}
					s.Call(t, "PATCH", "/plants/1", `{}`, "If-Match", last.ETag()).CheckError(t, 41201)
					last = r
				}
				s.Call(t, "DELETE", "/plants/1", "", "If-Match", last.ETag()).CheckEmpty(t, 204)
			})
		}
	})
}

// checkSame checks that two responses have the same plant and version.
func checkSame(t *testing.T, got, want service.Response) {
	t.Helper()
	if got.Body != want.Body || got.ETag() != want.ETag() {
		t.Errorf("got %v with ETag %s, want %s with ETag %s", got, got.ETag(), want.Body, want.ETag())
	}
}
