package cmd

import (
	"crypto/tls"
	"fmt"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/time/rate"

	"plantstore/config"
)

// certificate is the certificate of the service and its key, in two PEM files that may
// be replaced at any time.
type certificate struct {
	cfg   *config.Config
	log   *zap.Logger
	reads rate.Sometimes // of the files
	files [2]string      // their content, which pair is made of
	pair  atomic.Pointer[tls.Certificate]
}

// newTLS returns the configuration of TLS, or nil if cfg has no certificate. log is sampled.
func newTLS(cfg *config.Config, log *zap.Logger) (*tls.Config, error) {
	if !cfg.TLS() {
		return nil, nil
	}
	c := &certificate{cfg: cfg, log: log, reads: rate.Sometimes{Interval: time.Second}}
	if err := c.load(); err != nil {
		return nil, usageError(err)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: c.get}, nil
}

// get implements [tls.Config.GetCertificate]. It reads the files again, at most once a second. It keeps
// the current certificate while they do not match: both cannot be replaced at once.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.reads.Do(func() {
		before := c.files
		if err := c.load(); err != nil { // in the message, so that each cause has its own lines
			c.log.Error("cannot load the new certificate, keeping the current one: " + err.Error())
		} else if c.files != before {
			c.log.Info("loaded the new certificate", zap.String("expires", c.pair.Load().Leaf.NotAfter.Format(time.RFC3339)))
		}
	})
	return c.pair.Load(), nil
}

// load reads the files, and parses them if they have changed.
func (c *certificate) load() error {
	settings := [...]config.Setting{config.SettingOf("server.tls_certificate"), config.SettingOf("server.tls_key")}
	var files [2]string
	for i, path := range [...]string{c.cfg.Server.TLSCertificate, c.cfg.Server.TLSKey} {
		var err error
		if files[i], err = config.ReadFile(path); err != nil {
			return fmt.Errorf("%s: %w", settings[i], err)
		}
	}
	if files == c.files {
		return nil
	}
	pair, err := tls.X509KeyPair([]byte(files[0]), []byte(files[1]))
	if err != nil {
		return fmt.Errorf("%s and %s: %w", settings[0], settings[1], err)
	}
	c.files = files
	c.pair.Store(&pair)
	return nil
}
