// Package config reads the configuration once, into a typed and validated value.
// Nothing else in the program reads the environment, except for the variables that are not
// its own, such as PG* and GOGC: docs/configuration.md lists them.
package config

import "time"

// Config is the configuration. The tags of a field define its setting: key, variable
// (env, if it is not PLANTSTORE_ and the key), default, bounds (validate) and description
// (desc). The rest is derived from them, including configs/config.yaml and
// docs/configuration.md. Sections have the fields of the options they are converted to.
type Config struct {
	Env    string `key:"env" default:"development" validate:"oneof=development production" desc:"production rejects weak tokens, requires database.url, creates no token and logs JSON"`
	Server struct {
		Host              string        `key:"host" desc:"address that the service listens on; if empty, all addresses"`
		Port              int           `key:"port" env:"PORT" default:"8080" validate:"min=0,max=65535" desc:"port that the service listens on; 0 picks a free one"`
		TLSCertificate    string        `key:"tls_certificate" desc:"path of a PEM file with the certificate and its chain; may be replaced at any time; if empty, the service uses plain HTTP"`
		TLSKey            string        `key:"tls_key" desc:"path of a PEM file with the private key of the certificate"`
		ReadHeaderTimeout time.Duration `key:"read_header_timeout" default:"5s" validate:"min=1ms" desc:"time limit for receiving the headers of a request"`
		ReadTimeout       time.Duration `key:"read_timeout" default:"15s" validate:"min=1ms" desc:"time limit for receiving a request, other than an import (see bulk.timeout)"`
		WriteTimeout      time.Duration `key:"write_timeout" default:"30s" validate:"min=1ms" desc:"time limit from the end of the request headers to the end of the response, other than to imports, exports and requests for changes"`
		IdleTimeout       time.Duration `key:"idle_timeout" default:"620s" validate:"min=1ms" desc:"how long an idle connection is kept open: longer than a load balancer keeps it, which may send a request just as it is closed"`
		ShutdownDelay     time.Duration `key:"shutdown_delay" default:"5s" validate:"min=0s" desc:"time between SIGTERM, when /readyz turns to 503, and closing the port, for load balancers to notice; SIGINT skips it"`
		ShutdownTimeout   time.Duration `key:"shutdown_timeout" default:"20s" validate:"min=1ms" desc:"time limit for in-flight requests at shutdown"`
		MaxHeaderBytes    int           `key:"max_header_bytes" default:"16384" validate:"min=1024,max=16777216" desc:"maximum size of the request line and headers, in bytes; Go adds 4,096"`
		MaxBodyBytes      int64         `key:"max_body_bytes" default:"65536" validate:"min=1,max=16777216" desc:"maximum size of a request body, other than that of an import (see bulk.max_body_bytes), in bytes"`
		MaxConnections    int           `key:"max_connections" default:"10000" validate:"min=1" desc:"maximum number of open connections; further connections replace idle connections or wait. An idle connection takes a file descriptor and about 20 KB of memory, or 40 KB with TLS"`
		MaxPerAddress     int           `key:"max_connections_per_address" default:"0" validate:"min=0" desc:"maximum number of open connections from an address that is not a trusted proxy; a further connection replaces an idle connection of the address or is closed; 0 stands for half of max_connections"`
		TrustedProxies    []string      `key:"trusted_proxies" desc:"IP addresses or CIDR ranges, such as 10.0.0.0/8, of proxies trusted to set X-Forwarded-For"`
		BasePath          string        `key:"base_path" desc:"path, such as /store, that a proxy removes from requests; URLs in responses start with it"`
		CORSOrigins       []string      `key:"cors_origins" desc:"origins of web pages that may call the API, such as https://plants.example.org; if empty, only its own pages"`
		AllowedHosts      []string      `key:"allowed_hosts" desc:"names, without a port, by which clients call the admin address, such as plantstore.default.svc, or a development service, besides addresses and localhost; requests for other names get error 40302, as a web page may have sent them (DNS rebinding)"`
		AdminAddress      string        `key:"admin_address" desc:"address that serves /healthz, /readyz, Prometheus metrics at /metrics, the level of the log at /log-level and Go profiles under /debug/pprof/ over plain HTTP, without authentication and apart from the API, such as 127.0.0.1:9090, and on another port; if empty, disabled. follow --post has such an address as well. The profiles show the memory of the process: only operators may reach it"`
	} `key:"server"`
	Database struct {
		URL            string        `key:"url" env:"DATABASE_URL" secret:"true" default:"sqlite:data/plantstore.db" desc:"sqlite:PATH or postgres://user:password@host:5432/name?sslmode=verify-full; the PG* variables of libpq complete the latter"`
		Migrate        bool          `key:"migrate" default:"true" desc:"apply pending migrations at startup; replicas take turns"`
		MaxConnections int           `key:"max_connections" default:"16" desc:"maximum number of PostgreSQL connections; with too few, the service does not start, and says how many it needs"`
		Timeout        time.Duration `key:"timeout" default:"3s" validate:"min=1ms" desc:"time limit for one operation, including the wait for a connection; a search may first wait as long for its turn"`
		StartTimeout   time.Duration `key:"start_timeout" default:"30s" validate:"min=1ms" desc:"how long startup waits for an unreachable database"`
		SlowQuery      time.Duration `key:"slow_query" default:"200ms" validate:"min=0s" desc:"queries that take at least this long are logged, without their values; 0s disables this"`
		Check          bool          `key:"check" default:"true" desc:"check a SQLite file for damage at startup, which reads all of it and takes about half a second per million plants; set it to false for very large files"`
		TemporaryBytes int64         `key:"temporary_bytes" default:"8589934592" validate:"min=2097152" desc:"maximum size of the temporary files of imports and exports, in bytes; the files of a token may take half of it, which limits the size of an import"`
		ReplicaURLs    []string      `key:"replica_urls" env:"DATABASE_REPLICA_URLS" secret:"true" desc:"URLs of PostgreSQL standbys that serve reads; a client that has written something reads it from a standby that has it, or from database.url"`
		MaxReplicaLag  time.Duration `key:"max_replica_lag" default:"10s" validate:"min=1ms" desc:"a standby that lags behind by more than this serves no reads"`
	} `key:"database"`
	Writes struct { // concurrent writes share transactions
		Flushers int `key:"flushers" default:"1" validate:"min=1,max=1000" desc:"maximum number of batches written at once; increase it for a distant database; SQLite always has one"`
		MaxBatch int `key:"max_batch" default:"512" validate:"min=1,max=10000" desc:"maximum number of rows in a transaction"`
		Queue    int `key:"queue" default:"4096" validate:"min=1,max=1000000" desc:"maximum number of rows of each kind that wait: rows to write, and reads by id. A token may have half of them; further rows are rejected with error 50301"`
	} `key:"writes"`
	Bulk struct { // imports and exports
		MaxBodyBytes      int64         `key:"max_body_bytes" default:"1073741824" validate:"min=1" desc:"maximum size of an import, decompressed, in bytes"`
		Timeout           time.Duration `key:"timeout" default:"15m" validate:"min=1ms" desc:"time limit for an import or export"`
		MinBytesPerSecond int           `key:"min_bytes_per_second" default:"16384" validate:"min=1" desc:"an import that is received, or an export that is sent, more slowly on average is aborted after bulk.grace; counts the bytes as they are sent, compressed or not"`
		Grace             time.Duration `key:"grace" default:"30s" validate:"min=1ms" desc:"how long the client of an import or export may stall; the buffers of the network can make a slow client look stalled for longer"`
	} `key:"bulk"`
	Feed struct { // of changes
		Retention time.Duration `key:"retention" default:"720h" validate:"min=1h" desc:"how long deletions stay in the feed of changes; a follower that was away for longer must begin again"`
	} `key:"feed"`
	Auth struct {
		Tokens []string `key:"tokens" secret:"true" desc:"static bearer tokens with all scopes; openssl rand -hex 32 prints a good token"`
		// Algorithms with a shared secret are not supported: a party that can verify such a token
		// can also sign a token, and a public key might be used as the secret.
		JWT struct {
			Issuer        string        `key:"issuer" desc:"required value of the iss claim of JWTs; if empty, JWTs are rejected"`
			Audience      string        `key:"audience" desc:"required value of the claim in auth.jwt.audience_claim"`
			AudienceClaim string        `key:"audience_claim" default:"aud" validate:"min=1" desc:"claim with the audience; Amazon Cognito has it in client_id"`
			ScopeClaims   []string      `key:"scope_claims" default:"scope,scp" validate:"min=1" desc:"claims with the scopes, such as roles or permissions"`
			ScopePrefix   string        `key:"scope_prefix" desc:"start of each scope, such as https://plants.example.org/, which is removed; scopes without it do not count"`
			JWKSURL       string        `key:"jwks_url" secret:"true" desc:"URL of the issuer's keys: https, or http on this machine"`
			PublicKey     string        `key:"public_key" desc:"the issuer's only key in PEM, instead of jwks_url; best read from a file with PLANTSTORE_AUTH_JWT_PUBLIC_KEY_FILE"`
			Algorithms    []string      `key:"algorithms" default:"RS256,ES256,EdDSA" validate:"min=1,dive,oneof=RS256 RS384 RS512 PS256 PS384 PS512 ES256 ES384 ES512 EdDSA Ed25519" desc:"accepted signature algorithms"`
			Leeway        time.Duration `key:"leeway" default:"30s" validate:"min=0s,max=5m" desc:"tolerated difference between the clocks of the issuer and the service"`
			RequireAccess bool          `key:"require_access_token" default:"false" desc:"reject JWTs whose typ is not at+jwt (RFC 9068), such as ID tokens; set it to true if the issuer writes that, as Auth0 and Keycloak can"`
		} `key:"jwt"`
	} `key:"auth"`
	Limits struct {
		RequestsPerSecond int `key:"requests_per_second" default:"0" validate:"min=0,max=1000000000" desc:"sustained rate for each token and each address; requests above it are rejected with error 42901; 0 disables the limit"`
		Burst             int `key:"burst" default:"0" validate:"min=0,max=1000000000" desc:"number of requests that may arrive at once; 0 stands for requests_per_second; it must be 0 if that is"`
		FailuresPerMinute int `key:"failures_per_minute" default:"600" validate:"min=0,max=1000000000" desc:"number of requests with invalid tokens from an address; further invalid tokens get error 42901 instead of 40102; 0 disables the limit"`
	} `key:"limits"`
	Docs struct {
		Enabled bool `key:"enabled" default:"true" desc:"serve the first page, the pages in docs/, the OpenAPI document and Swagger UI; otherwise /, /docs/, /openapi.json and /swagger/ do not exist"`
		OAuth2  struct {
			ClientID string   `key:"client_id" desc:"public client of auth.jwt.issuer with which people sign in on Swagger UI (authorization code with PKCE); if empty, they paste a token; see docs/tokens.md"`
			Scopes   []string `key:"scopes" desc:"scopes that Swagger UI asks the issuer for; if empty, every scope but admin, with auth.jwt.scope_prefix"`
		} `key:"oauth2"`
	} `key:"docs"`
	Client struct { // the commands that call a running service
		URL   string `key:"url" desc:"URL of the service that import, export and follow call, such as https://plants.example.org; if empty, the service on this machine"`
		Token string `key:"token" secret:"true" desc:"bearer token that import, export and follow send; without it, they send the development token, to this machine only"`
	} `key:"client"`
	Log struct {
		Level  string `key:"level" default:"info" validate:"oneof=debug info warn error" desc:"lowest level that is logged; the audit log, of all writes, has no level"`
		Format string `key:"format" default:"auto" validate:"oneof=auto json console" desc:"log format; auto is json in production and console in development"`
	} `key:"log"`
}

// The values of Config.Env.
const (
	Development = "development"
	Production  = "production"
)

// TLS reports whether the server uses HTTPS.
func (c *Config) TLS() bool { return c.Server.TLSCertificate != "" }
