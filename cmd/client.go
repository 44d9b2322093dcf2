package cmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"mime"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"plantstore/config"
	"plantstore/controllers"
)

// client talks to a running service over HTTP.
type client struct {
	base  *url.URL
	token string
	// tokenAdvice says what token this is, for errors: they never have it itself.
	tokenAdvice string
	http        http.Client
}

// newClient returns a client of the service that cfg names. Without a URL it is
// the one on this machine, and without a token that of a development service.
func newClient(cfg *config.Config) (*client, error) {
	c := &client{
		token:       cfg.Client.Token,
		tokenAdvice: fmt.Sprintf("it is the one that --token-file or %s gives", config.SettingOf("client.token")),
	}
	// A redirect would carry the token to where nobody has sent it. Connecting has
	// a time limit, http.DefaultTransport's; moving many plants has none but the
	// service's.
	c.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

	base := cfg.Client.URL
	if base == "" {
		if cfg.Server.Port == 0 {
			return nil, usageError(fmt.Errorf("%s or --url must say where the service is", config.SettingOf("client.url")))
		}
		base = localURL(cfg)
		if cfg.Server.TLS() {
			own, err := onlyCertificate(cfg.Server.TLSCertificate)
			if err != nil {
				return nil, usageError(err)
			}
			transport := http.DefaultTransport.(*http.Transport).Clone()
			transport.TLSClientConfig = own
			c.http.Transport = transport
		}
	}
	var err error
	if c.base, err = url.Parse(base); err != nil {
		return nil, err // not after config has checked it
	}
	if c.token == "" {
		c.tokenAdvice = fmt.Sprintf("it is the one in %s; --token-file or %s gives another", devTokenFile, config.SettingOf("client.token"))
		if c.token, err = devTokenFor(c.base.Hostname()); err != nil {
			return nil, usageError(fmt.Errorf("%s or --token-file must be given: %w", config.SettingOf("client.token"), err))
		}
	}
	return c, nil
}

// devTokenFor returns the token that a development service keeps, for a service
// on host. It is for none but this machine.
func devTokenFor(host string) (string, error) {
	if ip := net.ParseIP(host); !strings.EqualFold(host, "localhost") && !ip.IsLoopback() {
		return "", fmt.Errorf("the development token is not sent to %s, only to localhost", host)
	}
	token, err := readDevToken(devTokenFile)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("there is no %s here, where a development service keeps its token", devTokenFile)
	}
	return token, err
}

// errBroken says that there was a connection, and no whole answer.
var errBroken = errors.New("no whole answer came")

// answerError is an answer that is not a success.
type answerError struct {
	controllers.ImportError // zero where the answer has no Error

	status int
	advice string
}

func (e *answerError) Error() string {
	text := fmt.Sprintf("the service answers %d %s", e.status, http.StatusText(e.status))
	if e.Code != 0 {
		text = fmt.Sprintf("%d %s", e.Code, e.Message)
	}
	return text + e.advice
}

// send makes a request of path, and returns the answer where it is a success of
// the media type want. A body of size -1 is sent in chunks. The error is an
// *answerError, wraps errBroken, or says why there was no connection.
func (c *client) send(ctx context.Context, method, path string, query url.Values, header http.Header, body io.Reader, size int64, want string) (*http.Response, error) {
	var connected atomic.Bool
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }}
	target := c.base.JoinPath(path)
	target.RawQuery = query.Encode()
	request, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, trace), method, target.String(), body)
	if err != nil {
		return nil, err
	}
	if body != nil {
		request.ContentLength = size
	}
	maps.Copy(request.Header, header)
	request.Header.Set("Authorization", "Bearer "+c.token)

	response, err := c.http.Do(request)
	if err != nil {
		if wrapped, ok := errors.AsType[*url.Error](err); ok {
			err = wrapped.Err // without the method and the URL
		}
		if ctx.Err() == nil && !connected.Load() {
			return nil, fmt.Errorf("cannot connect to %s: %w: is the service running there? --url or %s says where it is",
				c.base, err, config.SettingOf("client.url"))
		}
		return nil, broken(ctx, err)
	}
	if response.StatusCode != http.StatusOK {
		defer response.Body.Close()
		return nil, c.refusal(response)
	}
	if got, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type")); got != want {
		_ = response.Body.Close()
		return nil, fmt.Errorf("%s answers with %q where %s was asked for: is it a Plant Store?", c.base, got, want)
	}
	return response, nil
}

// broken returns the error of a request that err has ended before its answer
// has.
func broken(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		err = errors.New("interrupted")
	}
	return fmt.Errorf("%w: %w", errBroken, err)
}

// refusal reads an answer that is not a success.
func (c *client) refusal(response *http.Response) error {
	refused := &answerError{status: response.StatusCode}
	if err := json.NewDecoder(response.Body).Decode(&refused.ImportError); err != nil {
		refused.ImportError = controllers.ImportError{}
	}
	switch status := response.StatusCode; {
	case status == http.StatusUnauthorized:
		refused.advice = ": " + c.tokenAdvice
	case status < 400:
		refused.advice = fmt.Sprintf(" to %s, which is not followed: --url or %s must name the service itself",
			response.Header.Get("Location"), config.SettingOf("client.url"))
	case refused.Code == 0, status == http.StatusNotFound:
		refused.advice = fmt.Sprintf(": is %s a Plant Store?", c.base)
	}
	return refused
}

// format is a format of files of plants.
type format struct {
	mediaType string
	header    int // lines before the first row
}

var formats = map[string]format{
	"csv":    {mediaType: controllers.TypeCSV, header: 1},
	"ndjson": {mediaType: controllers.TypeNDJSON},
}

// formatOf returns the format name, or, where that is empty, that which the
// extension of path tells, or else the format otherwise.
func formatOf(name, path, otherwise string) (format, error) {
	if name == "" {
		switch strings.ToLower(filepath.Ext(path)) {
		case ".csv":
			name = "csv"
		case ".ndjson", ".jsonl":
			name = "ndjson"
		default:
			name = otherwise
		}
	}
	f, ok := formats[name]
	if !ok {
		return f, usageError(fmt.Errorf("--format must be %s", strings.Join(slices.Sorted(maps.Keys(formats)), " or ")))
	}
	return f, nil
}
