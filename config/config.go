// Package config reads the configuration, once, into one typed and validated
// value. Nothing else in the program reads the environment, but for the PG*
// variables of libpq, which fill in what a PostgreSQL URL leaves out, and those
// that name a proxy to its clients, as HTTPS_PROXY.
package config

import "time"

// Config is everything that can be set. What each key means stands beside its
// default in configs/config.yaml.
type Config struct {
	Env      string   `mapstructure:"env"`
	Server   Server   `mapstructure:"server"`
	Database Database `mapstructure:"database"`
	Writes   Writes   `mapstructure:"writes"`
	Bulk     Bulk     `mapstructure:"bulk"`
	Auth     Auth     `mapstructure:"auth"`
	Limits   Limits   `mapstructure:"limits"`
	Docs     Docs     `mapstructure:"docs"`
	Client   Client   `mapstructure:"client"`
	Log      Log      `mapstructure:"log"`
}

// The values of Config.Env.
const (
	Development = "development"
	Production  = "production"
)

// Server configures the HTTP server.
type Server struct {
	Host              string        `mapstructure:"host"`
	Port              int           `mapstructure:"port"`
	TLSCertificate    string        `mapstructure:"tls_certificate"`
	TLSKey            string        `mapstructure:"tls_key"`
	ReadHeaderTimeout time.Duration `mapstructure:"read_header_timeout"`
	ReadTimeout       time.Duration `mapstructure:"read_timeout"`
	WriteTimeout      time.Duration `mapstructure:"write_timeout"`
	IdleTimeout       time.Duration `mapstructure:"idle_timeout"`
	ShutdownDelay     time.Duration `mapstructure:"shutdown_delay"`
	ShutdownTimeout   time.Duration `mapstructure:"shutdown_timeout"`
	MaxHeaderBytes    int           `mapstructure:"max_header_bytes"`
	MaxBodyBytes      int64         `mapstructure:"max_body_bytes"`
	MaxConnections    int           `mapstructure:"max_connections"`
	TrustedProxies    []string      `mapstructure:"trusted_proxies"`
	CORSOrigins       []string      `mapstructure:"cors_origins"`
	DebugAddress      string        `mapstructure:"debug_address"`
}

// TLS reports whether the server speaks HTTPS.
func (s Server) TLS() bool { return s.TLSCertificate != "" }

// Database configures the store.
type Database struct {
	URL            string        `mapstructure:"url"`
	Migrate        bool          `mapstructure:"migrate"`
	MaxConnections int           `mapstructure:"max_connections"`
	Timeout        time.Duration `mapstructure:"timeout"`
	StartTimeout   time.Duration `mapstructure:"start_timeout"`
	SlowQuery      time.Duration `mapstructure:"slow_query"`
}

// Writes configures how writes that come at the same time share transactions.
type Writes struct {
	Flushers int `mapstructure:"flushers"`
	MaxBatch int `mapstructure:"max_batch"`
	Queue    int `mapstructure:"queue"`
}

// Bulk configures imports and exports.
type Bulk struct {
	MaxBodyBytes int64         `mapstructure:"max_body_bytes"`
	Timeout      time.Duration `mapstructure:"timeout"`
}

// Auth configures who may come in.
type Auth struct {
	Tokens []string `mapstructure:"tokens"`
	JWT    JWT      `mapstructure:"jwt"`
}

// JWT configures the JSON Web Tokens of an identity provider. Without an issuer,
// none are accepted.
type JWT struct {
	Issuer     string        `mapstructure:"issuer"`
	Audience   string        `mapstructure:"audience"`
	JWKSURL    string        `mapstructure:"jwks_url"`
	PublicKey  string        `mapstructure:"public_key"`
	Algorithms []string      `mapstructure:"algorithms"`
	Leeway     time.Duration `mapstructure:"leeway"`
}

// Limits configures how much a client may send.
type Limits struct {
	RequestsPerSecond int `mapstructure:"requests_per_second"`
	Burst             int `mapstructure:"burst"`
	FailuresPerMinute int `mapstructure:"failures_per_minute"`
}

// Docs configures the documentation.
type Docs struct {
	Enabled bool `mapstructure:"enabled"`
}

// Client configures the commands that talk to a running service.
type Client struct {
	URL   string `mapstructure:"url"`
	Token string `mapstructure:"token"`
}

// Log configures what is logged, and how.
type Log struct {
	Level  string `mapstructure:"level"`
	Format string `mapstructure:"format"`
}
