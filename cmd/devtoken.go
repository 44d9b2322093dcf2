package cmd

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"plantstore/config"
)

// devTokenFile keeps the token of a development server that was given none.
const devTokenFile = "data/dev-token"

// tokensOf returns the static tokens that cfg names. A development server without
// any makes one for itself, which is returned apart as well.
func tokensOf(cfg *config.Config) (tokens []string, devToken string, err error) {
	if len(cfg.Auth.Tokens) > 0 || cfg.Env == config.Production {
		return cfg.Auth.Tokens, "", nil
	}
	devToken, err = ensureDevToken(devTokenFile)
	if err != nil {
		return nil, "", fmt.Errorf("the development token: %w", err)
	}
	return []string{devToken}, devToken, nil
}

// ensureDevToken returns the token in the file path, which it makes where there
// is none.
func ensureDevToken(path string) (string, error) {
	token, err := readDevToken(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err := createDevToken(path); err != nil {
			return "", err
		}
		return readDevToken(path)
	}
	return token, err
}

// readDevToken returns the token in the file path.
func readDevToken(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(text))
	if len(token) < config.MinTokenLength {
		return "", fmt.Errorf("%s holds no token of %d characters or more: remove the file, and the next start makes a new one",
			path, config.MinTokenLength)
	}
	return token, nil
}

// createDevToken writes a new token to the file path, which only its owner may
// read. The file appears whole, and the first of several processes wins.
func createDevToken(path string) (err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	file, err := os.CreateTemp(filepath.Dir(path), "dev-token-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(file.Name())) }()
	// Two texts of 130 random bits each.
	_, err = fmt.Fprintln(file, config.DevTokenPrefix+rand.Text()+rand.Text())
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	if err := os.Link(file.Name(), path); !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// welcome tells a developer where the service is, and how to call it.
func welcome(w io.Writer, cfg *config.Config, port int, token string) {
	base, curl := urlOf(cfg, "localhost", port), "curl -i"
	if cfg.Server.TLS() { // the certificate may be one that no authority has issued
		curl = fmt.Sprintf("curl -i --cacert '%s'", cfg.Server.TLSCertificate)
	}
	if cfg.Docs.Enabled {
		_, _ = fmt.Fprintf(w, "\n  Swagger UI  %s/swagger/index.html\n", base)
	} else {
		_, _ = fmt.Fprintf(w, "\n  Service     %s\n", base)
	}
	if token != "" {
		_, _ = fmt.Fprintf(w, "  Token       %s (kept in %s)\n", token, devTokenFile)
		_, _ = fmt.Fprintf(w, "  Try it      %s %s/plants -H 'Authorization: Bearer %s' -H 'Content-Type: application/json' -d '%s'\n",
			curl, base, token, `{"id":1,"name":"Monstera deliciosa","tag":"houseplant"}`)
	}
	_, _ = fmt.Fprintln(w)
}
