package operate

import (
	"crypto/ed25519"
	"crypto/x509"
	"database/sql"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"plantstore/database/dbtest"
	"plantstore/tests/service"
)

// TestSecretsStaySecret starts the service in several ways, sends secrets wherever it
// accepts data, provokes each error, and searches all output for secrets.
func TestSecretsStaySecret(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name     string
		postgres bool
		settings []string
		// secret is the setting with the token.
		secret string
	}{
		{"development, on a console", false, []string{"PLANTSTORE_LOG_FORMAT=console"}, "PLANTSTORE_AUTH_TOKENS"},
		{"production, with secrets in files", false, []string{"PLANTSTORE_ENV=production", "PLANTSTORE_LOG_FORMAT=json"}, "PLANTSTORE_AUTH_TOKENS_FILE"},
		{"production, on PostgreSQL", true, []string{"PLANTSTORE_ENV=production"}, "PLANTSTORE_AUTH_TOKENS"},
		{"development, on PostgreSQL, with secrets in files", true, []string{"PLANTSTORE_LOG_FORMAT=console"}, "PLANTSTORE_AUTH_TOKENS_FILE"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			h := &hunt{t: t, canaries: new(canaries)}
			h.static = h.plant("a static token")
			h.databaseURL = dbtest.SQLite(t)
			h.folder = filepath.Dir(strings.TrimPrefix(h.databaseURL, "sqlite:"))
			if test.postgres {
				h.ownPostgres()
			}
			secret := h.static
			if strings.HasSuffix(test.secret, "_FILE") {
				secret = service.Write(t, "secret", secret+"\n")
			}
			h.begin(append(test.settings, test.secret+"="+secret))
			h.sendTokens()
			h.sendBodies()
			h.provokeFaults()
			h.runCommands()
			h.takeDatabaseAway()
			h.lookAround()
		})
	}
}

// hunt is a service with canaries in all of its input.
type hunt struct {
	*canaries
	t           *testing.T
	server      *dbtest.Server // nil on SQLite
	databaseURL string
	folder      string   // of the database
	settings    []string // of the service and commands, with canaries
	service     *service.Service
	temporary   string // folder for files of the service
	static      string // token
	key         ed25519.PrivateKey
	stored      string       // a canary that the database must have
	codes       map[int]bool // of errors so far
	responses   []string
}

// ownPostgres starts a PostgreSQL server with a password.
func (h *hunt) ownPostgres() {
	h.server = dbtest.OwnServer(h.t)
	var data string
	service.Must(h.t, service.OpenTable(h.t, h.server.URL).QueryRowContext(h.t.Context(), "SHOW data_directory").Scan(&data))
	h.folder = filepath.Dir(data) // with the log of PostgreSQL
	password := h.plant("the password of the database")
	dbtest.Exec(h.t, h.server.URL, "ALTER ROLE postgres PASSWORD '"+password+"'")
	const rules = "host all all 127.0.0.1/32 scram-sha-256\n"
	service.Must(h.t, os.WriteFile(filepath.Join(data, "pg_hba.conf"), []byte(rules), 0o600))
	dbtest.Exec(h.t, h.server.URL, "SELECT pg_reload_conf()")
	h.databaseURL = h.withPassword(password)
	service.Eventually(h.t, "a PostgreSQL server that wants a password", func() bool {
		db, err := sql.Open("pgx", h.withPassword(newCanary()))
		if err == nil {
			err = errors.Join(db.PingContext(h.t.Context()), db.Close())
		}
		return err != nil
	})
}

func (h *hunt) withPassword(password string) string {
	u, err := url.Parse(h.server.URL)
	service.Must(h.t, err)
	u.User = url.UserPassword("postgres", password)
	return u.String()
}

func (h *hunt) begin(settings []string) {
	public, key, err := ed25519.GenerateKey(nil)
	service.Must(h.t, err)
	der, err := x509.MarshalPKIXPublicKey(public)
	service.Must(h.t, err)
	h.key, h.codes, h.temporary = key, make(map[int]bool), h.t.TempDir()
	h.settings = append(slices.Clone(settings),
		"DATABASE_URL="+h.databaseURL,
		"TMPDIR="+h.temporary,
		"PLANTSTORE_LOG_LEVEL=debug",
		"PLANTSTORE_DATABASE_SLOW_QUERY=1ns",
		"PLANTSTORE_DATABASE_TIMEOUT=2s",
		"PLANTSTORE_LIMITS_FAILURES_PER_MINUTE=60",
		"PLANTSTORE_AUTH_JWT_ISSUER=https://id.example.org/"+h.plant("the issuer of JWTs"),
		"PLANTSTORE_AUTH_JWT_AUDIENCE="+h.plant("the audience of JWTs"),
		"PLANTSTORE_AUTH_JWT_PUBLIC_KEY="+string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})),
		"PLANTSTORE_CLIENT_TOKEN="+h.plant("the client's token"),
	)
	h.service = service.Launch(h.t, service.Command(h.t, slices.Concat(h.settings, []string{"PORT=0"})))
	awaitPort(h.t, h.service)
}

func (h *hunt) setting(name string) (value string) {
	for _, s := range h.settings {
		if rest, ok := strings.CutPrefix(s, name+"="); ok {
			value = rest
		}
	}
	return value
}

// send sends a request with a token and canaries in all headers.
func (h *hunt) send(method, path, token, body string, headers ...string) service.Response {
	h.t.Helper()
	all := []string{
		"Authorization", "Bearer " + token,
		"Cookie", "session=" + h.plant("a cookie"),
		"X-Api-Key", h.plant("an API key"),
		"X-Request-ID", "id/" + h.plant("an invalid request id"),
		"Proxy-Authorization", "Bearer " + h.plant("the token of a proxy"),
		"Referer", "https://example.org/?code=" + h.plant("a referrer"),
		"User-Agent", h.plant("the name of a browser"),
	}
	r := h.service.Send(h.t, method, path, strings.NewReader(body), append(all, headers...)...)
	h.codes[r.Code()] = true
	header := r.Header.Clone()
	header.Del("X-Request-ID") // which a client sees again as it has sent it, whatever it is
	h.responses = append(h.responses, fmt.Sprint(header, r.Body))
	return r
}

// want checks that a request reached the expected stage.
func (h *hunt) want(what string, r service.Response, code int) {
	h.t.Helper()
	if r.Status != service.StatusOf(code) || r.Code() != code {
		h.t.Errorf("%s: got %v, want %d with error %d", what, r, service.StatusOf(code), code)
	}
}

// signed returns a JWT with canaries for payload and signature.
func (h *hunt) signed(where, subject string, key ed25519.PrivateKey) string {
	text, err := jwt.NewWithClaims(jwt.SigningMethodEdDSA, jwt.MapClaims{
		"iss": h.setting("PLANTSTORE_AUTH_JWT_ISSUER"), "aud": h.setting("PLANTSTORE_AUTH_JWT_AUDIENCE"),
		"sub": subject, "scope": "plants:read", "exp": time.Now().Add(time.Hour).Unix(),
	}).SignedString(key)
	service.Must(h.t, err)
	parts := strings.Split(text, ".")
	h.add(where, parts[1])
	h.add(where, parts[2])
	return text
}

// issue creates a token, which is a canary.
func (h *hunt) issue(scopes string) string {
	stdout, stderr, status := service.RunToEnd(h.t, h.settings, "token", "create", "--name", h.data("the name of a token"), "--scope", scopes)
	if status != 0 || !service.WellFormed.MatchString(strings.TrimSpace(stdout)) {
		h.t.Fatalf("token create: got exit status %d, %s, want a token", status, stderr)
	}
	return h.add("an issued token", strings.TrimSpace(stdout))
}

// runCommands runs each command with valid and invalid arguments.
func (h *hunt) runCommands() {
	bad := service.Write(h.t, "bad.csv", fmt.Sprintf("id,name,tag\n%s,x,\n1,%s,\x01\n", h.plant("an id of a file"), h.plant("a name of a file")))
	tokenFile := service.Write(h.t, "token", h.static)
	wrongFile := service.Write(h.t, "wrong", h.plant("a wrong token in a file"))
	target := filepath.Join(h.t.TempDir(), "plants.csv")
	leaked := h.issue("plants:read")
	onService := []string{"--url", h.service.URL, "--token-file", tokenFile}
	settings := slices.Concat(h.settings, []string{"PORT=" + h.service.URL[strings.LastIndex(h.service.URL, ":")+1:]})
	for _, test := range []struct {
		args   []string
		status int
	}{
		{[]string{"healthcheck"}, 0},
		{[]string{"healthcheck", "--ready"}, 0},
		{[]string{"migrate", "status"}, 0},
		{[]string{"migrate", "up"}, 0},
		{[]string{"token", "list"}, 0},
		{[]string{"token", "revoke", "pst_aaaaaaaa"}, 1},
		{[]string{"token", "revoke", leaked}, 2},
		{[]string{"token", leaked}, 2},
		{[]string{"serve", leaked}, 2},
		{[]string{"export", "--token-file", h.plant("a token for its file")}, 2},
		{[]string{"version"}, 0},
		{append([]string{"import", bad}, onService...), 3},
		{append([]string{"export", "-o", target}, onService...), 0},
		{[]string{"import", bad, "--url", h.service.URL}, 1}, // with client.token, which is wrong
		{[]string{"export", "--url", h.service.URL}, 1},
		{[]string{"import", bad, "--url", h.service.URL, "--token-file", wrongFile}, 1},
		{[]string{"import", bad, "--url", "http://user:" + h.plant("a password in a URL") + "@127.0.0.1:1"}, 2},
		{[]string{"import", bad, "--url", "http://127.0.0.1:1"}, 1},
		{[]string{"--help"}, 0},
	} {
		h.run(settings, test.status, test.args...)
	}
	for _, name := range []string{
		"serve", "migrate", "migrate up", "migrate down", "migrate status",
		"token", "token create", "token list", "token revoke", "import", "export", "backup", "restore", "healthcheck", "version", "help",
	} {
		h.run(settings, 0, append(strings.Fields(name), "--help")...)
	}
	for _, setting := range []string{
		"PLANTSTORE_AUTH_TOKENS=a b ", "PLANTSTORE_CLIENT_TOKEN=a b ", "PLANTSTORE_CLIENT_URL=ftp://", "DATABASE_URL=mysql://u:", "PLANTSTORE_AUTH_JWT_JWKS_URL=http://",
		"PLANTSTORE_AUTH_JWT_PUBLIC_KEY=", "PLANTSTORE_AUTH_JWT_ALGORITHMS=", "PLANTSTORE_AUTH_TOKENS_FILE=/nothing/", "PLANTSTORE_LOG_LEVEL=", "PORT=",
	} {
		name, _, _ := strings.Cut(setting, "=")
		// Only one of a variable and its _FILE variable may be set.
		others := slices.DeleteFunc(slices.Clone(settings), func(s string) bool { return strings.HasPrefix(s, strings.TrimSuffix(name, "_FILE")) })
		h.run(append(others, setting+h.plant("a bad value of "+name)), 2, "serve")
	}
	if h.server != nil {
		wrong := append(slices.Clone(settings), "DATABASE_URL="+h.withPassword(h.plant("a wrong password")), "PLANTSTORE_DATABASE_START_TIMEOUT=10ms")
		h.run(wrong, 1, "serve")
		h.run(wrong, 1, "token", "list")
		h.run(wrong, 1, "migrate", "status")
	}
	// The keys of JWTs cannot be fetched from a URL with a secret.
	others := slices.DeleteFunc(slices.Clone(settings), func(s string) bool { return strings.HasPrefix(s, "PLANTSTORE_AUTH_JWT_PUBLIC_KEY") })
	other := service.Launch(h.t, service.Command(h.t, append(others, "PORT=0", "PLANTSTORE_LOG_FORMAT=json",
		"PLANTSTORE_AUTH_JWT_JWKS_URL=http://127.0.0.1:1/"+h.plant("the path of the JWKS URL")+"?key="+h.plant("the query of the JWKS URL"))))
	other.AwaitError(h.t)
	other.AwaitLog(h.t, "serving")
	other.Stop(h.t)
	h.check(h.t, "a service without keys", other.Stdout.String()+other.Stderr.String(), true)
}

func (h *hunt) run(settings []string, status int, args ...string) {
	h.t.Helper()
	stdout, stderr, got := service.RunToEnd(h.t, settings, args...)
	what := strings.Join(args[:min(2, len(args))], " ")
	if got != status {
		h.t.Errorf("%s: got exit status %d, want %d: %s", what, got, status, stderr)
	}
	// token list shows the names of tokens.
	h.check(h.t, "standard output of "+what, stdout, what != "token list")
	h.check(h.t, "standard error of "+what, stderr, true)
}

// outage returns the error code of takeDatabaseAway.
func (h *hunt) outage() int {
	if h.server == nil {
		return 50301 // locked
	}
	return 50302 // stopped
}

// takeDatabaseAway stops or locks the database.
func (h *hunt) takeDatabaseAway() {
	body := `{"id":40,"name":"` + h.data("a name without a database") + `"}`
	code := h.outage()
	if h.server == nil {
		unlock := service.LockTable(h.t, h.databaseURL)
		defer unlock()
	} else if err := h.server.Stop(); err != nil {
		h.t.Fatal(err)
	}
	h.want("a write without a database", h.send("POST", "/plants", h.static, body), code)
	h.want("an import without a database", h.send("POST", "/plants/import", h.static, body, "Content-Type", "application/x-ndjson"), code)
	h.want("a token without a database", h.send("POST", "/tokens", h.static,
		`{"name":"`+h.data("a token's name without a database")+`","scopes":["admin"]}`), code)
	if h.server != nil {
		h.run(append(slices.Clone(h.settings), "PLANTSTORE_DATABASE_START_TIMEOUT=10ms"), 1, "token", "list")
	}
}

// lookAround stops the service and searches its output for canaries.
func (h *hunt) lookAround() {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", h.service.Process.Pid))
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // only Linux has it
		h.t.Error(err)
	}
	h.check(h.t, "the command line", string(line), true)
	if h.server == nil {
		h.checkFiles(h.t, h.folder, false) // with the WAL
	} else if err := h.server.Start(); err != nil {
		h.t.Fatal(err)
	}
	h.service.Stop(h.t)
	if h.server != nil {
		service.Must(h.t, h.server.Stop())
	}

	log := h.service.Stdout.String() + h.service.Stderr.String()
	h.check(h.t, "the log", log, true)
	for _, expected := range []string{"slow query", "INSERT INTO ", "request failed", "static:1", "jwt:someone", "pst_"} {
		if !strings.Contains(log, expected) {
			h.t.Errorf("got no %q in the log", expected)
		}
	}
	for _, response := range h.responses {
		h.check(h.t, "a response", response, false)
	}
	for _, code := range []int{
		40001, 40002, 40003, 40004, 40005, 40006, 40007, 40101, 40102, 40301, 40401, 40402, 40501, 40901, 40902, 41201, 41301, 41501, 42901, 50001, h.outage(),
	} {
		if !h.codes[code] {
			h.t.Errorf("got no error %d, want each", code)
		}
	}
	h.checkFiles(h.t, h.service.Folder, true)
	h.checkFiles(h.t, h.temporary, true)
	h.checkFiles(h.t, h.folder, false)
	if !filesHave(h.t, h.folder, h.stored) {
		h.t.Error("got no stored canary in the database files")
	}
}
