package api

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"plantstore/database/dbtest"
	"plantstore/tests/service"
)

// faults returns the member errors of an Error, as field:code, and checks that the first of them is the
// Error itself.
func faults(t *testing.T, r service.Response) (all []string) {
	t.Helper()
	type fault struct {
		Field   string
		Error   int
		Message string
	}
	var body struct {
		Error   int
		Message string
		Errors  []fault
	}
	service.Must(t, json.Unmarshal([]byte(r.Body), &body))
	for i, f := range body.Errors {
		if i == 0 && (f.Error != body.Error || f.Message != body.Message) {
			t.Errorf("got %v, want the same first fault in errors", r)
		}
		all = append(all, fmt.Sprintf("%s:%d", f.Field, f.Error))
	}
	return all
}

// TestAllFaultsOfABody: an Error names the faults of all fields.
func TestAllFaultsOfABody(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 256)
	many := make([]string, 30)
	for i := range many {
		many[i] = fmt.Sprintf(`"x%02d":1`, i)
	}
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		s := service.Start(t, "DATABASE_URL="+url)
		s.Post(t, `{"id":1,"name":"x"}`).RequireOK(t)
		for _, test := range []struct{ name, request, body, want string }{
			{"nothing", "POST /plants", `{}`, "id:40004 name:40004"},
			{"each of another kind", "POST /plants", `{"ID":1,"id":1.5,"id":2,"name":"","tag":7}`, "ID:40002 id:40005 id:40003 tag:40004 name:40006"},
			{"null and an escaped name", "POST /plants", `{"\u0069d":null,"name":null}`, "id:40004 name:40004"},
			{"two rules", "POST /plants", `{"id":1,"name":"","tag":"` + long + `"}`, "name:40006 tag:40006"},
			{"one", "POST /plants", `{"id":1,"name":""}`, "name:40006"},
			{"PUT with another id", "PUT /plants/1", `{"id":2,"name":"","tag":"` + long + `"}`, "id:40006 name:40006 tag:40006"},
			{"PUT that echoes the times", "PUT /plants/1", `{"name":"","created_at":"2026-11-27T10:00:00Z","updated_at":"yesterday"}`, "updated_at:40006 name:40006"},
			{"PATCH", "PATCH /plants/1", `{"name":null,"tag":7,"id":1}`, "tag:40004 id:40002 name:40004"},
			{"PATCH that removes a field", "PATCH /plants/1", `{"tag":null,"name":""}`, "name:40006"},
			{"PATCH of selected rows", "PATCH /plants?q=x", `{"name":"","tag":7,"id":1}`, "tag:40004 id:40002 name:40006"},
			{"PATCH of selected rows by a rule", "PATCH /plants?q=x", `{"name":"","tag":"` + long + `"}`, "name:40006 tag:40006"},
			{"a token", "POST /tokens", `{"name":" ","scopes":["plants:water"],"expires_at":"soon"}`, "expires_at:40006 name:40006"},
			{"a token that has expired", "POST /tokens", `{"name":"x","scopes":["admin"],"expires_at":"2020-01-01T00:00:00Z"}`, "expires_at:40006"},
			{"malformed", "POST /plants", `{"id":"x","name"`, ""},
			{"no object", "POST /plants", `[{"id":"x"}]`, ""},
			{"a conflict", "POST /plants", `{"id":1,"name":"y"}`, ""},
			{"too many", "POST /plants", "{" + strings.Join(many, ",") + "}", strings.Join(first20(), " ")},
		} {
			t.Run(test.name, func(t *testing.T) {
				method, path, _ := strings.Cut(test.request, " ")
				r := s.Call(t, method, path, test.body)
				if got := strings.Join(faults(t, r), " "); got != test.want {
					t.Errorf("got %s in %v, want %s", got, r, test.want)
				}
			})
		}
	})
}

func first20() (want []string) {
	for i := range 20 {
		want = append(want, fmt.Sprintf("x%02d:40002", i))
	}
	return want
}
