package cmd

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"plantstore/config"
	"plantstore/controllers"
)

// client calls a running service over HTTP.
type client struct {
	base        *url.URL
	cfg         *config.Config
	resource    string
	token       string
	tokenSource string // for errors, which never contain the token
	http        http.Client
}

// client returns a client of the configured service. The default is the service on this
// machine, with the token of a development service.
func (s *settings) client() (*client, error) {
	cfg, err := s.load(callsService)
	if err != nil {
		return nil, err
	}
	for _, warning := range s.warnings {
		fmt.Fprintln(os.Stderr, "plantstore: warning: "+warning)
	}
	c := &client{cfg: cfg, resource: s.resource.Name(), token: cfg.Client.Token, tokenSource: fmt.Sprintf("--token-file or %s", config.SettingOf("client.token"))}
	// A redirect would send the token to a server that the user did not name. There is no
	// time limit besides the limits of http.DefaultTransport and the service: imports take long.
	c.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

	if s.tokenFile != "" {
		if c.token, err = config.ReadFile(s.tokenFile); err == nil && !config.Token.MatchString(c.token) {
			err = errors.New("the file must have one token of letters, digits and -._~+/, with = at the end")
		}
		if err != nil {
			return nil, usageError(fmt.Errorf("--token-file: %w", err))
		}
	}
	base := cfg.Client.URL
	if base == "" {
		if cfg.Server.Port == 0 || cfg.TLS() {
			return nil, usageError(fmt.Errorf("--url or %s is required when server.port is 0 or the service uses TLS",
				config.SettingOf("client.url")))
		}
		base = localURL(cfg.TLS(), addressOf(cfg), loopback)
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.Proxy = nil // it would see the token
		c.http.Transport = transport
	}
	if c.base, err = url.Parse(base); err != nil {
		return nil, err // config has validated it
	}
	if c.token == "" {
		host := c.base.Hostname()
		if cfg.Client.URL != "" && !strings.EqualFold(host, "localhost") && !net.ParseIP(host).IsLoopback() {
			err = fmt.Errorf("the development token is not sent to %s, only to localhost", host)
		} else {
			c.token, err = readDevToken()
		}
		if err != nil {
			return nil, usageError(fmt.Errorf("%s is required: %w", c.tokenSource, err))
		}
		c.tokenSource = devTokenFile
	}
	return c, nil
}

const loopback = "127.0.0.1" // localhost may not resolve in an image from scratch

// localURL returns the URL by which a process on this machine calls a listener on address. Its host is
// local if address has none, or every address.
func localURL(encrypted bool, address, local string) string {
	host, port, _ := net.SplitHostPort(address) // config has validated it
	if host == "" || net.ParseIP(host).IsUnspecified() {
		host = local
	}
	scheme := "http://"
	if encrypted {
		scheme = "https://"
	}
	return scheme + net.JoinHostPort(host, port)
}

// responseError is a response with a status other than 200.
type responseError struct {
	text   string
	status int
	report *controllers.ImportReport // of an import with rejected rows, otherwise nil
}

func (e *responseError) Error() string { return e.text }

// newResponseError reads the Error in a response.
func newResponseError(response *http.Response) *responseError {
	var body controllers.ImportError
	_ = json.NewDecoder(response.Body).Decode(&body) // without a code, the response is from another server
	text := fmt.Sprintf("%d %s", body.Code, body.Message)
	if body.Code == 0 {
		text = fmt.Sprintf("%s responded %s: is it a Plant Store, with this scheme and path?", response.Request.URL.Host, response.Status)
	}
	return &responseError{text, response.StatusCode, body.Report}
}

// send sends r with the token and returns the response if it has status 200 and the
// media type that r accepts. The error is a *responseError if it has another status.
func (c *client) send(r *http.Request) (*http.Response, error) {
	r.Header.Set("Authorization", "Bearer "+c.token)
	response, err := c.http.Do(r)
	if err != nil {
		if failed, ok := errors.AsType[*url.Error](err); ok {
			err = failed.Err // without the method and the URL
		}
		return nil, fmt.Errorf("no response from %s, which --url or %s sets: %w", c.base, config.SettingOf("client.url"), err)
	}
	got, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if response.StatusCode == http.StatusOK && got == r.Header.Get("Accept") {
		return response, nil
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusOK {
		return nil, fmt.Errorf("%s responded with media type %q instead of %s: is it a Plant Store?", c.base, got, r.Header.Get("Accept"))
	}
	failed := newResponseError(response)
	switch failed.status {
	case http.StatusUnauthorized:
		failed.text += ": the token is from " + c.tokenSource
	case http.StatusNotFound:
		failed.text += fmt.Sprintf(": is the path of %s right?", c.base)
	}
	return nil, failed
}

// request returns a request for path in the resource that accepts a media type.
func (c *client) request(ctx context.Context, method, path string, query url.Values, accept string, body io.Reader) *http.Request {
	target := c.base.JoinPath(c.resource, path)
	target.RawQuery = query.Encode()
	r, _ := http.NewRequestWithContext(ctx, method, target.String(), body) // which are valid
	r.Header.Set("Accept", accept)
	return r
}

// mediaTypeOf returns the media type of format, or of the extension of path if format is empty.
func mediaTypeOf(format, path string) (string, error) {
	extension := strings.ToLower(strings.TrimPrefix(filepath.Ext(path), "."))
	switch cmp.Or(format, extension) {
	case "csv":
		return controllers.TypeCSV, nil
	case "ndjson", "jsonl":
		return controllers.TypeNDJSON, nil
	}
	return "", usageError(fmt.Errorf("the format of %q is unknown: add --format csv or --format ndjson", path))
}
