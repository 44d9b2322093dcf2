package cmd

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"mime"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"

	"plantstore/config"
	"plantstore/controllers"
)

// client calls a running service over HTTP.
type client struct {
	base  *url.URL
	token string
	// tokenSource says where the token is from, for errors: they never contain the token.
	tokenSource string
	http        http.Client
	quiet       bool // print only errors
}

// client returns a client of the configured service. The default is the service on this
// machine, with the token of a development service.
func (s *settings) client() (*client, error) {
	cfg, err := s.load(callsService)
	if err != nil {
		return nil, err
	}
	c := &client{token: cfg.Client.Token, tokenSource: fmt.Sprintf("--token-file or %s", config.SettingOf("client.token"))}
	// A redirect would send the token to a server that the user did not name. There is no
	// time limit besides the limits of http.DefaultTransport and the service: imports take long.
	c.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

	base := cfg.Client.URL
	if base == "" {
		if cfg.Server.Port == 0 {
			return nil, usageError(fmt.Errorf("--url or %s is required when server.port is 0", config.SettingOf("client.url")))
		}
		base = localURL(cfg)
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.Proxy = nil // it would see the token
		if cfg.TLS() {
			if transport.TLSClientConfig, err = pinnedTLS(cfg.Server.TLSCertificate); err != nil {
				return nil, usageError(err)
			}
		}
		c.http.Transport = transport
	}
	if c.base, err = url.Parse(base); err != nil {
		return nil, err // config has validated it
	}
	if c.token == "" {
		if c.token, err = devTokenFor(c.base.Hostname()); err != nil {
			return nil, usageError(fmt.Errorf("%s is required: %w", c.tokenSource, err))
		}
		c.tokenSource = devTokenFile + ": use another one with " + c.tokenSource
	}
	return c, nil
}

// localURL returns the URL of the configured service on its own machine.
func localURL(cfg *config.Config) string {
	return serviceURL(cfg, localHost(cfg.Server.Host, loopback), cfg.Server.Port)
}

const loopback = "127.0.0.1" // localhost may not resolve in an image from scratch

// localHost returns the host by which a process on this machine reaches a listener on host:
// local, if host is every address.
func localHost(host, local string) string {
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		return local
	}
	return host
}

func serviceURL(cfg *config.Config, host string, port int) string {
	scheme := "http://"
	if cfg.TLS() {
		scheme = "https://"
	}
	return scheme + net.JoinHostPort(host, strconv.Itoa(port))
}

// pinnedTLS returns a configuration that accepts only the certificate in the file path,
// for any host name: the certificate need not name this machine. The file is read again for
// each connection, since the service begins to use a renewed certificate.
func pinnedTLS(path string) (*tls.Config, error) {
	setting := config.SettingOf("server.tls_certificate")
	pinned := func() ([]byte, error) {
		text, err := readSettingFile(setting, path)
		if err != nil {
			return nil, err
		}
		block, rest := pem.Decode([]byte(text))
		for block != nil && block.Type != "CERTIFICATE" {
			block, rest = pem.Decode(rest)
		}
		if block == nil {
			return nil, fmt.Errorf("%s: the file contains no certificate in PEM", setting)
		}
		return block.Bytes, nil
	}
	if _, err := pinned(); err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		InsecureSkipVerify: true, // VerifyConnection is stricter
		VerifyConnection: func(state tls.ConnectionState) error {
			certificate, err := pinned()
			if err == nil && !bytes.Equal(state.PeerCertificates[0].Raw, certificate) {
				err = fmt.Errorf("the service has another certificate than %s", setting)
			}
			return err
		},
	}, nil
}

// devTokenFor returns the development token for a service on host, which must be this
// machine.
func devTokenFor(host string) (string, error) {
	if !strings.EqualFold(host, "localhost") && !net.ParseIP(host).IsLoopback() {
		return "", fmt.Errorf("the development token is not sent to %s, only to localhost", host)
	}
	token, err := readDevToken()
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%s, the token of a development service, does not exist here", devTokenFile)
	}
	return token, err
}

// errIncomplete is the error of a request that reached the service but got no complete
// response.
var errIncomplete = errors.New("no complete response")

// incomplete returns the error of a request that failed with err before the end of its
// response.
func incomplete(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		err = errInterrupted
	}
	return fmt.Errorf("%w: %w", errIncomplete, err)
}

// responseError is a response with a status other than 200.
type responseError struct {
	text   string
	status int
	report *controllers.ImportReport // of an import with rejected rows, otherwise nil
}

func (e *responseError) Error() string { return e.text }

// send sends r with the token and returns the response if it has status 200 and the
// media type that r accepts. Otherwise the error is a *responseError, wraps
// errIncomplete, or says why the client could not connect.
func (c *client) send(r *http.Request) (*http.Response, error) {
	ctx := r.Context()
	r.Header.Set("Authorization", "Bearer "+c.token)
	var connected atomic.Bool
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }}
	response, err := c.http.Do(r.WithContext(httptrace.WithClientTrace(ctx, trace)))
	if err != nil {
		if wrapped, ok := errors.AsType[*url.Error](err); ok {
			err = wrapped.Err // without the method and the URL
		}
		if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
			return nil, fmt.Errorf("the certificate of %s is not valid: %w: replace it there, or name the certificate of its authority, if that is private, in SSL_CERT_FILE", c.base, err)
		}
		if !errors.Is(ctx.Err(), context.Canceled) && !connected.Load() {
			return nil, fmt.Errorf("cannot connect to %s: %w: is the service running there? Set its URL with --url or %s",
				c.base, err, config.SettingOf("client.url"))
		}
		return nil, incomplete(ctx, err)
	}
	if response.StatusCode != http.StatusOK {
		defer response.Body.Close()
		return nil, c.readError(response)
	}
	if got, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type")); got != r.Header.Get("Accept") {
		_ = response.Body.Close()
		return nil, fmt.Errorf("%s responded with media type %q instead of %s: is it a Plant Store?", c.base, got, r.Header.Get("Accept"))
	}
	return response, nil
}

// get sends a GET request for path, and returns its response as send does.
func (c *client) get(ctx context.Context, path string, query url.Values, accept string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.target(path, query), nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", accept)
	return c.send(request)
}

func (c *client) target(path string, query url.Values) string {
	target := c.base.JoinPath(path)
	target.RawQuery = query.Encode()
	return target.String()
}

func (c *client) readError(response *http.Response) error {
	var body controllers.ImportError
	if err := json.NewDecoder(response.Body).Decode(&body); err != nil {
		body = controllers.ImportError{}
	}
	status := response.StatusCode
	text := fmt.Sprintf("%d %s", body.Code, body.Message)
	if body.Code == 0 {
		text = fmt.Sprintf("the service responded %d %s", status, http.StatusText(status))
	}
	switch {
	case status == http.StatusUnauthorized:
		text += ": the token is from " + c.tokenSource
	case status < 400:
		text += fmt.Sprintf(" to %s, which is not followed: set the URL of the service itself with --url or %s",
			response.Header.Get("Location"), config.SettingOf("client.url"))
	case body.Code == 0 && status == http.StatusBadRequest && c.base.Scheme == "http": // as servers with TLS do
		text += fmt.Sprintf(": is %s a Plant Store with TLS? Then set its URL, with https, with --url or %s", c.base, config.SettingOf("client.url"))
	case body.Code == 0, status == http.StatusNotFound:
		text += fmt.Sprintf(": is %s a Plant Store?", c.base)
	}
	return &responseError{text, status, body.Report}
}
