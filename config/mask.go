package config

import (
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// masked stands for a secret.
const masked = "***"

// What is shown of a URL has only these characters. Others may be in a password that was not
// percent-encoded, whose rest then looks like a host, a path or a parameter.
var (
	shownName  = regexp.MustCompile(`^[A-Za-z0-9_.-]*$`)
	shownHosts = regexp.MustCompile(`^((\[[0-9A-Fa-f:.]*\]|[A-Za-z0-9_.-]*)(:[0-9]{1,5})?(,|$))*$`)
	shownValue = regexp.MustCompile(`^[A-Za-z0-9_.,:/-]*$`)
)

// shownParameters returns the parameters of a database URL that tell which database it is, and
// how it is reached. Others are masked, with their names.
func shownParameters() []string {
	return []string{"host", "port", "dbname", "user", "sslmode", "target_session_attrs", "connect_timeout", "default_query_exec_mode"}
}

// maskURL returns the URL of a database without its secrets, or masked if it may have one where
// none belongs.
func maskURL(text string) string {
	if path, ok := strings.CutPrefix(text, "sqlite:"); ok && !strings.ContainsAny(path, "?@") {
		return text
	}
	if !isPostgresURL(text) {
		return masked
	}
	u, _ := url.Parse(text)
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil || !shownHosts.MatchString(u.Host) || !shownName.MatchString(strings.TrimPrefix(u.Path, "/")) || strings.Contains(u.RawQuery+u.Fragment, "@") {
		return masked
	}
	shown := u.Scheme + "://"
	if u.User != nil {
		name := u.User.Username()
		if !shownName.MatchString(name) {
			name = masked
		}
		if _, ok := u.User.Password(); ok {
			name += ":" + masked
		}
		shown += name + "@"
	}
	var parameters []string
	for _, key := range slices.Sorted(maps.Keys(query)) {
		parameter := masked
		if value := strings.Join(query[key], ","); slices.Contains(shownParameters(), key) && shownValue.MatchString(value) {
			parameter = key + "=" + value
		}
		parameters = append(parameters, parameter)
	}
	shown += u.Host + u.Path
	if len(parameters) > 0 {
		shown += "?" + strings.Join(parameters, "&")
	}
	return shown
}
