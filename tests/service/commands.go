package service

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"plantstore/database/dbtest"
)

// RevocationTime is the time until a revoked token must be rejected.
const RevocationTime = 5 * time.Second

// WellFormed is the format of issued tokens in the README, for secret scanners.
var WellFormed = regexp.MustCompile(`^pst_[a-z2-7]{47}$`)

// Issue creates a token in the database at url.
func Issue(t *testing.T, url string, args ...string) string {
	t.Helper()
	args = append([]string{"token", "create", "--name", t.Name(), "--scope", "plants:read,plants:write"}, args...) // a later --scope counts
	stdout, stderr, status := RunToEnd(t, []string{"DATABASE_URL=" + url}, args...)
	issued, ended := strings.CutSuffix(stdout, "\n")
	if status != 0 || !ended || !WellFormed.MatchString(issued) {
		t.Fatalf("token create: got exit status %d and %d bytes of output, want one token; %q", status, len(stdout), stderr)
	}
	if !strings.Contains(stderr, "token revoke "+PrefixOf(issued)) || strings.Contains(stderr, issued) {
		t.Errorf("token create: got standard error %q, want the prefix only", stderr)
	}
	return issued
}

// MigrateUp creates the tables of the database at url, and its file if there is none.
func MigrateUp(t *testing.T, url string) {
	t.Helper()
	if _, stderr, status := RunToEnd(t, []string{"DATABASE_URL=" + url}, "migrate", "up"); status != 0 {
		t.Fatalf("migrate up: got exit status %d, %q", status, stderr)
	}
}

// IssueElsewhere creates a token in a database of its own.
func IssueElsewhere(t *testing.T) string {
	t.Helper()
	url := dbtest.SQLite(t)
	MigrateUp(t, url)
	return Issue(t, url)
}

// PrefixOf returns the public part of an issued token, its id.
func PrefixOf(issued string) string { return issued[:12] }

// Mistype returns an issued token with another last character.
func Mistype(issued string) string {
	other := "a"
	if strings.HasSuffix(issued, other) {
		other = "b"
	}
	return issued[:len(issued)-1] + other
}

// Listed returns the line of token list about an issued token.
func Listed(t *testing.T, url, issued string) string {
	t.Helper()
	stdout, stderr, status := RunToEnd(t, []string{"DATABASE_URL=" + url}, "token", "list")
	if status != 0 || stderr != "" {
		t.Errorf("token list: got exit status %d, %q, want 0", status, stderr)
	}
	if strings.Contains(stdout, issued) || strings.Contains(stdout, issued[len(PrefixOf(issued)):]) {
		t.Error("token list: got a token")
	}
	for line := range strings.Lines(stdout) {
		if strings.HasPrefix(line, PrefixOf(issued)+" ") {
			return strings.TrimSpace(line)
		}
	}
	t.Errorf("token list: got no %s in\n%s", PrefixOf(issued), stdout)
	return ""
}

// TokenRow is a Token or an IssuedToken of the API.
type TokenRow struct {
	ID, Name   string
	Token      string
	Scopes     []string
	CreatedAt  time.Time  `json:"created_at"`
	ExpiresAt  *time.Time `json:"expires_at"`
	RevokedAt  *time.Time `json:"revoked_at"`
	LastUsedAt *time.Time `json:"last_used_at"`
}

// Tokens returns the tokens in a list.
func (r Response) Tokens() (rows []TokenRow) {
	_ = json.Unmarshal([]byte(r.Body), &rows)
	return rows
}

// IssuedToken returns an issued token from GET /tokens.
func IssuedToken(t *testing.T, s *Service, issued string) TokenRow {
	t.Helper()
	r := s.Get(t, "/tokens?limit=1000", As(Token)...)
	for _, row := range r.Tokens() {
		if row.ID == PrefixOf(issued) {
			return row
		}
	}
	t.Fatalf("GET /tokens lacks %s: %v", PrefixOf(issued), r)
	return TokenRow{}
}

// CreateToken creates a token with scopes by a request.
func CreateToken(t *testing.T, s *Service, scopes ...string) string {
	t.Helper()
	r := s.Call(t, "POST", "/tokens", `{"name":"x","scopes":["`+strings.Join(scopes, `","`)+`"]}`)
	r.RequireOK(t)
	var row TokenRow
	Must(t, json.Unmarshal([]byte(r.Body), &row))
	return row.Token
}

// ClientOf returns the settings of a client of the service at url.
func ClientOf(url string) []string {
	return []string{"PLANTSTORE_CLIENT_URL=" + url, "PLANTSTORE_CLIENT_TOKEN=" + Token}
}

// Counts returns the summary of an import.
func Counts(created, unchanged, rejected int, outcome string) string {
	return fmt.Sprintf("%d rows: %d created, 0 replaced, %d unchanged, %d refused; %s\n", created+unchanged+rejected, created, unchanged, rejected, outcome)
}

// CheckCLI runs the program and checks its exit status, its standard output, and parts of
// its standard error. Neither may have a token.
func CheckCLI(t *testing.T, settings, args []string, status int, stdout string, stderr ...string) {
	t.Helper()
	gotOut, gotErr, gotStatus := RunToEnd(t, settings, args...)
	if gotStatus != status || gotOut != stdout {
		t.Errorf("plantstore %v: got exit status %d and %q, want %d and %q; standard error %q", args, gotStatus, gotOut, status, stdout, gotErr)
	}
	for _, part := range stderr {
		if !strings.Contains(gotErr, part) {
			t.Errorf("plantstore %v: got standard error %q, want %q in it", args, gotErr, part)
		}
	}
	if stderr == nil && gotErr != "" {
		t.Errorf("plantstore %v: got standard error %q, want no output", args, gotErr)
	}
	if strings.Contains(gotOut+gotErr, Token) {
		t.Errorf("plantstore %v: got the token in %q, %q", args, gotOut, gotErr)
	}
}
