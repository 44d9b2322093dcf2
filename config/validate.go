package config

import (
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
)

// MinTokenLength is the shortest static token that production accepts, in
// characters.
const MinTokenLength = 32

// DevTokenPrefix begins every token that a development server makes for itself.
const DevTokenPrefix = "dev_"

// bearerToken is the form of a bearer token: b64token of RFC 6750, section 2.1.
var bearerToken = regexp.MustCompile(`^[A-Za-z0-9._~+/-]+=*$`)

// validate reports the first value that cannot work. databaseNamed tells whether
// anyone has chosen the database.
func (c *Config) validate(databaseNamed bool) error {
	production, jwt := c.Env == Production, c.Auth.JWT
	for _, rule := range []struct {
		key   string
		holds bool
		must  string
	}{
		{"env", c.Env == Development || production, "be development or production"},
		{"server.port", c.Server.Port >= 0 && c.Server.Port <= 65535, "be from 0 to 65535"},
		{"server.tls_certificate", isPath(c.Server.TLSCertificate), "be the path of a PEM file, not what is in it"},
		{"server.tls_certificate", c.Server.TLSCertificate != "" || c.Server.TLSKey == "", "be set where server.tls_key is"},
		{"server.tls_key", isPath(c.Server.TLSKey), "be the path of a PEM file, not what is in it"},
		{"server.tls_key", c.Server.TLSKey != "" || c.Server.TLSCertificate == "", "be set where server.tls_certificate is"},
		{"server.read_header_timeout", c.Server.ReadHeaderTimeout > 0, "be longer than 0s"},
		{"server.read_timeout", c.Server.ReadTimeout > 0, "be longer than 0s"},
		{"server.write_timeout", c.Server.WriteTimeout > 0, "be longer than 0s"},
		{"server.idle_timeout", c.Server.IdleTimeout > 0, "be longer than 0s"},
		{"server.shutdown_delay", c.Server.ShutdownDelay >= 0, "not be negative"},
		{"server.shutdown_timeout", c.Server.ShutdownTimeout > 0, "be longer than 0s"},
		{"server.max_header_bytes", c.Server.MaxHeaderBytes >= 1024, "be at least 1024"},
		{"server.max_body_bytes", c.Server.MaxBodyBytes >= 1, "be at least 1"},
		{"server.max_connections", c.Server.MaxConnections >= 1, "be at least 1"},
		{"server.trusted_proxies", allOf(c.Server.TrustedProxies, isAddressRange), "have only IP addresses and ranges of them, such as 10.0.0.0/8, and not every address"},
		{"server.cors_origins", !slices.Contains(c.Server.CORSOrigins, "*"), "name each origin: * would let every page on the web try the service from its visitors' browsers, and networks"},
		{"server.cors_origins", allOf(c.Server.CORSOrigins, isOrigin), "have only origins as browsers send them, such as https://plants.example.org: in small letters, without a path, / or the scheme's own port at the end"},
		{"database.url", hasDatabaseScheme(c.Database.URL), "start with sqlite:, postgres:// or postgresql://"},
		{"database.url", !production || databaseNamed, "be set in production"},
		{"database.max_connections", c.Database.MaxConnections >= c.Writes.Flushers+4, "be at least 4 more than writes.flushers: imports and exports may occupy two"},
		{"database.timeout", c.Database.Timeout >= time.Millisecond, "be at least 1ms"},
		{"database.start_timeout", c.Database.StartTimeout >= time.Millisecond, "be at least 1ms"},
		{"database.slow_query", c.Database.SlowQuery >= 0, "not be negative"},
		{"writes.flushers", c.Writes.Flushers >= 1, "be at least 1"},
		{"writes.max_batch", c.Writes.MaxBatch >= 1 && c.Writes.MaxBatch <= 10_000, "be from 1 to 10000"},
		{"writes.queue", c.Writes.Queue >= 1, "be at least 1"},
		{"bulk.max_body_bytes", c.Bulk.MaxBodyBytes >= 1, "be at least 1"},
		{"bulk.timeout", c.Bulk.Timeout > 0, "be longer than 0s"},
		{"auth.tokens", allOf(c.Auth.Tokens, bearerToken.MatchString), "have only tokens of letters, digits and -._~+/, with = at the end"},
		{"auth.tokens", !production || allOf(c.Auth.Tokens, isStrong), fmt.Sprintf(
			"have only random tokens of at least %d characters in production, none of them a development token: openssl rand -hex 32 makes one", MinTokenLength)},
		{"auth.jwt.issuer", jwt.Issuer != "" || jwt.Audience+jwt.JWKSURL+jwt.PublicKey == "", "be set where auth.jwt.audience, jwks_url or public_key is"},
		{"auth.jwt.audience", jwt.Issuer == "" || jwt.Audience != "", "be set where auth.jwt.issuer is"},
		{"auth.jwt.jwks_url", jwt.Issuer == "" || (jwt.JWKSURL == "") != (jwt.PublicKey == ""), "be set where auth.jwt.issuer is, or else auth.jwt.public_key, and not both"},
		{"auth.jwt.jwks_url", jwt.JWKSURL == "" || isKeyURL(jwt.JWKSURL), "be https://, or http:// to this machine"},
		{"auth.jwt.algorithms", len(jwt.Algorithms) > 0 && !slices.ContainsFunc(jwt.Algorithms, isNoAlgorithm), "have only " + strings.Join(jwtAlgorithms, ", ")},
		{"auth.jwt.leeway", jwt.Leeway >= 0 && jwt.Leeway <= 5*time.Minute, "be from 0s to 5m"},
		{"limits.requests_per_second", c.Limits.RequestsPerSecond >= 0, "not be negative"},
		{"limits.burst", c.Limits.Burst >= 0, "not be negative"},
		{"limits.burst", c.Limits.Burst == 0 || c.Limits.RequestsPerSecond > 0, "be set only where limits.requests_per_second is"},
		{"limits.failures_per_minute", c.Limits.FailuresPerMinute >= 0, "not be negative"},
		{"client.url", c.Client.URL == "" || isBaseURL(c.Client.URL), "be http:// or https:// with a host and at most a port and a path"},
		{"client.token", c.Client.Token == "" || bearerToken.MatchString(c.Client.Token), "be one token of letters, digits and -._~+/, with = at the end"},
		{"log.level", slices.Contains([]string{"debug", "info", "warn", "error"}, c.Log.Level), "be debug, info, warn or error"},
		{"log.format", slices.Contains([]string{"auto", "json", "console"}, c.Log.Format), "be auto, json or console"},
	} {
		if !rule.holds {
			return fmt.Errorf("%s (%s) must %s", rule.key, Variable(rule.key), rule.must)
		}
	}
	return nil
}

func hasDatabaseScheme(url string) bool {
	for _, prefix := range []string{"sqlite:", "postgres://", "postgresql://"} {
		if rest, ok := strings.CutPrefix(url, prefix); ok {
			return rest != ""
		}
	}
	return false
}

// jwtAlgorithms are those of public keys. With a secret key, who can verify a token
// can make one; and a public key must never be taken for a secret one.
var jwtAlgorithms = []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}

func isNoAlgorithm(name string) bool { return !slices.Contains(jwtAlgorithms, name) }

// isKeyURL tells a URL whose answer can be believed.
func isKeyURL(text string) bool {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || u.User != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Scheme == "https" || u.Scheme == "http" && (u.Hostname() == "localhost" || ip.IsLoopback())
}

// isBaseURL tells a URL that paths can be added to. A user in it would be a
// secret where none belongs.
func isBaseURL(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != "" &&
		u.User == nil && u.RawQuery == "" && !u.ForceQuery && u.Fragment == ""
}

// isPath tells a path from the text of a PEM file, which a variable with _FILE at
// its end gives.
func isPath(text string) bool { return !strings.Contains(text, "\n") }

// isOrigin tells an origin in the one form that browsers send (RFC 6454, section
// 6.2): another would never match.
func isOrigin(text string) bool {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || strings.ContainsFunc(text, func(r rune) bool { return r > '~' || r == '*' }) || text != strings.ToLower(u.Scheme+"://"+u.Host) || strings.HasSuffix(u.Host, ":") {
		return false
	}
	return u.Scheme == "http" && u.Port() != "80" || u.Scheme == "https" && u.Port() != "443"
}

func allOf(list []string, holds func(string) bool) bool {
	return !slices.ContainsFunc(list, func(s string) bool { return !holds(s) })
}

// isAddressRange tells an IP address, or a range of them in CIDR notation. A range
// of all would let every client say who it is.
func isAddressRange(text string) bool {
	if net.ParseIP(text) != nil {
		return true
	}
	_, network, err := net.ParseCIDR(text)
	if err != nil {
		return false
	}
	ones, bits := network.Mask.Size()
	return ones >= bits/16 // 8 of IPv4, which is 10.0.0.0/8, and 8 of IPv6, which is fd00::/8
}

// longestRepeated is how long a word may be, in characters, of which a token consists
// that nobody would call random.
const longestRepeated = 8

// isStrong tells a token that may be random from one that cannot be: too short,
// a development token, one with a word that placeholders have, or one that repeats
// itself.
func isStrong(token string) bool {
	lower := strings.ToLower(token)
	placeholder := slices.ContainsFunc([]string{"changeme", "change-me", "change_me", "password"},
		func(word string) bool { return strings.Contains(lower, word) })
	for period := 1; period <= min(longestRepeated, len(token)); period++ {
		if token[period:] == token[:len(token)-period] {
			return false
		}
	}
	return len(token) >= MinTokenLength && !strings.HasPrefix(token, DevTokenPrefix) && !placeholder
}
