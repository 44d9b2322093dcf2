package cmd

import (
	"cmp"
	"crypto/tls"
	"fmt"
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

	mu      sync.Mutex
	pair    *tls.Certificate
	text    string // of both files, or the error, at the last check
	checked time.Time
}

// newTLS returns the configuration of TLS, or nil if cfg has no certificate.
func newTLS(cfg *config.Config, log *zap.Logger) (*tls.Config, error) {
	if !cfg.TLS() {
		return nil, nil
	}
	c := &certificate{certFile: cfg.Server.TLSCertificate, keyFile: cfg.Server.TLSKey, log: log, checked: time.Now()}
	if _, err := c.load(); err != nil {
		return nil, usageError(err)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: c.get}, nil
}

// get implements [tls.Config.GetCertificate]. At most once a second, it checks whether the files have
// changed. It keeps the current certificate while they do not match: both cannot be replaced at once.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.Sub(c.checked) >= time.Second {
		c.checked = now
		switch changed, err := c.load(); {
		case err != nil:
			c.log.Error("cannot load the new certificate, keeping the current one", zap.Error(err))
		case changed:
			c.log.Info("loaded the new certificate", zap.String("expires", c.pair.Leaf.NotAfter.Format(time.RFC3339)))
		}
	}
	return c.pair, nil
}

// load reads the files and reports whether c.pair has changed. It returns each error
// once, until the files change again. They are compared by content, because files that
// were replaced at the same moment may have the same size and time.
func (c *certificate) load() (changed bool, err error) {
	certSetting, keySetting := config.SettingOf("server.tls_certificate"), config.SettingOf("server.tls_key")
	cert, certErr := readSettingFile(certSetting, c.certFile)
	key, keyErr := readSettingFile(keySetting, c.keyFile)
	err = cmp.Or(certErr, keyErr)
	text := fmt.Sprint(cert, key, err)
	if text == c.text {
		return false, nil
	}
	c.text = text
	if err != nil {
		return false, err
	}
	pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
	if err != nil {
		return false, fmt.Errorf("%s and %s: %w", certSetting, keySetting, err)
	}
	c.pair = &pair
	return true, nil
}

// readSettingFile reads the file that setting names.
func readSettingFile(setting config.Setting, path string) (string, error) {
	text, err := config.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("%s: %w", setting, err)
	}
	return text, nil
}
