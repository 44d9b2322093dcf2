package cmd

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"plantstore/config"
)

// certificate is the certificate of the service and its key, in two PEM files that may
// be replaced at any time.
type certificate struct {
	certFile, keyFile string
	log               *zap.Logger

	mu     sync.Mutex
	pair   *tls.Certificate
	loaded time.Time // when the files were last read
}

// newTLS returns the configuration of TLS, or nil if cfg has no certificate. log is sampled.
func newTLS(cfg *config.Config, log *zap.Logger) (*tls.Config, error) {
	if !cfg.TLS() {
		return nil, nil
	}
	c := &certificate{certFile: cfg.Server.TLSCertificate, keyFile: cfg.Server.TLSKey, log: log, loaded: time.Now()}
	var err error
	if c.pair, err = c.load(); err != nil {
		return nil, usageError(err)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: c.get}, nil
}

// get implements [tls.Config.GetCertificate]. It reads the files again, at most once a second. It keeps
// the current certificate while they do not match: both cannot be replaced at once.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.Sub(c.loaded) >= time.Second {
		c.loaded = now
		switch pair, err := c.load(); {
		case err != nil: // in the message, so that each cause has its own lines
			c.log.Error("cannot load the new certificate, keeping the current one: " + err.Error())
		case !slices.EqualFunc(pair.Certificate, c.pair.Certificate, bytes.Equal):
			c.pair = pair
			c.log.Info("loaded the new certificate", zap.String("expires", pair.Leaf.NotAfter.Format(time.RFC3339)))
		}
	}
	return c.pair, nil
}

// load reads the files.
func (c *certificate) load() (*tls.Certificate, error) {
	certSetting, keySetting := config.SettingOf("server.tls_certificate"), config.SettingOf("server.tls_key")
	cert, certErr := readSettingFile(certSetting, c.certFile)
	key, keyErr := readSettingFile(keySetting, c.keyFile)
	if err := cmp.Or(certErr, keyErr); err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
	if err != nil {
		return nil, fmt.Errorf("%s and %s: %w", certSetting, keySetting, err)
	}
	return &pair, nil
}

// readSettingFile reads the file that setting names.
func readSettingFile(setting config.Setting, path string) (string, error) {
	text, err := config.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("%s: %w", setting, err)
	}
	return text, nil
}
