package config_test

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"plantstore/config"
)

// TestMain removes the settings of whoever runs the tests from the environment.
func TestMain(m *testing.M) {
	os.Clearenv()
	m.Run()
}

// write makes a file of text and returns its path.
func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func setenv(t *testing.T, environ ...string) {
	t.Helper()
	for _, entry := range environ {
		if name, value, ok := strings.Cut(entry, "="); ok {
			t.Setenv(name, value)
		}
	}
}

func load(t *testing.T, file string, environ ...string) (*config.Config, error) {
	t.Helper()
	setenv(t, environ...)
	c, _, err := config.Load(file, nil, true)
	return c, err
}

func mustLoad(t *testing.T, file string, environ ...string) *config.Config {
	t.Helper()
	c, err := load(t, file, environ...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestDefaultFile checks that the file of the project sets every setting to its default.
func TestDefaultFile(t *testing.T) {
	got := mustLoad(t, filepath.Join("..", config.DefaultFile))
	if want := mustLoad(t, ""); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

// TestSectionOfComments: a section whose keys are all comments sets nothing.
func TestSectionOfComments(t *testing.T) {
	got := mustLoad(t, write(t, "writes:\n  # flushers: 2\n"), "PLANTSTORE_WRITES_QUEUE=77")
	if got.Writes.Flushers != 1 || got.Writes.Queue != 77 {
		t.Errorf("got %+v, want the default of flushers and the variable's queue", got.Writes)
	}
}

func TestSettingsAreDescribed(t *testing.T) {
	for _, s := range config.Settings() {
		if s.Description == "" || strings.HasSuffix(s.Key, ".") {
			t.Errorf("%s has no key or no description", s)
		}
	}
}

func TestPrecedence(t *testing.T) {
	file := write(t, "server:\n  port: 1001\n  host: file\n  read_timeout: 1s\n")
	missing := config.FileVariable + "=/does/not/exist"
	for _, test := range []struct {
		name    string
		environ []string
		file    string
		flag    string
		port    int
		host    string
	}{
		{name: "the file overrides the default", file: file, port: 1001, host: "file"},
		{name: "a variable names the file", environ: []string{config.FileVariable + "=" + file}, port: 1001, host: "file"},
		{name: "a flag names the file", environ: []string{missing}, file: file, port: 1001, host: "file"},
		{name: "the environment overrides the file", environ: []string{"PORT=1002"}, file: file, port: 1002, host: "file"},
		{name: "a flag overrides the environment", environ: []string{"PORT=1002"}, file: file, flag: "1003", port: 1003, host: "file"},
	} {
		t.Run(test.name, func(t *testing.T) {
			flags := pflag.NewFlagSet("", pflag.ContinueOnError)
			flags.String("port", "8080", "")
			if test.flag != "" {
				if err := flags.Set("port", test.flag); err != nil {
					t.Fatal(err)
				}
			}
			setenv(t, test.environ...)
			c, _, err := config.Load(test.file, map[string]*pflag.Flag{"server.port": flags.Lookup("port")}, true)
			if err != nil {
				t.Fatal(err)
			}
			if c.Server.Port != test.port || c.Server.Host != test.host || c.Server.ReadTimeout != time.Second || c.Server.IdleTimeout != 620*time.Second {
				t.Errorf("%+v", c.Server)
			}
		})
	}
}

func TestEnvironment(t *testing.T) {
	c := mustLoad(t, "", "DATABASE_URL_FILE="+write(t, "postgres://u:p@h/d\n"), "PLANTSTORE_AUTH_TOKENS=one, two,,three=", "PORT=", "UNRELATED=1",
		"PLANTSTORE_DATABASE_MIGRATE=false", "PLANTSTORE_DATABASE_SLOW_QUERY=0s", "PLANTSTORE_LIMITS_REQUESTS_PER_SECOND=010",
		"PLANTSTORE_SERVER_TRUSTED_PROXIES=10.0.0.1,fd00::/8", "PLANTSTORE_SERVER_CORS_ORIGINS=https://a.example, http://localhost:3000,http://[::1]:8081,tauri://localhost,chrome-extension://abcdef,",
		"PLANTSTORE_CLIENT_TOKEN_FILE="+write(t, "\ufeffabc\r\n"))
	for _, test := range []struct {
		name      string
		got, want any
	}{
		{"text from a file, without its newline", c.Database.URL, "postgres://u:p@h/d"},
		{"a list, without empty elements", c.Auth.Tokens, []string{"one", "two", "three="}},
		{"addresses", c.Server.TrustedProxies, []string{"10.0.0.1", "fd00::/8"}},
		{"origins", c.Server.CORSOrigins, []string{"https://a.example", "http://localhost:3000", "http://[::1]:8081", "tauri://localhost", "chrome-extension://abcdef"}},
		{"a secret of Windows, with a byte order mark", c.Client.Token, "abc"},
		{"an empty variable", c.Server.Port, 8080},
		{"a boolean", c.Database.Migrate, false},
		{"a duration", c.Database.SlowQuery, time.Duration(0)},
		{"an integer is decimal", c.Limits.RequestsPerSecond, 10},
		{"the burst of a rate", c.Limits.Burst, 10},
	} {
		t.Run(test.name, func(t *testing.T) {
			if !reflect.DeepEqual(test.got, test.want) {
				t.Errorf("got %v, want %v", test.got, test.want)
			}
		})
	}
}

// TestKubernetesVariables loads the variables that Kubernetes sets in each pod for services named
// plantstore and plantstore-….
func TestKubernetesVariables(t *testing.T) {
	for _, service := range []string{"PLANTSTORE", "PLANTSTORE_DB", "PLANTSTORE_SERVER", "PLANTSTORE_SEARCH_V2"} {
		t.Run(service, func(t *testing.T) {
			var environ []string
			for _, rest := range []string{
				"SERVICE_HOST=10.0.0.1", "SERVICE_PORT=80", "SERVICE_PORT_HTTP=80", "PORT=tcp://10.0.0.1:80", "PORT_80_TCP=tcp://10.0.0.1:80",
				"PORT_80_TCP_PROTO=tcp", "PORT_80_TCP_PORT=80", "PORT_80_TCP_ADDR=10.0.0.1", "PORT_53_UDP=udp://10.0.0.1:53",
			} {
				environ = append(environ, service+"_"+rest)
			}
			mustLoad(t, "", environ...)
		})
	}
}

func TestInvalid(t *testing.T) {
	const secret = "canary-9182"
	const jwt = "auth:\n  jwt:\n    issuer: a\n    audience: b\n"
	for _, test := range []struct {
		name string
		file string
		env  string
		want string
	}{
		{name: "unknown key", file: "server:\n  prot: 1\n", want: `unknown key "server.prot"`},
		{name: "unknown section", file: "env: production\nsever:\n  port: 1\n", want: `unknown key "sever.port"`},
		{name: "key with a hyphen", file: "server:\n  max-connections: 5\n", want: `unknown key "server.max-connections"`},
		{name: "value that is part of its key", file: "database: {url:postgres://u:" + secret + "@h/db}\n", want: `unknown key "database.url:"`},
		{name: "value for a section", file: "server: 5\n", want: `unknown key "server"`},
		{name: "section for a value", file: "server:\n  port:\n    number: 5\n", want: `unknown key "server.port.number"`},
		{name: "text for an integer", file: "server:\n  port: " + secret + "\n", want: "server.port (PORT) must be a decimal integer, from 0 to 65535"},
		{name: "fraction for an integer", file: "server:\n  port: 80.5\n", want: "server.port (PORT) must be a decimal integer"},
		{name: "empty text for an integer", file: "server:\n  port: \"\"\n", want: "server.port (PORT) must be a decimal integer"},
		{name: "boolean for an integer", file: "server:\n  port: true\n", want: "server.port (PORT) must be a decimal integer"},
		{name: "unsigned integer", file: "bulk:\n  max_body_bytes: 18446744073709551615\n", want: "bulk.max_body_bytes (PLANTSTORE_BULK_MAX_BODY_BYTES) must be"},
		{name: "integer for a duration", file: "server:\n  read_timeout: 5\n", want: "server.read_timeout (PLANTSTORE_SERVER_READ_TIMEOUT) must be a duration"},
		{name: "integer for a boolean", file: "database:\n  migrate: 1\n", want: "database.migrate (PLANTSTORE_DATABASE_MIGRATE) must be true or false"},
		{name: "list for a string", file: "client:\n  url: [info]\n", want: "client.url (PLANTSTORE_CLIENT_URL) must be a string"},
		{name: "list for one of several", file: "log:\n  level: [info]\n", want: "log.level (PLANTSTORE_LOG_LEVEL) must be debug, info, warn or error"},
		{name: "integer for a token", file: "auth:\n  tokens: [12345]\n", want: "auth.tokens (PLANTSTORE_AUTH_TOKENS) must be a list, comma-separated in the environment"},
		{name: "invalid YAML", file: "server: [" + secret, want: "line 1"},
		{name: "repeated key", file: "env: production\nenv: " + secret + "\n", want: "line 2"},
		{name: "text for an integer in the environment", env: "PORT=" + secret, want: "server.port (PORT)"},
		{name: "text for a duration", env: "PLANTSTORE_SERVER_READ_TIMEOUT=" + secret, want: "server.read_timeout (PLANTSTORE_SERVER_READ_TIMEOUT)"},
		{name: "text for a boolean", env: "PLANTSTORE_DATABASE_MIGRATE=" + secret, want: "database.migrate (PLANTSTORE_DATABASE_MIGRATE)"},
		{name: "long port", env: "PORT=99999999999999999999", want: "server.port (PORT)"},
		{name: "port above the greatest", env: "PORT=65536", want: "server.port (PORT)"},
		{name: "hexadecimal port", env: "PORT=0x50", want: "server.port (PORT) must be a decimal integer"},
		{name: "huge queue", env: "PLANTSTORE_WRITES_QUEUE=9999999999999", want: "writes.queue (PLANTSTORE_WRITES_QUEUE) must be a decimal integer, from 1 to 1000000"},
		{name: "zero timeout", env: "PLANTSTORE_DATABASE_TIMEOUT=0s", want: "database.timeout (PLANTSTORE_DATABASE_TIMEOUT)"},
		{name: "negative delay", env: "PLANTSTORE_SERVER_SHUTDOWN_DELAY=-1s", want: "server.shutdown_delay (PLANTSTORE_SERVER_SHUTDOWN_DELAY) must be a duration such as 500ms, 5s or 2m, at least 0s"},
		{name: "negative rate", env: "PLANTSTORE_LIMITS_REQUESTS_PER_SECOND=-1", want: "limits.requests_per_second"},
		{name: "huge rate", env: "PLANTSTORE_LIMITS_REQUESTS_PER_SECOND=9223372036854775807", want: "limits.requests_per_second (PLANTSTORE_LIMITS_REQUESTS_PER_SECOND) must be a decimal integer, from 0 to 1000000000"},
		{name: "headers to which net/http cannot add", env: "PLANTSTORE_SERVER_MAX_HEADER_BYTES=9223372036854775807", want: "server.max_header_bytes (PLANTSTORE_SERVER_MAX_HEADER_BYTES)"},
		{name: "unknown environment", env: "PLANTSTORE_ENV=" + secret, want: "env (PLANTSTORE_ENV)"},
		{name: "a token with spaces", env: "PLANTSTORE_AUTH_TOKENS=a b " + secret, want: "auth.tokens (PLANTSTORE_AUTH_TOKENS)"},
		{name: "unknown level", env: "PLANTSTORE_LOG_LEVEL=" + secret, want: "log.level (PLANTSTORE_LOG_LEVEL) must be debug, info, warn or error"},
		{name: "unknown variable", env: "PLANTSTORE_SERVER_PORT=" + secret, want: "unknown environment variable PLANTSTORE_SERVER_PORT"},
		{name: "variable like that of a Kubernetes service", env: "PLANTSTORE_PORT=8080", want: "unknown environment variable PLANTSTORE_PORT"},
		{name: "missing secret", env: "DATABASE_URL_FILE=/does/not/" + secret, want: "DATABASE_URL_FILE: no such file"},
		{name: "a secret in UTF-16", env: "DATABASE_URL_FILE=" + write(t, "\xff\xfes\x00q\x00"), want: "DATABASE_URL_FILE: the file is not text in UTF-8"},
		{name: "a secret with a space at its end", env: "DATABASE_URL_FILE=" + write(t, "sqlite:"+secret+" \n"), want: "DATABASE_URL_FILE begins or ends with white space or quotes"},
		{name: "a carriage return of Windows", env: "PORT=8080\r", want: "PORT begins or ends with white space or quotes: remove them"},
		{name: "quotes of an --env-file", env: `DATABASE_URL="sqlite:` + secret + `"`, want: "DATABASE_URL begins or ends with white space or quotes: remove them"},
		{name: "no connections of clients", env: "PLANTSTORE_SERVER_MAX_CONNECTIONS=0", want: "server.max_connections (PLANTSTORE_SERVER_MAX_CONNECTIONS)"},
		{name: "a body that fills the memory", env: "PLANTSTORE_SERVER_MAX_BODY_BYTES=1073741824", want: "server.max_body_bytes (PLANTSTORE_SERVER_MAX_BODY_BYTES)"},
		{name: "an admin address without a port", env: "PLANTSTORE_SERVER_ADMIN_ADDRESS=127.0.0.1", want: "server.admin_address (PLANTSTORE_SERVER_ADMIN_ADDRESS) must be a host and a port"},
		{name: "an admin address with a port that cannot be", env: "PLANTSTORE_SERVER_ADMIN_ADDRESS=:99999", want: "server.admin_address"},

		{name: "certificate without a key", env: "PLANTSTORE_SERVER_TLS_CERTIFICATE=" + secret, want: "server.tls_key (PLANTSTORE_SERVER_TLS_KEY) must be set together with server.tls_certificate"},
		{name: "key without a certificate", env: "PLANTSTORE_SERVER_TLS_KEY=" + secret, want: "server.tls_key (PLANTSTORE_SERVER_TLS_KEY) must be set together with server.tls_certificate"},
		{name: "key instead of its path", env: "PLANTSTORE_SERVER_TLS_KEY_FILE=" + write(t, "-----BEGIN PRIVATE KEY-----\n"+secret+"\n-----END PRIVATE KEY-----\n"), want: "server.tls_key"},

		{name: "a base path without a slash", env: "PLANTSTORE_SERVER_BASE_PATH=" + secret, want: "server.base_path (PLANTSTORE_SERVER_BASE_PATH) must be a path such as /store"},
		{name: "a base path with a slash at the end", env: "PLANTSTORE_SERVER_BASE_PATH=/store/", want: "server.base_path"},
		{name: "another host as the base path", env: "PLANTSTORE_SERVER_BASE_PATH=//example.org", want: "server.base_path"},
		{name: "every origin", env: "PLANTSTORE_SERVER_CORS_ORIGINS=https://a.example,*", want: "server.cors_origins (PLANTSTORE_SERVER_CORS_ORIGINS) must contain only origins"},
		{name: "no origin", env: "PLANTSTORE_SERVER_CORS_ORIGINS=" + secret, want: "server.cors_origins (PLANTSTORE_SERVER_CORS_ORIGINS)"},
		{name: "origin with a path", env: "PLANTSTORE_SERVER_CORS_ORIGINS=https://" + secret + "/", want: "server.cors_origins"},
		{name: "origin in upper case", env: "PLANTSTORE_SERVER_CORS_ORIGINS=https://A.example", want: "server.cors_origins"},
		{name: "origin of a file", env: "PLANTSTORE_SERVER_CORS_ORIGINS=null", want: "server.cors_origins"},
		{name: "origin with a user", env: "PLANTSTORE_SERVER_CORS_ORIGINS=https://" + secret + "@a.example", want: "server.cors_origins"},
		{name: "origin with a wildcard", env: "PLANTSTORE_SERVER_CORS_ORIGINS=https://*.example.org", want: "server.cors_origins"},
		{name: "origin not in ASCII", env: "PLANTSTORE_SERVER_CORS_ORIGINS=https://münchen.example", want: "server.cors_origins"},

		{name: "no address of a proxy", env: "PLANTSTORE_SERVER_TRUSTED_PROXIES=10.0.0.1," + secret, want: "server.trusted_proxies (PLANTSTORE_SERVER_TRUSTED_PROXIES)"},
		{name: "all addresses as proxies", env: "PLANTSTORE_SERVER_TRUSTED_PROXIES=0.0.0.0/0", want: "server.trusted_proxies"},
		{name: "half of all addresses as proxies", env: "PLANTSTORE_SERVER_TRUSTED_PROXIES=128.0.0.0/1", want: "server.trusted_proxies"},
		{name: "all IPv4 addresses, in IPv6, as proxies", env: "PLANTSTORE_SERVER_TRUSTED_PROXIES=::ffff:0:0/96", want: "server.trusted_proxies"},
		{name: "all IPv6 addresses as proxies", file: "server:\n  trusted_proxies: [\"::/0\"]\n", want: "server.trusted_proxies"},

		{name: "database in memory", env: "DATABASE_URL=sqlite::memory:", want: "database.url (DATABASE_URL) must be sqlite:PATH, such as sqlite:data/plantstore.db, or postgres://"},
		{name: "parameters of a database file", env: "DATABASE_URL=sqlite:x.db?mode=ro", want: "database.url (DATABASE_URL) must be sqlite:PATH"},
		{name: "another database", env: "DATABASE_URL=mysql://" + secret, want: "database.url (DATABASE_URL)"},
		{name: "database without a name", env: "DATABASE_URL=sqlite:", want: "database.url"},
		{name: "a folder of a database as its host", env: "DATABASE_URL=sqlite://data/x.db", want: "database.url (DATABASE_URL) must be sqlite:PATH, such as sqlite:data/plantstore.db"},

		{name: "a standby that is no PostgreSQL", env: "DATABASE_REPLICA_URLS=sqlite:" + secret, want: "database.replica_urls (DATABASE_REPLICA_URLS) must contain only postgres:// URLs"},
		{name: "two hosts of a standby", env: "DATABASE_REPLICA_URLS=postgres://" + secret + ",b/plants", want: "database.replica_urls"},
		{name: "a standby of SQLite", env: "DATABASE_REPLICA_URLS=postgres://" + secret + "/plants", want: "database.replica_urls (DATABASE_REPLICA_URLS) requires a PostgreSQL database"},

		{name: "no URL of a service", env: "PLANTSTORE_CLIENT_URL=" + secret, want: "client.url (PLANTSTORE_CLIENT_URL) must be http:// or https://"},
		{name: "password in a URL", env: "PLANTSTORE_CLIENT_URL=https://u:" + secret + "@h", want: "client.url"},
		{name: "query in a URL", env: "PLANTSTORE_CLIENT_URL=https://h?token=" + secret, want: "client.url"},
		{name: "two tokens of a client", env: "PLANTSTORE_CLIENT_TOKEN=one," + secret, want: "client.token (PLANTSTORE_CLIENT_TOKEN)"},

		{name: "issuer alone", env: "PLANTSTORE_AUTH_JWT_ISSUER=" + secret, want: "auth.jwt.issuer (PLANTSTORE_AUTH_JWT_ISSUER) must be set together with auth.jwt.audience"},
		{name: "audience alone", env: "PLANTSTORE_AUTH_JWT_AUDIENCE=" + secret, want: "auth.jwt.issuer (PLANTSTORE_AUTH_JWT_ISSUER) must be set together with auth.jwt.audience"},
		{name: "issuer without keys", file: jwt, want: "auth.jwt.issuer (PLANTSTORE_AUTH_JWT_ISSUER) must be set together with auth.jwt.audience, and either auth.jwt.jwks_url or public_key"},
		{name: "two sources of keys", file: jwt + "    jwks_url: https://h/k\n    public_key: " + secret, want: "auth.jwt.issuer (PLANTSTORE_AUTH_JWT_ISSUER) must be set together with auth.jwt.audience, and either auth.jwt.jwks_url or public_key"},
		{name: "credentials for the keys", file: jwt + "    jwks_url: https://user:" + secret + "@h/k", want: "auth.jwt.jwks_url"},
		{name: "keys over plain HTTP", file: jwt + "    jwks_url: http://" + secret, want: "auth.jwt.jwks_url"},
		{name: "no signature", file: "auth:\n  jwt:\n    algorithms: [RS256, none]\n", want: "auth.jwt.algorithms (PLANTSTORE_AUTH_JWT_ALGORITHMS) must be a list, comma-separated in the environment, of RS256,"},
		{name: "no algorithms", file: "auth:\n  jwt:\n    algorithms: []\n", want: "auth.jwt.algorithms"},
		{name: "algorithm with a shared secret", env: "PLANTSTORE_AUTH_JWT_ALGORITHMS=HS256", want: "auth.jwt.algorithms"},
		{name: "leeway of an hour", env: "PLANTSTORE_AUTH_JWT_LEEWAY=1h", want: "auth.jwt.leeway (PLANTSTORE_AUTH_JWT_LEEWAY) must be a duration such as 500ms, 5s or 2m, from 0s to 5m"},
		{name: "a client without an issuer", env: "PLANTSTORE_DOCS_OAUTH2_CLIENT_ID=" + secret, want: "docs.oauth2.client_id (PLANTSTORE_DOCS_OAUTH2_CLIENT_ID) requires that auth.jwt.issuer is an https URL"},
		{name: "a client of an issuer without a URL", file: jwt + "    jwks_url: https://h/k\n", env: "PLANTSTORE_DOCS_OAUTH2_CLIENT_ID=" + secret, want: "docs.oauth2.client_id"},
		{name: "a quote in the id of a client", file: "auth:\n  jwt:\n    issuer: https://i\n    audience: b\n    jwks_url: https://h/k\n", env: "PLANTSTORE_DOCS_OAUTH2_CLIENT_ID=a\"" + secret, want: "docs.oauth2.client_id (PLANTSTORE_DOCS_OAUTH2_CLIENT_ID) and docs.oauth2.scopes must have only letters"},
		{name: "a space in a scope", env: "PLANTSTORE_DOCS_OAUTH2_SCOPES=a " + secret, want: "docs.oauth2.scopes must have only letters"},

		{name: "burst without a rate", env: "PLANTSTORE_LIMITS_BURST=5", want: "limits.burst (PLANTSTORE_LIMITS_BURST) requires limits.requests_per_second"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := load(t, write(t, test.file), test.env)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("got %v, want %s", err, test.want)
			}
			if strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v has the value, or more than one line", err)
			}
		})
	}
	t.Run("a value and a file", func(t *testing.T) {
		_, err := load(t, "", "DATABASE_URL=sqlite:a.db", "DATABASE_URL_FILE="+write(t, "sqlite:b.db"))
		if err == nil || !strings.Contains(err.Error(), "DATABASE_URL_FILE") {
			t.Error(err)
		}
	})
}

func TestProductionRequiresADatabase(t *testing.T) {
	const production, defaultURL = "PLANTSTORE_ENV=production", "sqlite:data/plantstore.db"
	for _, test := range []struct {
		name    string
		environ []string
		file    string
		valid   bool
	}{
		{name: "none"},
		{name: "the default, in the file", file: "database:\n  url: " + defaultURL + "\n"},
		{name: "another, in the file", file: "database:\n  url: sqlite:plants.db\n", valid: true},
		{name: "the default, chosen by a variable", environ: []string{"DATABASE_URL=" + defaultURL}, valid: true},
		{name: "the default, in a file of a variable", environ: []string{"DATABASE_URL_FILE=" + write(t, defaultURL)}, valid: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := load(t, write(t, test.file), append(test.environ, production)...)
			if (err == nil) != test.valid {
				t.Error(err)
			}
		})
	}
}

// TestLoadWithoutDatabase: only a command that uses the database needs its URL in production.
func TestLoadWithoutDatabase(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("PLANTSTORE_ENV", config.Production)
	if _, _, err := config.Load("", nil, true); err == nil || !strings.Contains(err.Error(), "database.url") {
		t.Errorf("with a database: got %v, want an error that names database.url", err)
	}
	if _, _, err := config.Load("", nil, false); err != nil {
		t.Errorf("without one: got %v", err)
	}
}

// TestDescribeShowsNoSecret: of a database, only the path of a file is shown.
func TestDescribeShowsNoSecret(t *testing.T) {
	for url, want := range map[string]string{
		"sqlite:data/x.db":                "sqlite:data/x.db",
		"sqlite:postgres://u:1337@h/d":    "***",
		"postgres://u:1337@h/d":           "***",
		"postgres://h/d?sslpassword=1337": "***",
	} {
		t.Run(url, func(t *testing.T) {
			setenv(t, "DATABASE_URL="+url)
			_, all, err := config.Load("", nil, true)
			if err != nil {
				t.Fatal(err)
			}
			for _, setting := range all {
				if setting.Key == "database.url" && setting.Value != want {
					t.Errorf("got %s, want %s", setting.Value, want)
				}
			}
		})
	}
}
