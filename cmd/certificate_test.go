package cmd

import (
	"crypto/tls"
	"crypto/x509"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// TestCertificateExpires asks each hour of the 15 days before the end of a certificate.
func TestCertificateExpires(t *testing.T) {
	core, logs := observer.New(zap.WarnLevel)
	begin := time.Now()
	c := &certificate{log: zap.New(core), pair: &tls.Certificate{Leaf: &x509.Certificate{NotAfter: begin.Add(15 * 24 * time.Hour)}}}
	for hour := range 15 * 24 {
		c.warn(begin.Add(time.Duration(hour) * time.Hour))
		if want := max(0, (hour-1)/24); logs.Len() != want {
			t.Fatalf("got %d lines after %d hours, want %d", logs.Len(), hour, want)
		}
	}
}
