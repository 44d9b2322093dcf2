package config_test

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"plantstore/config"
	"plantstore/configs"
)

// write makes a file of text and returns its path.
func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func load(t *testing.T, environ ...string) *config.Config {
	t.Helper()
	c, err := config.Load(config.Sources{Environ: environ})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestDefaults(t *testing.T) {
	got := load(t)
	want := &config.Config{
		Env: "development",
		Server: config.Server{
			Port: 8080, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 15 * time.Second, WriteTimeout: 30 * time.Second,
			IdleTimeout: time.Minute, ShutdownTimeout: 20 * time.Second, MaxHeaderBytes: 16384, MaxBodyBytes: 65536,
			MaxConnections: 10_000, TrustedProxies: []string{}, CORSOrigins: []string{},
		},
		Database: config.Database{
			URL: "sqlite:data/plantstore.db", Migrate: true, MaxConnections: 16, Timeout: 3 * time.Second,
			StartTimeout: 30 * time.Second, SlowQuery: 200 * time.Millisecond,
		},
		Writes: config.Writes{Flushers: 1, MaxBatch: 512, Queue: 4096},
		Bulk:   config.Bulk{MaxBodyBytes: 1 << 30, Timeout: 15 * time.Minute},
		Auth: config.Auth{
			Tokens: []string{},
			JWT:    config.JWT{Algorithms: []string{"RS256", "ES256", "EdDSA"}, Leeway: 30 * time.Second},
		},
		Limits: config.Limits{FailuresPerMinute: 600},
		Docs:   config.Docs{Enabled: true},
		Log:    config.Log{Level: "info", Format: "auto"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

// TestEveryFieldHasAKey holds the struct, the default file and the README's
// table against each other.
func TestEveryFieldHasAKey(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	var walk func(reflect.Type, string)
	walk = func(typ reflect.Type, prefix string) {
		for field := range typ.Fields() {
			key := prefix + field.Tag.Get("mapstructure")
			if field.Type.Kind() == reflect.Struct {
				walk(field.Type, key+".")
			} else {
				keys = append(keys, key)
			}
		}
	}
	walk(reflect.TypeFor[config.Config](), "")
	for _, key := range keys {
		parts := strings.Split(key, ".")
		var pattern strings.Builder
		pattern.WriteString(`(?m)`)
		for depth, group := range parts[:len(parts)-1] {
			indent := strings.Repeat("  ", depth)
			pattern.WriteString(`^` + indent + group + `:(?: # .+)?\n(?:` + indent + `  .*\n)*?`)
		}
		pattern.WriteString(`^` + strings.Repeat("  ", len(parts)-1) + parts[len(parts)-1] + `: (.+?) # .+$`)
		line := regexp.MustCompile(pattern.String()).FindStringSubmatch(string(configs.Defaults))
		if line == nil {
			t.Errorf("%s has no line with a default and a comment in configs/config.yaml", key)
			continue
		}
		row := regexp.MustCompile("(?m)^\\| `" + key + "` \\| `" + config.Variable(key) + "` \\| (.*?) \\|").FindStringSubmatch(string(readme))
		shown := strings.NewReplacer(`""`, "", "[]", "").Replace(line[1])
		if row == nil || strings.Trim(row[1], "`") != shown {
			t.Errorf("the README's table has no row of %s with its variable and the default %s", key, line[1])
		}
	}
}

func TestPrecedence(t *testing.T) {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.String("port", "", "")
	file := write(t, "server:\n  port: 1001\n  host: file\n  read_timeout: 1s\n")
	src := config.Sources{
		Flags:   map[string]*pflag.Flag{"server.port": flags.Lookup("port")},
		Environ: []string{"PORT=1002", "PLANTSTORE_SERVER_HOST=environment", config.FileVariable + "=" + file},
	}
	check := func(what string, port int) {
		t.Helper()
		c, err := config.Load(src)
		if err != nil {
			t.Fatal(err)
		}
		if c.Server.Port != port || c.Server.Host != "environment" || c.Server.ReadTimeout != time.Second || c.Server.IdleTimeout != time.Minute {
			t.Errorf("%s: %+v", what, c.Server)
		}
	}
	check("the environment beats the file, which beats the default", 1002)
	if err := flags.Set("port", "1003"); err != nil {
		t.Fatal(err)
	}
	check("a flag beats the environment", 1003)
	src.File, src.Environ[2] = file, config.FileVariable+"=/does/not/exist"
	check("a named file beats the one in the environment", 1003)
}

func TestEnvironment(t *testing.T) {
	secret := write(t, "postgres://u:p@h/d\n")
	c := load(t, "DATABASE_URL_FILE="+secret, "PLANTSTORE_AUTH_TOKENS=one, two,,three=", "PORT=",
		"PLANTSTORE_DATABASE_MIGRATE=false", "PLANTSTORE_DATABASE_SLOW_QUERY=0s", "UNRELATED=1",
		"PLANTSTORE_SERVER_TRUSTED_PROXIES=10.0.0.1,fd00::/8", "PLANTSTORE_SERVER_CORS_ORIGINS=https://a.example, http://localhost:3000,http://[::1]:8081,",
		// What Kubernetes sets for a service named plantstore.
		"PLANTSTORE_SERVICE_HOST=10.0.0.1", "PLANTSTORE_SERVICE_PORT=80", "PLANTSTORE_SERVICE_PORT_HTTP=80", "PLANTSTORE_PORT=tcp://10.0.0.1:80",
		"PLANTSTORE_PORT_80_TCP=tcp://10.0.0.1:80", "PLANTSTORE_PORT_80_TCP_ADDR=10.0.0.1")
	if c.Database.URL != "postgres://u:p@h/d" {
		t.Errorf("from a file: %q", c.Database.URL)
	}
	if !reflect.DeepEqual(c.Auth.Tokens, []string{"one", "two", "three="}) {
		t.Errorf("tokens %q", c.Auth.Tokens)
	}
	if !reflect.DeepEqual(c.Server.TrustedProxies, []string{"10.0.0.1", "fd00::/8"}) ||
		!reflect.DeepEqual(c.Server.CORSOrigins, []string{"https://a.example", "http://localhost:3000", "http://[::1]:8081"}) {
		t.Errorf("proxies %q, origins %q", c.Server.TrustedProxies, c.Server.CORSOrigins)
	}
	if c.Server.Port != 8080 || c.Database.Migrate || c.Database.SlowQuery != 0 {
		t.Errorf("%+v", c)
	}
}

func TestRefusals(t *testing.T) {
	const secret = "canary-9182"
	for _, test := range []struct {
		what  string
		file  string
		env   string
		names string
	}{
		{"an unknown key", "server:\n  prot: 1\n", "", `"server.prot"`},
		{"an unknown group", "sever:\n  port: 1\n", "", `"sever.port"`},
		{"a value for a group", "server: 5\n", "", `"server"`},
		{"a group for a value", "server:\n  port:\n    number: 5\n", "", `"server.port.number"`},
		{"a text for an integer", "server:\n  port: " + secret + "\n", "", "server.port (PORT) must be an integer"},
		{"a fraction for an integer", "server:\n  port: 80.5\n", "", "server.port (PORT) must be an integer"},
		{"an empty text for an integer", "server:\n  port: \"\"\n", "", "server.port (PORT) must be an integer"},
		{"a boolean for an integer", "server:\n  port: true\n", "", "server.port (PORT) must be an integer"},
		{"an integer for a duration", "server:\n  read_timeout: 5\n", "", "server.read_timeout (PLANTSTORE_SERVER_READ_TIMEOUT) must be a duration"},
		{"an integer for a boolean", "database:\n  migrate: 1\n", "", "database.migrate (PLANTSTORE_DATABASE_MIGRATE) must be true or false"},
		{"a list for a text", "log:\n  level: [info]\n", "", "log.level (PLANTSTORE_LOG_LEVEL) must be a text"},
		{"an integer for a token", "auth:\n  tokens: [12345]\n", "", "auth.tokens"},
		{"no YAML", "server: [" + secret, "", "line 1"},
		{"a key given twice", "env: production\nenv: " + secret + "\n", "", "line 2"},
		{"a long port", "", "PORT=99999999999999999999", "server.port (PORT)"},
		{"no time at all", "", "PLANTSTORE_DATABASE_TIMEOUT=0s", "database.timeout (PLANTSTORE_DATABASE_TIMEOUT)"},
		{"a negative delay", "", "PLANTSTORE_SERVER_SHUTDOWN_DELAY=-1s", "server.shutdown_delay"},
		{"a certificate without a key", "", "PLANTSTORE_SERVER_TLS_CERTIFICATE=" + secret, "server.tls_key (PLANTSTORE_SERVER_TLS_KEY) must be set"},
		{"a key without a certificate", "", "PLANTSTORE_SERVER_TLS_KEY=" + secret, "server.tls_certificate (PLANTSTORE_SERVER_TLS_CERTIFICATE) must be set"},
		{"a key in place of its path", "", "PLANTSTORE_SERVER_TLS_KEY_FILE=" + write(t, "-----BEGIN PRIVATE KEY-----\n"+secret+"\n-----END PRIVATE KEY-----\n"), "server.tls_key"},
		{"every origin", "", "PLANTSTORE_SERVER_CORS_ORIGINS=https://a.example,*", "server.cors_origins (PLANTSTORE_SERVER_CORS_ORIGINS) must name each origin"},
		{"no origin", "", "PLANTSTORE_SERVER_CORS_ORIGINS=" + secret, "server.cors_origins (PLANTSTORE_SERVER_CORS_ORIGINS)"},
		{"an origin with a path", "", "PLANTSTORE_SERVER_CORS_ORIGINS=https://" + secret + "/", "server.cors_origins"},
		{"an origin in capitals", "", "PLANTSTORE_SERVER_CORS_ORIGINS=https://A.example", "server.cors_origins"},
		{"an origin with its scheme's port", "", "PLANTSTORE_SERVER_CORS_ORIGINS=https://a.example:443", "server.cors_origins"},
		{"an origin of a file", "", "PLANTSTORE_SERVER_CORS_ORIGINS=null", "server.cors_origins"},
		{"an origin with a user", "", "PLANTSTORE_SERVER_CORS_ORIGINS=https://" + secret + "@a.example", "server.cors_origins"},
		{"no connections of clients", "", "PLANTSTORE_SERVER_MAX_CONNECTIONS=0", "server.max_connections (PLANTSTORE_SERVER_MAX_CONNECTIONS)"},
		{"no address of a proxy", "", "PLANTSTORE_SERVER_TRUSTED_PROXIES=10.0.0.1," + secret, "server.trusted_proxies (PLANTSTORE_SERVER_TRUSTED_PROXIES)"},
		{"every address as a proxy's", "", "PLANTSTORE_SERVER_TRUSTED_PROXIES=0.0.0.0/0", "server.trusted_proxies"},
		{"every IPv6 address as a proxy's", "server:\n  trusted_proxies: [\"::/0\"]\n", "", "server.trusted_proxies"},
		{"no connections", "", "PLANTSTORE_DATABASE_MAX_CONNECTIONS=0", "database.max_connections"},
		{"an unknown level", "", "PLANTSTORE_LOG_LEVEL=" + secret, "log.level (PLANTSTORE_LOG_LEVEL) must be debug, info, warn or error"},
		{"an unknown variable", "", "PLANTSTORE_SERVER_PORT=" + secret, "PLANTSTORE_SERVER_PORT"},
		{"a missing secret", "", "DATABASE_URL_FILE=/does/not/exist", "DATABASE_URL_FILE"},
		{"no URL of a service", "", "PLANTSTORE_CLIENT_URL=" + secret, "client.url (PLANTSTORE_CLIENT_URL) must be http:// or https://"},
		{"a password in a URL", "", "PLANTSTORE_CLIENT_URL=https://u:" + secret + "@h", "client.url"},
		{"a query in a URL", "", "PLANTSTORE_CLIENT_URL=https://h?token=" + secret, "client.url"},
		{"two tokens of a client", "", "PLANTSTORE_CLIENT_TOKEN=one," + secret, "client.token (PLANTSTORE_CLIENT_TOKEN)"},
		{"an issuer alone", "", "PLANTSTORE_AUTH_JWT_ISSUER=" + secret, "auth.jwt.audience (PLANTSTORE_AUTH_JWT_AUDIENCE) must be set"},
		{"an audience alone", "", "PLANTSTORE_AUTH_JWT_AUDIENCE=" + secret, "auth.jwt.issuer (PLANTSTORE_AUTH_JWT_ISSUER) must be set"},
		{"an issuer without keys", "auth:\n  jwt:\n    issuer: a\n    audience: b\n", "", "auth.jwt.jwks_url (PLANTSTORE_AUTH_JWT_JWKS_URL) must be set"},
		{"two sources of keys", "auth:\n  jwt:\n    issuer: a\n    audience: b\n    jwks_url: https://h/k\n    public_key: " + secret, "", "not both"},
		{"keys that anybody can swap", "auth:\n  jwt:\n    issuer: a\n    audience: b\n    jwks_url: http://" + secret, "", "auth.jwt.jwks_url"},
		{"no signature", "auth:\n  jwt:\n    algorithms: [RS256, none]\n", "", "auth.jwt.algorithms (PLANTSTORE_AUTH_JWT_ALGORITHMS) must have only RS256,"},
		{"a secret key", "", "PLANTSTORE_AUTH_JWT_ALGORITHMS=HS256", "auth.jwt.algorithms"},
		{"an hour of leeway", "", "PLANTSTORE_AUTH_JWT_LEEWAY=1h", "auth.jwt.leeway (PLANTSTORE_AUTH_JWT_LEEWAY) must be from 0s to 5m"},
		{"a burst without a rate", "", "PLANTSTORE_LIMITS_BURST=5", "limits.burst (PLANTSTORE_LIMITS_BURST) must be set only where"},
		{"fewer connections than are needed", "", "PLANTSTORE_WRITES_FLUSHERS=13", "database.max_connections"},
		{"an origin with a wildcard", "", "PLANTSTORE_SERVER_CORS_ORIGINS=https://*.example.org", "server.cors_origins"},
		{"an origin that browsers spell otherwise", "", "PLANTSTORE_SERVER_CORS_ORIGINS=https://münchen.example", "server.cors_origins"},
		{"half of all addresses as proxies", "", "PLANTSTORE_SERVER_TRUSTED_PROXIES=128.0.0.0/1", "server.trusted_proxies"},
		{"a negative rate", "", "PLANTSTORE_LIMITS_REQUESTS_PER_SECOND=-1", "limits.requests_per_second"},
		{"a database without a name", "", "DATABASE_URL=sqlite:", "database.url"},
	} {
		_, err := config.Load(config.Sources{Environ: []string{test.env}, File: write(t, test.file)})
		if err == nil || !strings.Contains(err.Error(), test.names) {
			t.Errorf("%s: got %v, want a word about %s", test.what, err, test.names)
		} else if strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v repeats the value, or has more than a line", test.what, err)
		}
	}
	_, err := config.Load(config.Sources{Environ: []string{"DATABASE_URL=sqlite:a.db", "DATABASE_URL_FILE=" + write(t, "sqlite:b.db")}})
	if err == nil || !strings.Contains(err.Error(), "DATABASE_URL_FILE") {
		t.Errorf("a value and a file: %v", err)
	}
}

func TestProductionNeedsADatabaseNamed(t *testing.T) {
	const production, theDefault = "PLANTSTORE_ENV=production", "sqlite:data/plantstore.db"
	if _, err := config.Load(config.Sources{Environ: []string{production}}); err == nil {
		t.Error("production starts without a database named")
	}
	// The default is a choice, too, where someone has made it.
	load(t, production, "DATABASE_URL="+theDefault)
	load(t, production, "DATABASE_URL_FILE="+write(t, theDefault))
	if _, err := config.Load(config.Sources{Environ: []string{production}, File: write(t, "database:\n  url: sqlite:plants.db\n")}); err != nil {
		t.Error(err)
	}
}
