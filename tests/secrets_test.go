package tests

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"database/sql"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/golang-jwt/jwt/v5"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"plantstore/controllers"
	"plantstore/database/dbtest"
	"plantstore/middleware"
)

// canaries are secrets, each of them for one place: one that turns up elsewhere
// tells how it came there.
type canaries struct {
	mu    sync.Mutex
	known []canary
}

type canary struct {
	where, text string
	// data is what a client stores, and may get back; others are for nobody.
	data bool
}

// add makes text a canary, which is at home where.
func (c *canaries) add(where, text string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known = append(c.known, canary{where: where, text: text})
	return text
}

// plant returns a new canary. It is a strong token, too.
func (c *canaries) plant(where string) string { return c.add(where, newCanary()) }

func newCanary() string { return "canary-" + strings.ToLower(rand.Text()) }

// data returns a new canary that may be in the database and in answers.
func (c *canaries) data(where string) string {
	text := newCanary()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known = append(c.known, canary{where, text, true})
	return text
}

// piece is how much of a canary must not be seen: a part may do the same harm.
const piece = 16

// in returns which canaries text has, or a piece of, in any case.
func (c *canaries) in(text string, dataToo bool) (found []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	text = strings.ToLower(text)
	for _, one := range c.known {
		secret := strings.ToLower(one.text)
		// The beginning tells which it is, and has no secret: canary-, or pst_ with the id.
		begin, end := secret[min(len("pst_abcdefgh"), len(secret)-piece):], secret[len(secret)-piece:]
		if (dataToo || !one.data) && (strings.Contains(text, begin[:piece]) || strings.Contains(text, end)) {
			found = append(found, one.where)
		}
	}
	return found
}

// check reports the canaries in text.
func (c *canaries) check(t *testing.T, where, text string, dataToo bool) {
	t.Helper()
	for _, found := range c.in(text, dataToo) {
		t.Errorf("%s: there is the canary of: %s", where, found)
	}
}

// checkFiles reports the canaries in the files below folder.
func (c *canaries) checkFiles(t *testing.T, folder string, dataToo bool) {
	t.Helper()
	walkFiles(t, folder, func(path, content string) { c.check(t, path, content, dataToo) })
}

// TestSecretsStaySecret starts the service in several ways, gives it secrets by all
// ways there are, and provokes every kind of error. Then it looks at all that the
// service has written.
func TestSecretsStaySecret(t *testing.T) {
	for _, test := range []struct {
		name     string
		postgres bool
		settings []string
		// secret is a setting whose value is a token.
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
				secret = write(t, "secret", secret+"\n")
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

// hunt is a service with canaries in all that it is given.
type hunt struct {
	*canaries
	t           *testing.T
	server      *dbtest.Server // nil on SQLite
	databaseURL string
	folder      string   // of the database
	settings    []string // with the canaries, of commands too
	service     *service
	temporary   string // where the service may put files
	static      string // a token
	key         ed25519.PrivateKey
	stored      string       // what must be found in the folder of the database
	codes       map[int]bool // the error codes that were seen
	responses   []string
}

// ownPostgres starts a PostgreSQL that asks for a password.
func (h *hunt) ownPostgres() {
	h.server = ownServer(h.t)
	var data string
	if err := openTable(h.t, h.server.URL).QueryRowContext(h.t.Context(), "SHOW data_directory").Scan(&data); err != nil {
		h.t.Fatal(err)
	}
	h.folder = filepath.Dir(data) // where PostgreSQL has its log, too
	password := h.plant("the password of the database")
	dbtest.Exec(h.t, h.server.URL, "ALTER ROLE postgres PASSWORD '"+password+"'")
	const rules = "host all all 127.0.0.1/32 scram-sha-256\n"
	if err := os.WriteFile(filepath.Join(data, "pg_hba.conf"), []byte(rules), 0o600); err != nil {
		h.t.Fatal(err)
	}
	dbtest.Exec(h.t, h.server.URL, "SELECT pg_reload_conf()")
	h.databaseURL = h.withPassword(password)
	eventually(h.t, "a PostgreSQL that asks for a password", func() bool {
		db, err := sql.Open("pgx", h.withPassword(newCanary()))
		if err == nil {
			err = errors.Join(db.PingContext(h.t.Context()), db.Close())
		}
		return err != nil
	})
}

// withPassword returns the URL of PostgreSQL with a password.
func (h *hunt) withPassword(password string) string {
	u, err := url.Parse(h.server.URL)
	if err != nil {
		h.t.Fatal(err)
	}
	u.User = url.UserPassword("postgres", password)
	return u.String()
}

// begin starts the service.
func (h *hunt) begin(settings []string) {
	public, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		h.t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		h.t.Fatal(err)
	}
	h.key, h.codes, h.temporary = key, make(map[int]bool), h.t.TempDir()
	h.settings = append(slices.Clone(settings),
		"DATABASE_URL="+h.databaseURL,
		"TMPDIR="+h.temporary,
		"PLANTSTORE_LOG_LEVEL=debug",
		"PLANTSTORE_DATABASE_SLOW_QUERY=1ns",
		"PLANTSTORE_DATABASE_TIMEOUT=2s",
		"PLANTSTORE_LIMITS_FAILURES_PER_MINUTE=100",
		"PLANTSTORE_AUTH_JWT_ISSUER=https://id.example.org/"+h.plant("the issuer of JWTs"),
		"PLANTSTORE_AUTH_JWT_AUDIENCE="+h.plant("the audience of JWTs"),
		"PLANTSTORE_AUTH_JWT_PUBLIC_KEY="+string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})),
		"PLANTSTORE_CLIENT_TOKEN="+h.plant("the client's token"),
	)
	h.service = launch(h.t, command(h.t, slices.Concat(h.settings, []string{"PORT=0"})))
	h.service.stderr.await(h.service.ended, func(line string) bool {
		_, rest, found := strings.Cut(line, "[::]:") // in JSON and on a console
		h.service.url = "http://127.0.0.1:" + strings.TrimRight(rest, `"}`)
		return found
	})
	if h.service.url == "" {
		h.t.Fatalf("the service does not serve:\n%s", h.service.stderr)
	}
}

// setting returns the value of a setting.
func (h *hunt) setting(name string) (value string) {
	for _, s := range h.settings {
		if rest, ok := strings.CutPrefix(s, name+"="); ok {
			value = rest
		}
	}
	return value
}

// send sends a request with a token, and canaries wherever a request has room.
func (h *hunt) send(method, path, token, body string, headers ...string) response {
	h.t.Helper()
	all := []string{
		"Authorization", "Bearer " + token,
		"Cookie", "session=" + h.plant("a cookie"),
		"X-Api-Key", h.plant("an API key"),
		"X-Request-ID", "id/" + h.plant("a request id that is refused"),
		"Proxy-Authorization", "Bearer " + h.plant("the token of a proxy"),
		"Referer", "https://example.org/?code=" + h.plant("a referrer"),
		"User-Agent", h.plant("the name of a browser"),
	}
	r := h.service.send(h.t, method, path, strings.NewReader(body), append(all, headers...)...)
	h.codes[r.code()] = true
	h.responses = append(h.responses, fmt.Sprint(r.header, r.body))
	return r
}

// want checks that a request has come as far as it was to.
func (h *hunt) want(what string, r response, status, code int) {
	h.t.Helper()
	if r.status != status || r.code() != code {
		h.t.Errorf("%s: got %v, want %d with error %d", what, r, status, code)
	}
}

// signed returns a JWT, whose payload and signature are canaries.
func (h *hunt) signed(where, subject string, key ed25519.PrivateKey) string {
	text, err := jwt.NewWithClaims(jwt.SigningMethodEdDSA, jwt.MapClaims{
		"iss": h.setting("PLANTSTORE_AUTH_JWT_ISSUER"), "aud": h.setting("PLANTSTORE_AUTH_JWT_AUDIENCE"),
		"sub": subject, "scope": "plants:read", "exp": time.Now().Add(time.Hour).Unix(),
	}).SignedString(key)
	if err != nil {
		h.t.Fatal(err)
	}
	parts := strings.Split(text, ".")
	h.add(where, parts[1])
	h.add(where, parts[2])
	return text
}

// issue issues a token, which is a canary.
func (h *hunt) issue(scopes string) string {
	stdout, stderr, status := runToEnd(h.t, h.settings, "token", "create", "--name", h.data("the name of a token"), "--scope", scopes)
	if status != 0 || !wellFormed.MatchString(strings.TrimSpace(stdout)) {
		h.t.Fatalf("token create: exit status %d, %s", status, stderr)
	}
	return h.add("an issued token", strings.TrimSpace(stdout))
}

// sendTokens sends tokens, right and wrong ones.
func (h *hunt) sendTokens() {
	reader, admin := h.issue("plants:read"), h.issue("admin")
	_, otherKey, err := ed25519.GenerateKey(nil)
	if err != nil {
		h.t.Fatal(err)
	}
	for _, test := range []struct {
		name, method, path, token string
		status, code              int
	}{
		{name: "a static token", method: "GET", path: "/plants", token: h.static, status: 200},
		{name: "an issued token", method: "GET", path: "/plants", token: reader, status: 200},
		{name: "a JWT", method: "GET", path: "/plants", token: h.signed("a JWT", "someone", h.key), status: 200},
		{name: "a wrong token", method: "GET", path: "/plants", token: h.plant("a wrong token"), status: 401, code: 40102},
		{name: "a mistyped issued token", method: "GET", path: "/plants", token: h.add("a mistyped token", mistype(reader)), status: 401, code: 40102},
		{name: "an issued token of another service", method: "GET", path: "/plants", token: h.add("a token from elsewhere", issue(h.t, dbtest.SQLite(h.t))), status: 401, code: 40102},
		{name: "a JWT with a wrong signature", method: "GET", path: "/plants", token: h.signed("a wrong JWT", h.plant("a subject that is not believed"), otherKey), status: 401, code: 40102},
		{name: "two tokens", method: "GET", path: "/plants", token: h.static + " " + reader, status: 401, code: 40102},
		{name: "a token without the scope", method: "POST", path: "/plants", token: reader, status: 403, code: 40301},
		{name: "a JWT without the scope", method: "POST", path: "/plants", token: h.signed("another JWT", "someone", h.key), status: 403, code: 40301},
		{name: "a token in the query", method: "GET", path: "/plants?token=" + h.plant("a token in the query"), token: reader, status: 400, code: 40007},
		{name: "a token in the query, and no other", method: "GET", path: "/plants?access_token=" + admin, status: 401, code: 40101},
		{name: "no such path", method: "GET", path: "/nothing?token=" + h.plant("a query of no path"), token: h.static, status: 404, code: 40402},
		{name: "no such method", method: "PUT", path: "/plants?token=" + h.plant("a query of no method"), token: h.static, status: 405, code: 40501},
		{name: "a token in the path", method: "DELETE", path: "/tokens/" + reader, token: admin, status: 400, code: 40007},
		{name: "a token for an id", method: "GET", path: "/plants/" + admin, token: admin, status: 400, code: 40007},
		{name: "a token for a path", method: "GET", path: "/" + admin, token: admin, status: 404, code: 40402},
		{name: "a token for a parameter", method: "GET", path: "/plants?" + admin + "=1", token: admin, status: 400, code: 40007},
	} {
		h.want(test.name, h.send(test.method, test.path, test.token, `{"id":1}`), test.status, test.code)
	}
	h.want("a token for a request id", h.send("GET", "/plants", reader, "", "X-Request-ID", reader), 200, 0)
	h.want("a token for a field", h.send("POST", "/plants", admin, `{"`+admin+`":1}`), 400, 40002)
	basic := base64.StdEncoding.EncodeToString([]byte("user:" + newCanary()))
	h.add("a password of another scheme", basic)
	h.want("another scheme", h.send("GET", "/plants", "", "", "Authorization", "Basic "+basic), 401, 40101)

	// What is issued and revoked by requests.
	created, err := h.service.tryOn(connections, "POST", "/tokens",
		strings.NewReader(`{"name":"`+h.data("the name of a token")+`","scopes":["plants:write"]}`), as(admin)...)
	if err != nil || created.status != 200 {
		h.t.Fatalf("%d, %v", created.status, err)
	}
	_, secret, _ := strings.Cut(created.body, `"token":"`)
	issued := h.add("a token issued by a request", secret[:len(admin)])
	h.want("it writes", h.send("PUT", "/plants/1", issued, `{"name":"x"}`), 200, 0)
	h.want("it ends", h.send("DELETE", "/tokens/"+prefixOf(issued), admin, ""), 204, 0)
	for field, body := range map[string]string{
		"expires_at": `{"name":"x","scopes":["admin"],"expires_at":"%s"}`,
		"scopes":     `{"name":"x","scopes":["%s"]}`,
	} {
		h.want(field, h.send("POST", "/tokens", admin, fmt.Sprintf(body, h.plant(field))), 400, 40006)
	}
	for range 101 {
		h.send("GET", "/plants", h.plant("a wrong token of many"), "")
	}
	if !h.codes[42901] {
		h.t.Error("wrong tokens are not limited")
	}
}

// sendBodies sends bodies, right and wrong ones.
func (h *hunt) sendBodies() {
	name, tag := h.data("a name"), h.data("a tag")
	h.stored = tag
	plant := fmt.Sprintf(`{"id":7,"name":"%s","tag":"%s"}`, name, tag)
	search := "/plants?tag=" + h.data("a tag that is looked for") + "&q=" + h.data("a name that is looked for")
	for _, test := range []struct {
		name, method, path, body string
		headers                  []string
		status, code             int
	}{
		{name: "a plant", method: "POST", path: "/plants", body: plant, status: 200},
		{name: "the same plant", method: "POST", path: "/plants", body: plant, status: 409, code: 40902},
		{name: "another plant", method: "POST", path: "/plants", body: `{"id":7,"name":"` + h.data("another name") + `"}`, status: 409, code: 40901},
		{name: "a search", method: "GET", path: search, status: 200},
		{name: "a search with too much", method: "GET", path: search + "&key=" + h.plant("a parameter"), status: 400, code: 40007},
		{name: "a new name", method: "PATCH", path: "/plants/7", body: `{"name":"` + h.data("a new name") + `"}`, status: 200},
		{name: "no JSON", method: "POST", path: "/plants", body: `{"id":8,"name":` + h.plant("no JSON"), status: 400, code: 40001},
		{name: "an unknown field", method: "POST", path: "/plants", body: `{"id":8,"name":"x","password":"` + h.plant("an unknown field") + `"}`, status: 400, code: 40002},
		{name: "a field twice", method: "POST", path: "/plants", body: `{"id":8,"id":9,"name":"` + h.plant("a name beside an id twice") + `"}`, status: 400, code: 40003},
		{name: "a wrong type", method: "POST", path: "/plants", body: `{"id":8,"name":["` + h.plant("a list for a name") + `"]}`, status: 400, code: 40004},
		{name: "no integer", method: "POST", path: "/plants", body: `{"id":"` + h.plant("a text for an id") + `","name":"x"}`, status: 400, code: 40005},
		{name: "a long name", method: "POST", path: "/plants", body: `{"id":8,"name":"` + strings.Repeat(h.plant("a long name"), 9) + `"}`, status: 400, code: 40006},
		{name: "a large body", method: "POST", path: "/plants", body: strings.Repeat(h.plant("a large body"), 2000), status: 400, code: 41301},
		{name: "another type of body", method: "POST", path: "/plants", body: h.plant("another type of body"), headers: []string{"Content-Type", "text/" + h.plant("a type")}, status: 400, code: 41501},
		{name: "a bad condition", method: "DELETE", path: "/plants/7", headers: []string{"If-Match", h.plant("a bad condition")}, status: 400, code: 40007},
		{name: "a condition", method: "DELETE", path: "/plants/7", headers: []string{"If-Match", `"` + h.plant("a condition") + `"`}, status: 412, code: 41201},
		{name: "no plant", method: "GET", path: "/plants/99", status: 404, code: 40401},
		{
			name: "an import", method: "POST", path: "/plants/import", body: fmt.Sprintf("id,name,tag\n20,%s,%s\n", h.data("a cell"), h.data("another cell")),
			headers: []string{"Content-Type", "text/csv"},
			status:  200},
		{
			name: "an import of bad rows", method: "POST", path: "/plants/import", body: fmt.Sprintf("id,name,tag\n%s,x,\n21,,%s\n20,%s,\n22,\"%s", h.plant("a cell for an id"),
				h.plant("a cell beside a bad one"), h.plant("a cell of an id that is taken"), h.plant("a cell without an end")),
			headers: []string{"Content-Type", "text/csv"},
			status:  400, code: 40005,
		},
		{
			name: "an import of an unknown column", method: "POST", path: "/plants/import?mode=partial", body: "id,name,tag\n" + strings.Repeat(h.plant("a long line"), 3000),
			headers: []string{"Content-Type", "text/csv"},
			status:  400, code: 41301,
		},
		{name: "an import of bad lines", method: "POST", path: "/plants/import", body: fmt.Sprintf("{\"id\":\"%s\"}\n%s\n{\"name\":\"%[1]s\",\"secret\":\"%[2]s\"}\n",
			h.plant("a line's id"), h.plant("a line that is no JSON")), headers: []string{"Content-Type", "application/x-ndjson"}, status: 400, code: 40005},
		{name: "an export", method: "GET", path: "/plants/export", status: 200},
		{name: "every token", method: "GET", path: "/tokens", status: 200},
		{name: "the document", method: "GET", path: "/openapi.json", status: 200},
		{name: "whether it is ready", method: "GET", path: "/readyz", status: 200},
	} {
		h.want(test.name, h.send(test.method, test.path, h.static, test.body, test.headers...), test.status, test.code)
	}
}

// provokeFaults provokes what the service cannot carry out, and what is hardly HTTP.
func (h *hunt) provokeFaults() {
	db := openTable(h.t, h.databaseURL)
	for _, table := range []string{"plants", "tokens"} {
		if _, err := db.ExecContext(h.t.Context(), "ALTER TABLE "+table+" RENAME TO gone"); err != nil {
			h.t.Fatal(err)
		}
		body := `{"id":30,"name":"` + h.data("a name that cannot be stored") + `"}`
		if table == "tokens" {
			body = `{"name":"` + h.data("a token's name that cannot be stored") + `","scopes":["admin"]}`
		}
		h.want("without a table", h.send("POST", "/"+table, h.static, body), 500, 50001)
		if _, err := db.ExecContext(h.t.Context(), "ALTER TABLE gone RENAME TO "+table); err != nil {
			h.t.Fatal(err)
		}
	}
	for what, text := range map[string]string{
		"a bad line":       "GET /plants?token=" + h.plant("a bad line") + "\r\n\r\n",
		"a bad header":     "GET /plants HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + h.plant("a token above a bad header") + "\r\nX " + h.plant("a bad header") + "\r\n\r\n",
		"a large header":   "GET /plants HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + strings.Repeat(h.plant("a large token"), 1000) + "\r\n\r\n",
		"half a body":      "POST /plants HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer " + h.static + "\r\nContent-Length: 100\r\n\r\n{\"name\":\"" + h.plant("half a body"),
		"a bad chunk":      "POST /plants HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer " + h.static + "\r\nTransfer-Encoding: chunked\r\n\r\n" + h.plant("a bad chunk") + "\r\n",
		"half an import":   "POST /plants/import HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer " + h.static + "\r\nContent-Type: text/csv\r\nContent-Length: 100\r\n\r\nid,name\n1," + h.plant("half an import"),
		"a TLS connection": "\x16\x03\x01\x00\x05" + h.plant("what should have been TLS") + "\r\n\r\n",
	} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(h.service.url, "http://"))
		if err != nil {
			h.t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(patience)) // a TCP connection has deadlines
		// Where the service closes early, the rest of the text does not arrive.
		_, _ = io.WriteString(conn, text)
		_ = conn.(*net.TCPConn).CloseWrite()
		got, _ := io.ReadAll(conn)
		if len(got) == 0 && what != "a large header" {
			h.t.Errorf("%s has no answer", what)
		}
		h.responses = append(h.responses, string(got))
		_ = conn.Close() // nothing is left to be sent
	}
}

// runCommands runs every command, as it should be and not.
func (h *hunt) runCommands() {
	bad := write(h.t, "bad.csv", fmt.Sprintf("id,name,tag\n%s,x,\n1,%s,\x01\n", h.plant("an id of a file"), h.plant("a name of a file")))
	tokenFile := write(h.t, "token", h.static)
	wrongFile := write(h.t, "wrong", h.plant("a wrong token in a file"))
	target := filepath.Join(h.t.TempDir(), "plants.csv")
	leaked := h.issue("plants:read")
	service := []string{"--url", h.service.url, "--token-file", tokenFile}
	settings := slices.Concat(h.settings, []string{"PORT=" + h.service.url[strings.LastIndex(h.service.url, ":")+1:]})
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
		{append([]string{"import", bad}, service...), 3},
		{append([]string{"export", "-o", target}, service...), 0},
		{[]string{"import", bad, "--url", h.service.url}, 1}, // with client.token, which is wrong
		{[]string{"export", "--url", h.service.url}, 1},
		{[]string{"import", bad, "--url", h.service.url, "--token-file", wrongFile}, 1},
		{[]string{"import", bad, "--url", "http://user:" + h.plant("a password in a URL") + "@127.0.0.1:1"}, 2},
		{[]string{"import", bad, "--url", "http://127.0.0.1:1"}, 1},
		{[]string{"--help"}, 0},
	} {
		h.run(settings, test.status, test.args...)
	}
	for _, name := range []string{
		"serve", "migrate", "migrate up", "migrate down", "migrate status", "search-index", "search-index create", "search-index drop",
		"token", "token create", "token list", "token revoke", "import", "export", "healthcheck", "version", "help",
	} {
		h.run(settings, 0, append(strings.Fields(name), "--help")...)
	}
	for _, setting := range []string{
		"PLANTSTORE_AUTH_TOKENS=a b ", "PLANTSTORE_CLIENT_TOKEN=a b ", "PLANTSTORE_CLIENT_URL=ftp://", "DATABASE_URL=mysql://u:", "PLANTSTORE_AUTH_JWT_JWKS_URL=http://",
		"PLANTSTORE_AUTH_JWT_PUBLIC_KEY=", "PLANTSTORE_AUTH_JWT_ALGORITHMS=", "PLANTSTORE_AUTH_TOKENS_FILE=/nothing/", "PLANTSTORE_LOG_LEVEL=", "PORT=",
	} {
		name, _, _ := strings.Cut(setting, "=")
		// Of a variable and the one for its file, only one may be set.
		others := slices.DeleteFunc(slices.Clone(settings), func(s string) bool { return strings.HasPrefix(s, strings.TrimSuffix(name, "_FILE")) })
		h.run(append(others, setting+h.plant("a bad value of "+name)), 2, "serve")
	}
	if h.server != nil {
		wrong := append(slices.Clone(settings), "DATABASE_URL="+h.withPassword(h.plant("a wrong password")), "PLANTSTORE_DATABASE_START_TIMEOUT=10ms")
		h.run(wrong, 1, "serve")
		h.run(wrong, 1, "token", "list")
		h.run(wrong, 1, "migrate", "status")
	}
	// The keys of JWTs cannot be fetched, from a URL with a key in it.
	others := slices.DeleteFunc(slices.Clone(settings), func(s string) bool { return strings.HasPrefix(s, "PLANTSTORE_AUTH_JWT_PUBLIC_KEY") })
	other := launch(h.t, command(h.t, append(others, "PORT=0", "PLANTSTORE_LOG_FORMAT=json",
		"PLANTSTORE_AUTH_JWT_JWKS_URL=http://127.0.0.1:1/"+h.plant("the path of the JWKS URL")+"?key="+h.plant("the query of the JWKS URL"))))
	other.awaitLog(h.t, "the keys of JWTs could not be fetched")
	other.awaitLog(h.t, "serving")
	other.stop(h.t)
	h.check(h.t, "a service without keys", other.stdout.String()+other.stderr.String(), true)
}

// run runs a command to its end.
func (h *hunt) run(settings []string, status int, args ...string) {
	h.t.Helper()
	stdout, stderr, got := runToEnd(h.t, settings, args...)
	what := strings.Join(args[:min(2, len(args))], " ")
	if got != status {
		h.t.Errorf("%s: exit status %d, want %d: %s", what, got, status, stderr)
	}
	// token list has the names of tokens; that is what it is for.
	h.check(h.t, "standard output of "+what, stdout, what != "token list")
	h.check(h.t, "standard error of "+what, stderr, true)
}

// takeDatabaseAway leaves the service without its database.
func (h *hunt) takeDatabaseAway() {
	body := `{"id":40,"name":"` + h.data("a name without a database") + `"}`
	if h.server == nil {
		unlock := lockTable(h.t, h.databaseURL)
		defer unlock()
	} else if err := h.server.Stop(); err != nil {
		h.t.Fatal(err)
	}
	h.want("a write without a database", h.send("POST", "/plants", h.static, body), 503, 50302)
	h.want("an import without a database", h.send("POST", "/plants/import", h.static, body, "Content-Type", "application/x-ndjson"), 503, 50302)
	h.want("a token without a database", h.send("POST", "/tokens", h.static,
		`{"name":"`+h.data("a token's name without a database")+`","scopes":["admin"]}`), 503, 50302)
	if h.server != nil {
		h.run(append(slices.Clone(h.settings), "PLANTSTORE_DATABASE_START_TIMEOUT=10ms"), 1, "token", "list")
	}
}

// lookAround stops the service and looks for canaries in all that it leaves.
func (h *hunt) lookAround() {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", h.service.process.Pid))
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // not every system has it
		h.t.Error(err)
	}
	h.check(h.t, "the command line", string(line), true)
	if h.server == nil {
		h.checkFiles(h.t, h.folder, false) // with the WAL
	} else if err := h.server.Start(); err != nil {
		h.t.Fatal(err)
	}
	h.service.stop(h.t)
	if h.server != nil {
		if err := h.server.Stop(); err != nil {
			h.t.Fatal(err)
		}
	}

	log := h.service.stdout.String() + h.service.stderr.String()
	h.check(h.t, "the log", log, true)
	for _, expected := range []string{"slow query", "INSERT INTO ", "request failed", "static:1", "jwt:someone", "pst_"} {
		if !strings.Contains(log, expected) {
			h.t.Errorf("the log lacks %q: what was to be looked at is not there", expected)
		}
	}
	for _, response := range h.responses {
		h.check(h.t, "an answer", response, false)
	}
	for _, code := range []int{
		40001, 40002, 40003, 40004, 40005, 40006, 40007, 40101, 40102, 40301, 40401, 40402, 40501, 40901, 40902, 41201, 41301, 41501, 42901, 50001, 50302,
	} {
		if !h.codes[code] {
			h.t.Errorf("error %d was not provoked", code)
		}
	}
	h.checkFiles(h.t, h.service.folder, true)
	h.checkFiles(h.t, h.temporary, true)
	h.checkFiles(h.t, h.folder, false)
	if !filesHave(h.t, h.folder, h.stored) {
		h.t.Error("what was stored is not found either: the database is not there")
	}
}

// filesHave reports whether a file below folder has text.
func filesHave(t *testing.T, folder, text string) (found bool) {
	t.Helper()
	c := new(canaries)
	c.add("", text)
	walkFiles(t, folder, func(_, content string) { found = found || len(c.in(content, true)) > 0 })
	return found
}

// walkFiles calls visit with each file below folder.
func walkFiles(t *testing.T, folder string, visit func(path, content string)) {
	t.Helper()
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		visit(path, string(content))
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestPanicTellsNoSecret panics in a handler, for the service itself has none that
// would. What it panics with may be anything, such as the request.
func TestPanicTellsNoSecret(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		panic func(r *http.Request)
		// logged is what the log must say.
		logged string
	}{
		{"an error of the runtime", func(r *http.Request) { _ = r.Header["Cookie"][7] }, "index out of range [7] with length 1"},
		{"a division by nothing", func(r *http.Request) { _ = 1 / len(r.Header["None"]) }, "integer divide by zero"},
		{"another type", func(r *http.Request) { var v any = r.Header; _ = v.(string) }, "interface conversion"},
		{"a text", func(*http.Request) { panic("never here") }, "never here"},
		{"an error", func(*http.Request) { panic(errors.New("never here")) }, "never here"},
		{"the request", func(r *http.Request) { panic(r) }, "*http.Request"},
		{"the header", func(r *http.Request) { panic(r.Header) }, "http.Header"},
		{"a text with an issued token", func(r *http.Request) { panic("no " + r.URL.Query().Get("token")) }, "no pst_"},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := new(canaries)
			log := newLines()
			core := zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), zapcore.Lock(zapcore.AddSync(log)), zap.DebugLevel)
			logger := zap.New(core)
			gin.SetMode(gin.ReleaseMode)
			e := gin.New()
			e.Use(middleware.RequestID(), middleware.AccessLog(logger), controllers.Errors(logger), middleware.Recovery(logger))
			e.POST("/*path", func(c *gin.Context) { test.panic(c.Request) })

			issued := h.add("an issued token", issue(t, dbtest.SQLite(t)))
			request := httptest.NewRequest(http.MethodPost, "/"+issued+"?token="+issued, strings.NewReader(h.plant("the body")))
			request.Header.Set("Authorization", "Bearer "+h.plant("the token"))
			request.Header.Set("Cookie", h.plant("a cookie"))
			recorder := httptest.NewRecorder()
			e.ServeHTTP(recorder, request)
			if recorder.Code != 500 || !strings.Contains(log.String(), `"msg":"panic"`) || !strings.Contains(log.String(), test.logged) {
				t.Errorf("%d, the log has no %q:\n%s", recorder.Code, test.logged, log)
			}
			h.check(t, test.name+": the log", log.String(), true)
			h.check(t, test.name+": the answer", fmt.Sprint(recorder.Header(), recorder.Body), true)
		})
	}
}
