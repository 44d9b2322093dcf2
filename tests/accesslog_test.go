package tests

import (
	"regexp"
	"strings"
	"testing"
)

// TestAccessLog checks that each request has one line, without secrets.
func TestAccessLog(t *testing.T) {
	t.Parallel()
	s := start(t)
	const canary = "canary-4711"
	s.post(t, `{"id":1,"name":"`+canary+`"}`, "X-Request-ID", "one")
	s.post(t, `{"id":2,"name":"x"}`, "Authorization", "Bearer "+canary, "X-Request-ID", "two", "Cookie", canary)
	s.get(t, "/nothing?token="+canary, "X-Request-ID", "three")
	s.stop(t)
	log := s.stderr.String()
	for id, want := range map[string]string{
		"one":   `"method":"POST","path":"/plants","status":200,"duration":"[0-9.µm]+s","bytes":22,"client":"127.0.0.1"`,
		"two":   `"method":"POST","path":"/plants","status":401,`,
		"three": `"method":"GET","path":"/nothing","status":404,`,
	} {
		t.Run(id, func(t *testing.T) {
			if n := strings.Count(log, `"request_id":"`+id+`"`); n != 1 {
				t.Errorf("got %d lines of request %s, want 1", n, id)
			}
			if !regexp.MustCompile(`"request_id":"` + id + `",` + want).MatchString(log) {
				t.Errorf("got no line of request %s that matches %s", id, want)
			}
		})
	}
	if all := log + s.stdout.String(); strings.Contains(all, canary) || strings.Contains(all, token) {
		t.Errorf("got a secret in the output: %s", all)
	}
}
