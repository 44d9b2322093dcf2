package cmd

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"plantstore/config"
	"plantstore/controllers"
)

// devTokenFile stores the token of a development server without configured tokens.
const devTokenFile = "data/dev-token"

// ensureDevToken returns the development token, which it creates if it does not exist.
func ensureDevToken() (string, error) {
	if err := os.MkdirAll(filepath.Dir(devTokenFile), 0o750); err != nil {
		return "", err
	}
	file, err := os.OpenFile(devTokenFile, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return readDevToken()
	}
	if err != nil {
		return "", err
	}
	token := config.DevTokenPrefix + rand.Text() + rand.Text()
	_, err = fmt.Fprintln(file, token)
	return token, errors.Join(err, file.Close())
}

// readDevToken reads the development token, which the service prints and has every scope. It must not be one
// that another user knows or has chosen.
func readDevToken() (token string, err error) {
	fault := "is not a regular file"
	info, err := os.Lstat(devTokenFile)
	if err == nil && info.Mode().IsRegular() {
		var text []byte
		text, err = os.ReadFile(devTokenFile)
		token, fault = strings.TrimSpace(string(text)), config.Exposure(devTokenFile, os.Getuid())
	}
	if err == nil && fault == "" && (!strings.HasPrefix(token, config.DevTokenPrefix) || len(token) < config.MinTokenLength) {
		fault = fmt.Sprintf("does not contain a token of at least %d characters that begins with %s", config.MinTokenLength, config.DevTokenPrefix)
	}
	if err == nil && fault != "" {
		err = fmt.Errorf("%s %s: remove it, and the service creates a new token", devTokenFile, fault)
	}
	return token, err
}

// welcome prints the URL of a development service, its token and a request to try.
func welcome(cfg *config.Config, port int, token string) {
	base, curl := localURL(cfg.TLS(), net.JoinHostPort(cfg.Server.Host, strconv.Itoa(port)), "localhost"), "curl -i"
	if cfg.TLS() { // the certificate may be self-signed
		curl = fmt.Sprintf("curl -i --cacert '%s'", cfg.Server.TLSCertificate)
	}
	if cfg.Docs.Enabled {
		fmt.Printf("\n  Swagger UI  %s%s\n", base, controllers.UIPath)
	} else {
		fmt.Printf("\n  Service     %s\n", base)
	}
	if token != "" {
		fmt.Printf("  Token       %s (stored in %s)\n", token, devTokenFile)
		fmt.Printf("  Try it      %s %s/plants -H 'Authorization: Bearer %s' -H 'Content-Type: application/json' -d '%s'\n",
			curl, base, token, `{"id":1,"name":"Monstera deliciosa","tag":"houseplant"}`)
	}
	fmt.Println()
}
