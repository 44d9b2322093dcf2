package cmd

import (
	"bytes"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"plantstore/config"
)

// client calls a running service over HTTP.
type client struct {
	base  *url.URL
	token string
	// tokenSource says where the token is from, for errors: they never contain the token.
	tokenSource string
	http        http.Client
}

// client returns a client of the configured service. The default is the service on this
// machine, with the token of a development service.
func (s *settings) client() (*client, error) {
	cfg, err := s.load()
	if err != nil {
		return nil, err
	}
	urlSetting, tokenSetting := config.SettingOf("client.url"), config.SettingOf("client.token")
	c := &client{token: cfg.Client.Token, tokenSource: fmt.Sprintf("--token-file or %s", tokenSetting)}
	// A redirect would send the token to a server that the user did not name. There is no
	// time limit besides those of http.DefaultTransport and the service: imports take long.
	c.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

	base := cfg.Client.URL
	if base == "" {
		if cfg.Server.Port == 0 {
			return nil, usageError(fmt.Errorf("--url or %s is required when server.port is 0", urlSetting))
		}
		base = localURL(cfg)
		if cfg.TLS() {
			transport := http.DefaultTransport.(*http.Transport).Clone()
			if transport.TLSClientConfig, err = pinnedTLS(cfg.Server.TLSCertificate); err != nil {
				return nil, usageError(err)
			}
			c.http.Transport = transport
		}
	}
	if c.base, err = url.Parse(base); err != nil {
		return nil, err // config has validated it
	}
	if c.token == "" {
		c.tokenSource = devTokenFile + ": use another one with " + c.tokenSource
		if c.token, err = devTokenFor(c.base.Hostname()); err != nil {
			return nil, usageError(fmt.Errorf("--token-file or %s is required: %w", tokenSetting, err))
		}
	}
	return c, nil
}

// localURL returns the URL of the configured service on its own machine.
func localURL(cfg *config.Config) string {
	host := cfg.Server.Host
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1" // localhost may not resolve in an image from scratch
	}
	return serviceURL(cfg, host, cfg.Server.Port)
}

func serviceURL(cfg *config.Config, host string, port int) string {
	scheme := "http://"
	if cfg.TLS() {
		scheme = "https://"
	}
	return scheme + net.JoinHostPort(host, strconv.Itoa(port))
}

// pinnedTLS returns a configuration that accepts only the certificate in the file path,
// for any host name: the certificate need not name this machine.
func pinnedTLS(path string) (*tls.Config, error) {
	setting := config.SettingOf("server.tls_certificate")
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
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		InsecureSkipVerify: true, // VerifyConnection is stricter
		VerifyConnection: func(state tls.ConnectionState) error {
			if !bytes.Equal(state.PeerCertificates[0].Raw, block.Bytes) {
				return fmt.Errorf("the service has another certificate than %s", setting)
			}
			return nil
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
