package operate

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"plantstore/database/dbtest"
	"plantstore/tests/service"
)

func TestBadConfigurationStopsTheStart(t *testing.T) {
	t.Parallel()
	const secret = "canary-7261"
	empty := filepath.Join(t.TempDir(), "empty.db")
	service.Must(t, os.WriteFile(empty, nil, 0o600))
	for _, test := range []struct {
		setting  string
		status   int
		mentions string
	}{
		{"PORT=" + secret, 2, "server.port (PORT)"},
		{"DATABASE_URL=postgres://u:" + secret + "@h/d?sslmode=none", 2, "database.url (DATABASE_URL)"},
		{"DATABASE_URL=postgres://u:" + secret + "@h/d?connect_timeout=x", 2, "database.url (DATABASE_URL)"},
		{"DATABASE_URL=sqlite:" + empty, 1, "is empty"},
		{"DATABASE_URL=sqlite:" + os.DevNull + "/x.db", 1, "database.url (DATABASE_URL)"},
		{"PLANTSTORE_CONFIG=/does/not/exist.yaml", 2, "/does/not/exist.yaml"},
	} {
		t.Run(test.setting, func(t *testing.T) {
			stdout, stderr, status := service.RunToEnd(t, []string{"PORT=0", test.setting}) // of two values, the last counts
			if status != test.status || stdout != "" {
				t.Errorf("got exit status %d and output %q, want %d and no output", status, stdout, test.status)
			}
			if strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, test.mentions) || strings.Contains(stderr, secret) {
				t.Errorf("got %q, want one line with %s and without the value", stderr, test.mentions)
			}
		})
	}
}

func TestProductionRejectsWeakSettings(t *testing.T) {
	t.Parallel()
	database := "DATABASE_URL=" + dbtest.SQLite(t)
	strong := "PLANTSTORE_AUTH_TOKENS=0123456789abcdef0123456789abcdef"
	for _, test := range []struct {
		name     string
		settings []string
		mentions string
	}{
		{"a short token", []string{database, "PLANTSTORE_AUTH_TOKENS=0123456789abcdef0123456789abcde"}, "auth.tokens"},
		{"a strong and a short token", []string{database, strong + ",short"}, "auth.tokens"},
		{"a token of one character", []string{database, "PLANTSTORE_AUTH_TOKENS=" + strings.Repeat("x", 40)}, "auth.tokens"},
		{"a repeated word", []string{database, "PLANTSTORE_AUTH_TOKENS=" + strings.Repeat("01234567", 5)}, "auth.tokens"},
		{"a placeholder", []string{database, "PLANTSTORE_AUTH_TOKENS=ChangeMe-0123456789abcdefghijklmnop"}, "auth.tokens"},
		{"a development token", []string{database, "PLANTSTORE_AUTH_TOKENS=dev_0123456789abcdef0123456789abcdef"}, "auth.tokens"},
		{"no database", []string{strong}, "database.url"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, stderr, status := service.RunToEnd(t, append(test.settings, "PLANTSTORE_ENV=production", "PORT=0"))
			if status != 2 || !strings.Contains(stderr, test.mentions) || strings.Count(stderr, "\n") != 1 {
				t.Errorf("got exit status %d and %q, want 2 and one line with %s", status, stderr, test.mentions)
			}
		})
	}

	s := service.Start(t, database, strong, "PLANTSTORE_ENV=production")
	s.Post(t, `{"id":1,"name":"x"}`, "Authorization", "Bearer 0123456789abcdef0123456789abcdef").CheckStatus(t, 200)
	if s.Stdout.String() != "" {
		t.Errorf("got output %q in production, want no output", s.Stdout)
	}
}

// TestProductionWithoutTokens starts without tokens, which can be issued later.
func TestProductionWithoutTokens(t *testing.T) {
	t.Parallel()
	url := dbtest.SQLite(t)
	s := service.Start(t, "DATABASE_URL="+url, "PLANTSTORE_ENV=production", "PLANTSTORE_AUTH_TOKENS=")
	if !s.Stderr.Await(s.Ended, func(line string) bool { return strings.Contains(line, "plantstore token create") }) {
		t.Errorf("got no hint to create tokens in the log:\n%s", s.Stderr)
	}
	if _, err := os.Stat(filepath.Join(s.Folder, "data")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got a data folder in production (%v), want no development token", err)
	}
	s.Post(t, service.BodyOf(1)).CheckError(t, 40102)
	s.Post(t, service.BodyOf(1), service.As(service.Issue(t, url))...).CheckStatus(t, 200)
}

func TestFlagsBeatTheEnvironment(t *testing.T) {
	t.Parallel()
	s := service.Launch(t, service.Command(t, []string{"PORT=1", "DATABASE_URL=sqlite:environment.db", "PLANTSTORE_LOG_FORMAT=json"},
		"serve", "--port", "0", "--database-url", "sqlite:flag.db"))
	s.AwaitLog(t, "serving")
	if _, err := os.Stat(filepath.Join(s.Folder, "flag.db")); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(s.Folder, "environment.db")); err == nil {
		t.Error("got the database of the environment as well")
	}
}

// TestConfig prints the configuration from each kind of source.
func TestConfig(t *testing.T) {
	t.Parallel()
	file := service.Write(t, "config.yaml", "log:\n  level: warn\n")
	secret := service.Write(t, "url", "postgres://user:password-4711@127.0.0.1/x")
	settings := []string{
		"PLANTSTORE_CONFIG=" + file, "DATABASE_URL=", "DATABASE_URL_FILE=" + secret, "PLANTSTORE_AUTH_TOKENS=" + service.Token, "PORT=7",
		"DATABASE_REPLICA_URLS=postgres://user:password-4711@127.0.0.1/y",
	}
	public, _, err := ed25519.GenerateKey(nil)
	service.Must(t, err)
	der, err := x509.MarshalPKIXPublicKey(public)
	service.Must(t, err)
	key := string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	jwt := []string{"PLANTSTORE_AUTH_JWT_ISSUER=a", "PLANTSTORE_AUTH_JWT_AUDIENCE=b", "PLANTSTORE_AUTH_JWT_PUBLIC_KEY=" + key}
	stdout, stderr, status := service.RunToEnd(t, append(settings, jwt...), "config", "--host", "127.0.0.1")
	if status != 0 || stderr != "" || strings.Contains(stdout, "4711") || strings.Contains(stdout, service.Token) {
		t.Fatalf("got exit status %d, %q, %q", status, stdout, stderr)
	}
	for _, want := range []string{
		`server\.host +127\.0\.0\.1 +--host`, `server\.port +7 +PORT`, `database\.url +\*\*\* +DATABASE_URL_FILE`, `log\.level +warn +\S*config\.yaml`,
		`auth\.tokens +\*\*\* +PLANTSTORE_AUTH_TOKENS`, `database\.replica_urls +\*\*\* +DATABASE_REPLICA_URLS`, `client\.token + default`, `database\.timeout +3s +default`,
		`auth\.jwt\.public_key +-----BEGIN PUBLIC KEY-----\\n.* +PLANTSTORE_AUTH_JWT_PUBLIC_KEY`,
	} {
		t.Run(want, func(t *testing.T) {
			if !regexp.MustCompile("(?m)^" + want + "$").MatchString(stdout) {
				t.Errorf("got no such line in\n%s", stdout)
			}
		})
	}
	service.CheckCLI(t, append(settings, "PORT=x"), []string{"config"}, 2, "", "server.port (PORT) must be a decimal integer")
	service.CheckCLI(t, append(settings, "PLANTSTORE_WRITES_FLUSHERS=8"), []string{"config"}, 2, "", "database.max_connections (PLANTSTORE_DATABASE_MAX_CONNECTIONS) must be at least 17 with writes.flushers at 8")
	service.CheckCLI(t, append(settings, "PLANTSTORE_DATABASE_MAX_CONNECTIONS=0"), []string{"config"}, 2, "", "database.max_connections (PLANTSTORE_DATABASE_MAX_CONNECTIONS) must be at least 10")
	service.CheckCLI(t, append(settings, append(jwt, "PLANTSTORE_AUTH_JWT_PUBLIC_KEY=x")...), []string{"config"}, 2, "", "auth.jwt.public_key (PLANTSTORE_AUTH_JWT_PUBLIC_KEY): not PEM")
	if _, stderr, status := service.RunToEnd(t, append(settings, "DATABASE_URL_FILE=", "DATABASE_URL=postgres://h/d?sslrootcert=/nothing"), "config"); status != 0 {
		t.Errorf("got exit status %d and %q without the certificate of the database, want 0", status, stderr)
	}
}

// TestConfigIsAsStrict compares `config` with the service.
func TestConfigIsAsStrict(t *testing.T) {
	t.Parallel()
	const secret = "value-4711"
	for _, test := range []struct {
		settings []string
		mentions string
	}{
		{[]string{"DATABASE_URL=postgres://u:" + secret + "@h/d?application_name=a&sslmode=" + secret}, "database.url (DATABASE_URL): the database URL, or a variable such as PGSSLMODE, has a port or a parameter that is not valid, or names a file that cannot be read\n"},
		{[]string{"DATABASE_URL=postgres://h/d", "DATABASE_REPLICA_URLS=postgres://u:" + secret + "@h/d,postgres://h/d?sslmode=" + secret}, "database.replica_urls (DATABASE_REPLICA_URLS): the database URL, or a variable"},
	} {
		t.Run(strings.Join(test.settings, " "), func(t *testing.T) {
			_, check, status := service.RunToEnd(t, test.settings, "config")
			_, serve, also := service.RunToEnd(t, test.settings)
			if status != 2 || also != 2 || check != serve || !strings.Contains(check, test.mentions) || strings.Contains(check, secret) {
				t.Errorf("got exit status %d, %q, and of the service %d, %q, want 2, and %q in both", status, check, also, serve, test.mentions)
			}
		})
	}
}
