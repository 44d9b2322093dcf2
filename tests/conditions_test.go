package tests

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"plantstore/database/dbtest"
)

// TestPlantsConditions writes under each kind of condition, to a plant that is
// there and to one that is not. In a header's value, NOW is the plant's ETag and
// OLD the one that it had before.
func TestPlantsConditions(t *testing.T) {
	const failed, malformed, absent = 41201, 40007, 40401
	bodies := map[string]string{"PUT": `{"name":"new"}`, "PATCH": `{"name":"new"}`, "DELETE": ""}
	eachService(t, func(t *testing.T, s *service) {
		for _, test := range []struct {
			name    string
			headers []string
			there   int // the code for a plant that is there
			put     int // the code for a PUT of one that is not; the others have absent, or there where that is malformed
		}{
			{"no condition", nil, 0, 0},
			{"the ETag", []string{"If-Match", "NOW"}, 0, failed},
			{"any", []string{"If-Match", "*"}, 0, failed},
			{"the ETag before", []string{"If-Match", "OLD"}, failed, failed},
			{"a list with the ETag", []string{"If-Match", `OLD, "x" ,NOW`}, 0, failed},
			{"a list with empty elements", []string{"If-Match", `NOW, ,,"x",`}, 0, failed},
			{"a list that begins with an empty element", []string{"If-Match", `, NOW`}, 0, failed},
			{"a list with a comma in a tag", []string{"If-Match", `"a,b",NOW`}, 0, failed},
			{"a list with a weak one before the ETag", []string{"If-Match", `W/"x",NOW`}, 0, failed},
			{"a list without the ETag", []string{"If-Match", `"x", OLD, ""`}, failed, failed},
			{"the ETag, weak", []string{"If-Match", "W/NOW"}, failed, failed},
			{"an empty ETag", []string{"If-Match", `""`}, failed, failed},
			{"another's ETag", []string{"If-Match", `"33a64df551425fcc55e4d42a148795d9f25f89d4"`}, failed, failed},
			{"an ETag with bytes beyond ASCII", []string{"If-Match", "\"\xff\""}, failed, failed},
			{"an ETag of SQL", []string{"If-Match", `"'--"`}, failed, failed},
			{"the largest number for an ETag", []string{"If-Match", `"1y2p0ij32e8e7"`}, failed, failed},
			{"a larger one", []string{"If-Match", `"1y2p0ij32e8e8"`}, failed, failed},
			{"the smallest number for an ETag", []string{"If-Match", `"-1y2p0ij32e8e8"`}, failed, failed},
			{"a time that PostgreSQL has not", []string{"If-Match", `"-zzzzzzzzzzzz"`}, failed, failed},
			{"a year of more than four digits", []string{"If-Match", `"zzzzzzzzzzz"`}, failed, failed},
			{"a year before Christ", []string{"If-Match", `"-zzzzzzzzzzz"`}, failed, failed},
			{"a thousand ETags", []string{"If-Match", strings.Repeat(`"1",`, 1000) + "NOW"}, 0, failed},
			{"no quotes", []string{"If-Match", "x"}, malformed, malformed},
			{"no second quote", []string{"If-Match", `"x`}, malformed, malformed},
			{"single quotes", []string{"If-Match", "'x'"}, malformed, malformed},
			{"a blank in a tag", []string{"If-Match", `"a b"`}, malformed, malformed},
			{"no comma", []string{"If-Match", `NOW "x"`}, malformed, malformed},
			{"any in a list", []string{"If-Match", "*, NOW"}, malformed, malformed},
			{"a small w", []string{"If-Match", "w/NOW"}, malformed, malformed},
			{"nothing", []string{"If-Match", " "}, malformed, malformed},
			{"only a comma", []string{"If-Match", ","}, malformed, malformed},
			{"that it is not there", []string{"If-None-Match", "*"}, failed, 0},
			{"that it is there and not", []string{"If-Match", "*", "If-None-Match", "*"}, failed, failed},
			{"that it has the ETag and is not there", []string{"If-Match", "NOW", "If-None-Match", "*"}, failed, failed},
			{"that it has not the ETag", []string{"If-None-Match", "OLD"}, malformed, malformed},
			{"that it has not the ETag, malformed", []string{"If-None-Match", "x"}, malformed, malformed},
		} {
			t.Run(test.name, func(t *testing.T) {
				for method, body := range bodies {
					id := ids.Add(1)
					path := fmt.Sprintf("/plants/%d", id)
					old := s.call(t, "PUT", path, `{"name":"old"}`)
					now := s.call(t, "PUT", path, `{"name":"now"}`)
					if old.status != 200 || now.status != 200 || old.etag() == now.etag() {
						t.Fatalf("%d %s %s, then %d %s %s", old.status, old.body, old.etag(), now.status, now.body, now.etag())
					}
					headers := slices.Clone(test.headers)
					for i := range headers {
						headers[i] = strings.NewReplacer("NOW", now.etag(), "OLD", old.etag()).Replace(headers[i])
					}
					what := method + " on condition of " + test.name

					r, then := s.call(t, method, path, body, headers...), s.call(t, "GET", path, "")
					switch {
					case test.there != 0:
						checkError(t, r, test.there)
						if then.body != now.body || then.etag() != now.etag() {
							t.Errorf("%s was refused, and made %s %s of %s %s", what, then.etag(), then.body, now.etag(), now.body)
						}
					case method == "DELETE":
						checkEmpty(t, r, 204)
						checkError(t, then, 40401)
					default:
						checkStored(t, r, fmt.Sprintf(`{"id":%d,"name":"new"}`, id))
						if then.body != r.body || r.etag() == now.etag() {
							t.Errorf("%s: %s %s became %s %s, and then there is %s", what, now.etag(), now.body, r.etag(), r.body, then.body)
						}
					}

					what += " of what is not there"
					s.call(t, "DELETE", path, "")
					r, then = s.call(t, method, path, body, headers...), s.call(t, "GET", path, "")
					switch {
					case method == "PUT" && test.put == 0:
						checkStored(t, r, fmt.Sprintf(`{"id":%d,"name":"new"}`, id))
						continue
					case method == "PUT":
						checkError(t, r, test.put)
					case test.there == malformed:
						checkError(t, r, malformed)
					default:
						checkError(t, r, absent)
					}
					checkError(t, then, absent)
				}
			})
		}
		// A plant that was deleted and made again is another.
		gone := s.call(t, "PUT", "/plants/0", `{"name":"x"}`)
		s.call(t, "DELETE", "/plants/0", "")
		s.call(t, "PUT", "/plants/0", `{"name":"x"}`)
		checkError(t, s.call(t, "PUT", "/plants/0", `{"name":"y"}`, "If-Match", gone.etag()), 41201) // PUT with the ETag of the plant before
	})
}

// TestPlantsOneWinner lets clients write at once what only one of them may.
func TestPlantsOneWinner(t *testing.T) {
	eachService(t, func(t *testing.T, s *service) {
		for _, test := range []struct {
			name, method, path, body string
			headers                  func(etag string) []string
			won, lost                int
		}{
			{name: "PATCH with one ETag", method: "PATCH", path: "/plants/1", body: `{"tag":"%d"}`, headers: func(etag string) []string { return []string{"If-Match", etag} }, won: 200, lost: 412},
			{name: "PUT with one ETag", method: "PUT", path: "/plants/1", body: `{"name":"x","tag":"%d"}`, headers: func(etag string) []string { return []string{"If-Match", etag} }, won: 200, lost: 412},
			{name: "PUT of a plant that is not there", method: "PUT", path: "/plants/2", body: `{"name":"x","tag":"%d"}`, headers: func(string) []string { return []string{"If-None-Match", "*"} }, won: 200, lost: 412},
			{name: "DELETE with one ETag", method: "DELETE", path: "/plants/1", headers: func(etag string) []string { return []string{"If-Match", etag} }, won: 204, lost: 404},
			{name: "DELETE", method: "DELETE", path: "/plants/1", headers: func(string) []string { return nil }, won: 204, lost: 404},
		} {
			t.Run(test.name, func(t *testing.T) {
				const writers = 100
				etag := s.call(t, "PUT", "/plants/1", `{"name":"x"}`).etag()
				s.call(t, "DELETE", "/plants/2", "")
				all, begin := make([]response, writers), make(chan struct{})
				var group sync.WaitGroup
				for i := range writers {
					group.Go(func() {
						body := test.body
						if strings.Contains(body, "%d") {
							body = fmt.Sprintf(body, i)
						}
						<-begin
						var err error
						if all[i], err = s.try(test.method, test.path, strings.NewReader(body),
							append([]string{"Authorization", "Bearer " + token}, test.headers(etag)...)...); err != nil {
							t.Error(err)
						}
					})
				}
				close(begin)
				group.Wait()
				winner, losers := -1, 0
				for i, r := range all {
					switch r.status {
					case test.won:
						if winner >= 0 {
							t.Errorf("%d and %d have won", winner, i)
						}
						winner = i
					case test.lost:
						losers++
					default:
						t.Errorf("got %v", r)
					}
				}
				if winner < 0 || losers != writers-1 {
					t.Errorf("winner %d, and %d losers", winner, losers)
					return
				}
				if then := s.call(t, "GET", test.path, ""); test.won == 200 && then.body != all[winner].body {
					t.Errorf("the winner was told %s, and there is %s", all[winner].body, then.body)
				}
			})
		}
	})
}

// TestPlantsCounter counts in the names of plants, by many clients that read, add
// one, write what they have read, and try again where another came first.
func TestPlantsCounter(t *testing.T) {
	const counters, each, plants = 20, 50, 4
	eachService(t, func(t *testing.T, s *service) {
		for id := range plants {
			requireStatus(t, s.call(t, "PUT", fmt.Sprintf("/plants/%d", id), `{"name":"0"}`), 200)
		}
		var late atomic.Int64
		var group sync.WaitGroup
		for counter := range counters {
			group.Go(func() {
				transport := &http.Transport{}
				defer transport.CloseIdleConnections()
				call := func(method, body string, headers ...string) response {
					r, err := s.tryOn(transport, method, fmt.Sprintf("/plants/%d", counter%plants), strings.NewReader(body),
						append(headers, "Authorization", "Bearer "+token)...)
					if err != nil {
						t.Error(err)
					}
					return r
				}
				read := call("GET", "")
				for done := 0; done < each; {
					n, err := strconv.Atoi(read.plant().Name)
					if err != nil {
						t.Errorf("got %v", read)
						return
					}
					r := call("PATCH", fmt.Sprintf(`{"name":"%d"}`, n+1), "If-Match", read.etag())
					switch r.status {
					case 200:
						done++
						read = r
					case 412:
						late.Add(1)
						read = call("GET", "")
					default:
						t.Errorf("got %v", r)
						return
					}
				}
			})
		}
		group.Wait()
		for id := range plants {
			if r := s.call(t, "GET", fmt.Sprintf("/plants/%d", id), ""); r.plant().Name != strconv.Itoa(counters*each/plants) {
				t.Errorf("%d increments counted to %s", counters*each/plants, r.plant().Name)
			}
		}
		if late.Load() == 0 {
			t.Error("the clients were never in each other's way")
		}
		t.Logf("%d attempts came too late", late.Load())
	})
}

// TestPlantsVersionsOnlyGrow writes plants whose last write lies in the future,
// as when a clock was wrong: their versions go on all the same.
func TestPlantsVersionsOnlyGrow(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		s := start(t, "DATABASE_URL="+url)
		table := openTable(t, url)
		for _, written := range []string{
			"2999-01-01 00:00:00+00:00", "2999-01-01 00:00:10+00:00", "2999-01-01 00:00:00.1+00:00", "2999-01-01 00:00:00.123456+00:00",
			"2999-01-01 00:00:00.999+00:00", "2999-01-01 00:00:00.9996+00:00", "2999-01-01 00:00:59.999999+00:00", "2999-12-31 23:59:59.9994+00:00",
			"2999-12-31 23:59:59.999999+00:00", "2999-02-28 23:59:59.009999+00:00", "2999-06-30 12:00:00.09+00:00",
		} {
			t.Run(written, func(t *testing.T) {
				requireStatus(t, s.call(t, "PUT", "/plants/1", `{"name":"x"}`), 200)
				if _, err := table.ExecContext(t.Context(), "UPDATE plants SET updated_at = '"+written+"'"); err != nil {
					t.Fatal(err)
				}
				last := s.call(t, "GET", "/plants/1", "")
				if want, err := time.Parse("2006-01-02 15:04:05Z07:00", written); err != nil || !last.plant().UpdatedAt.Equal(want) {
					t.Fatalf("%s is read as %s", written, last.body)
				}
				for i := range 12 {
					method, body := "PATCH", `{}`
					if i%3 == 0 {
						method, body = "PUT", `{"name":"x"}`
					}
					var condition []string
					if i%2 == 0 {
						condition = []string{"If-Match", last.etag()}
					}
					r := s.call(t, method, "/plants/1", body, condition...)
					then := s.call(t, "GET", "/plants/1", "")
					if r.status != 200 || !r.plant().UpdatedAt.After(last.plant().UpdatedAt) || r.etag() == last.etag() ||
						then.body != r.body || then.etag() != r.etag() {
						t.Fatalf("after %s %s, %s %d: answered %d %s %s, and then there is %s %s",
							last.etag(), last.body, method, i, r.status, r.etag(), r.body, then.etag(), then.body)
					}
					if step := r.plant().UpdatedAt.Sub(last.plant().UpdatedAt); step > 2*time.Millisecond {
						t.Errorf("after %s, the next moment is %v later", written, step)
					}
					if !r.plant().CreatedAt.Equal(last.plant().CreatedAt) {
						t.Errorf("%s %d: created at %v, then at %v", method, i, last.plant().CreatedAt, r.plant().CreatedAt)
					}
					checkError(t, s.call(t, "PATCH", "/plants/1", `{}`, "If-Match", last.etag()), 41201)
					last = r
				}
				checkEmpty(t, s.call(t, "DELETE", "/plants/1", "", "If-Match", last.etag()), 204)
			})
		}
	})
}
