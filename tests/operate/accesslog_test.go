package operate

import (
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"plantstore/tests/service"
)

// TestAccessLog checks that each request has one line, without secrets.
func TestAccessLog(t *testing.T) {
	t.Parallel()
	s := service.Start(t)
	const canary = "canary-4711"
	traceparent, traceID := traceparentOf(1)
	s.Post(t, `{"id":1,"name":"`+canary+`"}`, "X-Request-ID", "one", "traceparent", traceparent)
	s.Post(t, `{"id":2,"name":"x"}`, "Authorization", "Bearer "+canary, "X-Request-ID", "two", "Cookie", canary)
	s.Get(t, "/nothing?token="+canary, "X-Request-ID", "three", "traceparent", canary)
	s.Stop(t)
	log := s.Stderr.String()
	for id, want := range map[string]string{
		"one":   `"trace_id":"` + traceID + `","method":"POST","path":"/plants","id":"1","status":200,"duration":[0-9.]+,"bytes":22,"client":"127.0.0.1","token":"static:1"`,
		"two":   `"method":"POST","path":"/plants","status":401,"code":40102,`,
		"three": `"method":"GET","path":"/…","status":404,`,
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
	if all := log + s.Stdout.String(); strings.Contains(all, canary) || strings.Contains(all, service.Token) {
		t.Errorf("got a secret in the output: %s", all)
	}
}

// TestLogHidesCharacters sends a sub with characters that a terminal would obey, or that
// would make a line look like another. It is the one text of a client that is logged.
func TestLogHidesCharacters(t *testing.T) {
	t.Parallel()
	const sub = "a\u0085\u009b31m\u007f\u202e\u2066\u200f\u061c\u2028b\u2029\ufeff\U000e0041é\n\u001b[2Kz"
	replaced := "jwt:a\uFFFD\uFFFD31m" + strings.Repeat("\uFFFD", 6) + "b" + strings.Repeat("\uFFFD", 3) + `é\n\u001b[2Kz`
	decoded := strings.NewReplacer(`\n`, "\n", `\u001b`, "\u001b").Replace(replaced)
	public, key, err := ed25519.GenerateKey(nil)
	service.Must(t, err)
	der, err := x509.MarshalPKIXPublicKey(public)
	service.Must(t, err)
	for _, format := range []string{"json", "console"} {
		t.Run(format, func(t *testing.T) {
			s := service.Launch(t, service.Command(t, []string{
				"PORT=0", "PLANTSTORE_LOG_FORMAT=" + format, "PLANTSTORE_AUTH_JWT_ISSUER=i", "PLANTSTORE_AUTH_JWT_AUDIENCE=a",
				"PLANTSTORE_AUTH_JWT_PUBLIC_KEY=" + string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})),
			}))
			awaitPort(t, s)
			s.Get(t, "/plants", service.As(signJWT(t, key, sub))...).CheckStatus(t, 200)
			s.Stop(t)
			log := s.Stderr.String()
			if !strings.Contains(log, replaced) {
				t.Errorf("got no %s in the log:\n%s", replaced, log)
			}
			if strings.ContainsFunc(log, func(r rune) bool {
				return r != '\n' && r != '\t' && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
			}) {
				t.Errorf("got such characters in %q", log)
			}
			for line := range strings.Lines(log) {
				var entry struct{ Token string }
				if format == "json" && strings.Contains(line, "jwt:") && (json.Unmarshal([]byte(line), &entry) != nil || entry.Token != decoded) {
					t.Errorf("got the token %q, want %q", entry.Token, decoded)
				}
			}
		})
	}
}

// TestLogHasNoStartOfARequest speaks HTTP/1.1 where HTTP/2 was agreed on: net/http reports
// the first bytes.
func TestLogHasNoStartOfARequest(t *testing.T) {
	t.Parallel()
	own, folder := service.NewPair(t), t.TempDir()
	own.In(t, folder)
	s := service.StartTLS(t, folder)
	c := new(canaries)
	trust := own.Trust()
	trust.ServerName, trust.NextProtos = "127.0.0.1", []string{"h2"}
	conn := tls.Client(s.Dial(t), trust)
	defer conn.Close()
	_, err := io.WriteString(conn, "GET /"+c.plant("a path")+" HTTP/1.1\r\nHost: localhost\r\n\r\n")
	service.Must(t, err)
	_, _ = io.ReadAll(conn)
	if !s.Stderr.Await(s.Ended, func(line string) bool { return strings.Contains(line, "greeting") }) {
		t.Error("got no line about the greeting")
	}
	if all := s.Stderr.String(); strings.Contains(all, "GET") || strings.Contains(all, "canary") {
		t.Errorf("got the start of a request in %s", all)
	}
}
