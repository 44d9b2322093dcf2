package config

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// MinTokenLength is the minimum length of a static token in production, and of the
// development token, in characters.
const MinTokenLength = 32

// DevTokenPrefix starts each token that a development server creates for itself.
const DevTokenPrefix = "dev_"

var (
	// Token is the syntax of a bearer token: b64token of RFC 6750, section 2.1.
	Token = regexp.MustCompile(`^[A-Za-z0-9._~+/-]+=*$`)
	// basePath is the syntax of a base path, which may be empty. No segment starts with a dot.
	basePath = regexp.MustCompile(`^(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)*$`)
	// oauth2Text is the syntax of the id of a client, which may be empty, and of scopes.
	oauth2Text = regexp.MustCompile(`^[A-Za-z0-9._~:/@+=-]*$`)
	// origin is the syntax of an origin as browsers send it (RFC 6454, section 6.2).
	origin   = regexp.MustCompile(`^[a-z][a-z0-9+.-]*://([a-z0-9._-]+|\[[0-9a-f:]+\])(:[0-9]+)?$`)
	hostName = regexp.MustCompile(`^[A-Za-z0-9._-]+$`)
	// placeholder matches what no random token contains, and the start of a development token.
	placeholder = regexp.MustCompile(`(?i)^` + DevTokenPrefix + `|change.?me|password`)

	postgresURL = regexp.MustCompile(`^postgres(ql)?://`)
	// standbyURL matches the URL of a single server: a connection to several would go to the primary.
	standbyURL = regexp.MustCompile(`^postgres(ql)?://([^/?]*@)?[^/?,@]*([/?]|$)`)
)

// validate checks the rules that the tags of the fields cannot express. isDatabaseSet is true if a
// flag or the environment sets database.url, or if the command needs no database. A file that sets
// it to the default does not count, since configs/config.yaml does so.
func (c *Config) validate(isDatabaseSet bool) error {
	server, jwt, production := c.Server, c.Auth.JWT, c.Env == Production
	for _, rule := range []struct {
		key   string
		holds bool
		text  string
	}{
		{"server.tls_key", !strings.Contains(server.TLSKey, "\n"), "must be the path of a PEM file, not its text"},
		{"server.tls_key", (server.TLSKey == "") == (server.TLSCertificate == ""), "must be set together with server.tls_certificate"},
		{"server.trusted_proxies", all(server.TrustedProxies, isAddressRange), "must contain only IP addresses and CIDR ranges such as 10.0.0.0/8, and no larger ranges"},
		{"server.base_path", basePath.MatchString(server.BasePath), "must be a path such as /store: with a / at the start and none at the end, and only letters, digits and -._~ in between"},
		{"server.admin_address", server.AdminAddress == "" || isListenAddress(server.AdminAddress), "must be a host and a port, such as 127.0.0.1:9090"},
		{"server.cors_origins", all(server.CORSOrigins, isOrigin), "must contain only origins as browsers send them, such as https://plants.example.org: in lower case, without a path or a trailing /"},
		{"server.allowed_hosts", all(server.AllowedHosts, hostName.MatchString), "must contain only names of hosts, without a port, such as plantstore.example.org"},
		{"database.url", isDatabaseURL(c.Database.URL), "must be sqlite:PATH, such as sqlite:data/plantstore.db, or postgres://user:password@host:5432/name?sslmode=verify-full, with special characters percent-encoded"},
		{"database.url", !production || isDatabaseSet || c.Database.URL != SettingOf("database.url").Default, "is required in production: set it in the environment or with --database-url, even to the default"},
		{"database.replica_urls", all(c.Database.ReplicaURLs, standbyURL.MatchString), "must contain only postgres:// URLs, each of one host"},
		{"database.replica_urls", len(c.Database.ReplicaURLs) == 0 || postgresURL.MatchString(c.Database.URL), "requires a PostgreSQL database in database.url"},
		{"auth.tokens", all(c.Auth.Tokens, Token.MatchString), "must contain only tokens of letters, digits and -._~+/, with = at the end, separated by commas"},
		{"auth.tokens", !production || all(c.Auth.Tokens, isStrong), fmt.Sprintf(
			"must contain only random tokens of at least %d characters in production, and no development token: create one with openssl rand -hex 32", MinTokenLength)},
		{"auth.jwt.issuer", jwt.Issuer+jwt.Audience+jwt.JWKSURL+jwt.PublicKey == "" || jwt.Issuer != "" && jwt.Audience != "" && (jwt.JWKSURL == "") != (jwt.PublicKey == ""), "must be set together with auth.jwt.audience, and either auth.jwt.jwks_url or public_key"},
		{"auth.jwt.jwks_url", jwt.JWKSURL == "" || isKeyURL(jwt.JWKSURL), "must be an https URL, or an http URL of this machine"},
		{"limits.burst", c.Limits.Burst == 0 || c.Limits.RequestsPerSecond > 0, "requires limits.requests_per_second"},
		{"docs.oauth2.client_id", c.Docs.OAuth2.ClientID == "" || isKeyURL(jwt.Issuer), "requires that auth.jwt.issuer is an https URL, or an http URL of this machine"},
		{"docs.oauth2.client_id", all(append(c.Docs.OAuth2.Scopes, c.Docs.OAuth2.ClientID), oauth2Text.MatchString), "and docs.oauth2.scopes must have only letters, digits and -._~:/@+="},
		{"client.url", c.Client.URL == "" || isBaseURL(c.Client.URL), "must be http:// or https:// with a host, and optionally a port and a path"},
		{"client.token", c.Client.Token == "" || Token.MatchString(c.Client.Token), "must be one token of letters, digits and -._~+/, with = at the end"},
	} {
		if !rule.holds {
			return fmt.Errorf("%s %s", SettingOf(rule.key), rule.text)
		}
	}
	return nil
}

func all(list []string, holds func(string) bool) bool {
	return !slices.ContainsFunc(list, func(s string) bool { return !holds(s) })
}

func isOrigin(text string) bool {
	_, err := url.Parse(text) // which also knows the addresses of IPv6
	return err == nil && origin.MatchString(text)
}

// isListenAddress reports whether text is a port, with or without a host before it.
func isListenAddress(text string) bool {
	_, port, _ := net.SplitHostPort(text) // "" if it is missing
	_, err := net.LookupPort("tcp", port)
	return port != "" && err == nil
}

// isAddressRange reports whether text is an IP address or a CIDR range. A range of all
// addresses would let every client forge its address; ::ffff:0:0/96 is all of IPv4.
func isAddressRange(text string) bool {
	prefix, err := netip.ParsePrefix(text)
	return net.ParseIP(text) != nil || err == nil && prefix.Bits() >= 8 && !prefix.Addr().Is4In6()
}

// isDatabaseURL checks the form only. The database checks the parts of a PostgreSQL URL.
func isDatabaseURL(text string) bool {
	path, isFile := strings.CutPrefix(text, "sqlite:")
	if !isFile {
		return postgresURL.MatchString(text)
	}
	// In a URL, // starts a host, and ? starts parameters.
	return path != "" && path != ":memory:" && !strings.Contains(path, "?") && strings.HasPrefix(path, "//") == strings.HasPrefix(path, "///")
}

// isKeyURL reports whether keys from the URL text can be trusted.
func isKeyURL(text string) bool {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || u.User != nil {
		return false
	}
	return u.Scheme == "https" || u.Scheme == "http" && (u.Hostname() == "localhost" || net.ParseIP(u.Hostname()).IsLoopback())
}

// isBaseURL reports whether paths can be appended to the URL text. Credentials in it
// would be a secret in the wrong place.
func isBaseURL(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != "" && u.User == nil && !strings.ContainsAny(text, "?#")
}

// isStrong reports whether token may be random: long enough, no placeholder, and not a word of up to
// 8 characters that repeats.
func isStrong(token string) bool {
	characters := []rune(token)
	slices.Sort(characters)
	return len(token) >= MinTokenLength && len(slices.Compact(characters)) > 8 && !placeholder.MatchString(token)
}
