package cmd

import (
	"bytes"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	"go.uber.org/zap"

	"plantstore/config"
)

// certificateCheck is how often handshakes look whether the certificate's files
// have changed, at most.
const certificateCheck = time.Second

// certificate is that of the service, with its key, in two PEM files that may be
// replaced while it runs.
type certificate struct {
	certFile, keyFile string
	log               *zap.Logger

	mu      sync.Mutex
	pair    *tls.Certificate
	tried   pairText // what was tried last, be it a pair or not
	checked time.Time
}

// pairText is what the two files hold, or why they cannot be read. Their times and
// sizes would not do: two that were made in the same moment may share them.
type pairText struct{ certificate, key, failure string }

// newCertificate loads the certificate that cfg names.
func newCertificate(cfg config.Server, log *zap.Logger) (*certificate, error) {
	c := &certificate{certFile: cfg.TLSCertificate, keyFile: cfg.TLSKey, log: log, checked: time.Now()}
	if _, err := c.load(); err != nil {
		return nil, err
	}
	if expires := c.pair.Leaf.NotAfter; time.Until(expires) < 14*24*time.Hour {
		log.Warn("the certificate is about to expire, or has: replace its files", zap.Time("expires", expires))
	}
	return c, nil
}

// get returns the certificate for a handshake: see [tls.Config]. If the new
// files do not match, as while one of the two is being replaced, the old one stays.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.Sub(c.checked) >= certificateCheck {
		c.checked = now
		switch changed, err := c.load(); {
		case !changed:
		case err != nil:
			c.log.Error("the new certificate cannot be used, the one before stays", zap.Error(err))
		default:
			c.log.Info("the certificate was replaced", zap.Time("expires", c.pair.Leaf.NotAfter))
		}
	}
	return c.pair, nil
}

// load reads the pair, and reports whether it is another than before. An error names
// the keys of the configuration, not the files.
func (c *certificate) load() (changed bool, err error) {
	const certKey, keyKey = "server.tls_certificate", "server.tls_key"
	var text pairText
	text.certificate, err = readPEM(certKey, c.certFile)
	if err == nil {
		text.key, err = readPEM(keyKey, c.keyFile)
	}
	if err != nil {
		text.failure = err.Error()
	}
	if text == c.tried {
		return false, nil
	}
	c.tried = text
	if err != nil {
		return true, err
	}
	pair, err := tls.X509KeyPair([]byte(text.certificate), []byte(text.key))
	if err != nil {
		return true, fmt.Errorf("%s and %s: %w", config.SettingOf(certKey), config.SettingOf(keyKey), err)
	}
	c.pair = &pair
	return true, nil
}

// readPEM reads the file that key names.
func readPEM(key, path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("%s: %w", config.SettingOf(key), withoutPath(err))
	}
	return string(text), nil
}

// withoutPath returns what was wrong with a file, without its path: it may be a secret
// that was given in place of one.
func withoutPath(err error) error {
	if wrapped, ok := errors.AsType[*fs.PathError](err); ok {
		return wrapped.Err
	}
	return err
}

// onlyCertificate returns how a client on this machine connects to the service
// whose certificate is in the file path: to that one and no other. It need not
// name this machine, by which the client calls it.
func onlyCertificate(path string) (*tls.Config, error) {
	const key = "server.tls_certificate"
	text, err := readPEM(key, path)
	if err != nil {
		return nil, err
	}
	block, rest := pem.Decode([]byte(text))
	for block != nil && block.Type != "CERTIFICATE" {
		block, rest = pem.Decode(rest)
	}
	if block == nil {
		return nil, fmt.Errorf("%s: it has no certificate in PEM", config.SettingOf(key))
	}
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		InsecureSkipVerify: true, // VerifyConnection asks for more
		VerifyConnection: func(state tls.ConnectionState) error {
			if !bytes.Equal(state.PeerCertificates[0].Raw, block.Bytes) {
				return errors.New("it has another certificate than the one of this configuration")
			}
			return nil
		},
	}, nil
}
