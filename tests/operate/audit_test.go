package operate

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"plantstore/database/dbtest"
	"plantstore/tests/service"
)

// testWhoDeleted writes plants with several tokens, at a level that has no other line of a request that succeeds.
func testWhoDeleted(t *testing.T, q question) {
	service.Each(t, func(t *testing.T, s *service.Service) {
		setLogLevel(t, s.Admin(t), "error", 200)
		prefixes := make(map[string]string) // of tokens
		as := func(name, method, path, body string, status int, headers ...string) {
			t.Helper()
			if _, ok := prefixes[name]; !ok {
				var issued struct{ ID, Token string }
				service.Must(t, json.Unmarshal([]byte(s.Call(t, "POST", "/tokens", `{"name":"`+name+`","scopes":["plants:write"]}`).Body), &issued))
				prefixes[name] = issued.Token
			}
			s.Send(t, method, path, strings.NewReader(body), service.As(prefixes[name], append(headers, "X-Request-ID", name)...)...).CheckStatus(t, status)
		}
		const many = 1200
		as("maker", "POST", "/plants", `{"id":7,"name":"a"}`, 200, "Content-Type", "application/json")
		as("again", "POST", "/plants", `{"id":7,"name":"b"}`, 409, "Content-Type", "application/json")
		as("other", "POST", "/plants", `{"id":77,"name":"a"}`, 200, "Content-Type", "application/json")
		as("putter", "PUT", "/plants/7", `{"name":"b"}`, 200, "Content-Type", "application/json")
		as("patcher", "PATCH", "/plants/7", `{"name":"c"}`, 200, "Content-Type", "application/merge-patch+json")
		as("importer", "POST", "/plants/import?on_conflict=replace", service.Numbered(1, many), 200, "Content-Type", service.InNDJSON)
		var changed strings.Builder
		for id := range many {
			fmt.Fprintf(&changed, "{\"id\":%d,\"name\":\"changed\"}\n", id+1)
		}
		as("dry", "POST", "/plants/import?on_conflict=replace&dry_run=true", changed.String(), 200, "Content-Type", service.InNDJSON)
		as("unstored", "POST", "/plants/import", changed.String(), 409, "Content-Type", service.InNDJSON)
		as("replacer", "POST", "/plants/import?on_conflict=replace", changed.String(), 200, "Content-Type", service.InNDJSON)
		as("deleter", "DELETE", "/plants/7", "", 204)
		as("late", "DELETE", "/plants/7", "", 404)
		s.Stop(t)

		log := service.Write(t, "log", "plantstore: a line of text\n"+s.Stderr.String())
		output := q.run(t, 0, nil, " log\n", " "+log+"\n")
		var who []string
		for line := range strings.Lines(output) {
			var entry struct {
				Token string `json:"token"`
				ID    string `json:"request_id"`
				IDs   []string
			}
			service.Must(t, json.Unmarshal([]byte(line), &entry))
			if who = append(who, entry.ID); entry.Token != service.PrefixOf(prefixes[entry.ID]) {
				t.Errorf("got the token %q in %s, want that of %s", entry.Token, line, entry.ID)
			}
			if len(line) > 16<<10 {
				t.Errorf("got a line of %d bytes, want at most 16 KiB", len(line))
			}
		}
		if want := []string{"maker", "putter", "patcher", "importer", "replacer", "deleter"}; !slices.Equal(who, want) {
			t.Errorf("got %v, want %v", who, want)
		}

		var ids []any
		for _, line := range s.Logged(t, "replaced") {
			if line["request_id"] == "replacer" {
				ids = append(ids, line["ids"].([]any)...)
			}
		}
		if len(ids) != many || !slices.Contains(ids, any("77")) {
			t.Errorf("got %d ids of replaced plants, want %d", len(ids), many)
		}
		for _, line := range s.Logged(t, "request") {
			want := map[string]string{
				"importer": "map[created:1198 refused:0 replaced:2 stored:true unchanged:0]", "dry": "map[created:0 refused:0 replaced:1200 stored:false unchanged:0]",
				"replacer": "map[created:0 refused:0 replaced:1200 stored:true unchanged:0]",
			}[fmt.Sprint(line["request_id"])]
			counts := make(map[string]any)
			for _, name := range []string{"created", "replaced", "unchanged", "refused", "stored"} {
				if count, ok := line[name]; ok {
					counts[name] = count
				}
			}
			if line["path"] == "/plants/import" && fmt.Sprint(counts) != want {
				t.Errorf("got the counts %v of %s, want %s", counts, line["request_id"], want)
			}
			if line["logger"] != "audit" {
				t.Errorf("got a line outside of the audit log at the level error: %v", line)
			}
		}
	}, "PLANTSTORE_SERVER_ADMIN_ADDRESS=127.0.0.1:0")
}

// TestTokensAreAudited creates and revokes a token over HTTP and by the command line, at the level error.
func TestTokensAreAudited(t *testing.T) {
	t.Parallel()
	url := dbtest.SQLite(t)
	s, admin := service.StartAdmin(t, "DATABASE_URL="+url)
	setLogLevel(t, admin, "error", 200)
	var issued struct{ ID string }
	service.Must(t, json.Unmarshal([]byte(s.Call(t, "POST", "/tokens", `{"name":"x","scopes":["plants:read"]}`).Body), &issued))
	if line := s.AwaitLine(t, "path", "/tokens"); line["logger"] != "audit" || line["id"] != issued.ID {
		t.Errorf("got %v, want a line of the audit log", line)
	}
	_, stderr, status := service.RunToEnd(t, []string{"DATABASE_URL=" + url, "PLANTSTORE_LOG_FORMAT=json", "PLANTSTORE_LOG_LEVEL=error"}, "token", "revoke", issued.ID)
	if status != 0 || !strings.Contains(stderr, `"logger":"audit","msg":"revoked a token"`) {
		t.Errorf("got exit status %d and %q, want a line of the audit log", status, stderr)
	}
}

func testMoreLog(t *testing.T, q question) {
	s, admin := service.StartAdmin(t)
	if r := admin.Get(t, "/log-level"); r.Status != 200 || !strings.Contains(r.Body, `"level":"info"`) {
		t.Errorf("got %v, want the level info", r)
	}
	setLogLevel(t, admin, "warn", 200)
	s.Call(t, "GET", "/plants/1", "", "X-Request-ID", "warn").CheckError(t, 40401)
	q.run(t, 0, nil, "http://127.0.0.1:9090", admin.URL)
	s.Get(t, "/healthz", "X-Request-ID", "debug").CheckStatus(t, 200)
	s.AwaitLine(t, "request_id", "debug")
	setLogLevel(t, admin, "loud", 400)
	s.Get(t, "/log-level").CheckError(t, 40402) // not at the address of the API
	if strings.Contains(s.Stderr.String(), `"request_id":"warn"`) {
		t.Error("got a line of a request at the level warn")
	}
}

func setLogLevel(t *testing.T, admin *service.Service, level string, status int) {
	t.Helper()
	admin.Send(t, "PUT", "/log-level", strings.NewReader("level="+level), "Content-Type", "application/x-www-form-urlencoded").CheckStatus(t, status)
}
