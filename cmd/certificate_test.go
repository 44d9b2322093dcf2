package cmd

import (
	"crypto/tls"
	"crypto/x509"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// TestCertificateExpires asks each hour of the 15 days before the end of a certificate, and of
// the two days after it.
func TestCertificateExpires(t *testing.T) {
	core, logs := observer.New(zap.WarnLevel)
	begin := time.Now()
	const end = 15*24 + 12 // hours after begin; half a day after a warning
	c := &certificate{log: zap.New(core), pair: &tls.Certificate{Leaf: &x509.Certificate{NotAfter: begin.Add(end * time.Hour)}}}
	for hour := range end + 48 {
		c.warn(begin.Add(time.Duration(hour) * time.Hour))
		want := max(0, (hour-13)/24)
		if hour >= end {
			want = 14 + 1 + (hour-end)/24
		}
		if logs.Len() != want {
			t.Fatalf("got %d lines after %d hours, want %d", logs.Len(), hour, want)
		}
	}
	for i, entry := range logs.All() {
		level, text := zap.WarnLevel, "expires soon"
		if i >= 14 {
			level, text = zap.ErrorLevel, "has expired"
		}
		if entry.Level != level || !strings.Contains(entry.Message, text) || entry.ContextMap()["setting"] != "server.tls_certificate (PLANTSTORE_SERVER_TLS_CERTIFICATE)" {
			t.Errorf("got the line %v, want level %s, %q and the setting", entry, level, text)
		}
	}
}
