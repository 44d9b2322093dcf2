package cmd

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"plantstore/config"
)

// devTokenFile stores the token of a development server without configured tokens.
const devTokenFile = "data/dev-token"

// ensureDevToken returns the development token, which it creates if it does not exist.
func ensureDevToken() (token string, err error) {
	if token, err = readDevToken(); errors.Is(err, fs.ErrNotExist) {
		if err = createDevToken(); err == nil {
			token, err = readDevToken()
		}
	}
	if err != nil {
		return "", fmt.Errorf("development token: %w", err)
	}
	return token, nil
}

func readDevToken() (string, error) {
	text, err := os.ReadFile(devTokenFile)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(text))
	if len(token) < config.MinTokenLength {
		return "", fmt.Errorf("%s does not contain a token of at least %d characters: remove the file, and the service creates a new one",
			devTokenFile, config.MinTokenLength)
	}
	return token, nil
}

// createDevToken writes a new token to devTokenFile, readable by its owner only. The
// file appears with its content, and the first of several processes wins.
func createDevToken() (err error) {
	if err := os.MkdirAll(filepath.Dir(devTokenFile), 0o750); err != nil {
		return err
	}
	file, err := os.CreateTemp(filepath.Dir(devTokenFile), "dev-token-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(file.Name())) }()
	// rand.Text has 130 random bits.
	_, err = fmt.Fprintln(file, config.DevTokenPrefix+rand.Text()+rand.Text())
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	if err := os.Link(file.Name(), devTokenFile); !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}
