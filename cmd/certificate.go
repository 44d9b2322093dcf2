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
	version [2]fileVersion // of the files that were tried last
	checked time.Time
}

// fileVersion tells one content of a file from the next. It is zero where there is
// no file.
type fileVersion struct {
	modified time.Time
	size     int64
}

// newCertificate loads the certificate that cfg names.
func newCertificate(cfg config.Server, log *zap.Logger) (*certificate, error) {
	c := &certificate{certFile: cfg.TLSCertificate, keyFile: cfg.TLSKey, log: log}
	c.version, c.checked = c.onDisk(), time.Now()
	return c, c.load()
}

// get returns the certificate for a handshake: see [tls.Config]. It stays what it
// was where its files have changed and are no pair, as those have that are
// replaced one after the other.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.Sub(c.checked) >= certificateCheck {
		c.checked = now
		// Before they are read: what changes meanwhile counts as another change.
		if version := c.onDisk(); version != c.version {
			c.version = version
			if err := c.load(); err != nil {
				c.log.Error("the new certificate cannot be used, the one before stays", zap.Error(err))
			} else {
				c.log.Info("the certificate was replaced", zap.Time("expires", c.pair.Leaf.NotAfter))
			}
		}
	}
	return c.pair, nil
}

// onDisk returns the versions of the files. It follows links, which is how
// Kubernetes replaces them.
func (c *certificate) onDisk() (versions [2]fileVersion) {
	for i, path := range []string{c.certFile, c.keyFile} {
		if info, err := os.Stat(path); err == nil {
			versions[i] = fileVersion{info.ModTime(), info.Size()}
		}
	}
	return versions
}

// load reads the pair. An error names the keys of the configuration, not the files.
func (c *certificate) load() error {
	certKey, keyKey := "server.tls_certificate", "server.tls_key"
	certPEM, err := os.ReadFile(c.certFile)
	if err != nil {
		return fmt.Errorf("%s (%s): %w", certKey, config.Variable(certKey), withoutPath(err))
	}
	keyPEM, err := os.ReadFile(c.keyFile)
	if err != nil {
		return fmt.Errorf("%s (%s): %w", keyKey, config.Variable(keyKey), withoutPath(err))
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return fmt.Errorf("%s (%s) and %s (%s): %w", certKey, config.Variable(certKey), keyKey, config.Variable(keyKey), err)
	}
	c.pair = &pair
	return nil
}

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
	text, err := os.ReadFile(path)
	block, _ := pem.Decode(text)
	if err == nil && block == nil {
		err = errors.New("it is not PEM")
	}
	if err != nil {
		const key = "server.tls_certificate"
		return nil, fmt.Errorf("%s (%s): %w", key, config.Variable(key), withoutPath(err))
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
