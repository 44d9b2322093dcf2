package operate

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"plantstore/tests/service"
)

// handshake returns the certificate of the service, from a new connection.
func handshake(t *testing.T, s *service.Service) *x509.Certificate {
	t.Helper()
	dialer := tls.Dialer{NetDialer: &net.Dialer{Timeout: service.Patience}, Config: &tls.Config{InsecureSkipVerify: true}}
	conn, err := dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(s.URL, "https://"))
	service.Must(t, err)
	defer conn.Close()
	return conn.(*tls.Conn).ConnectionState().PeerCertificates[0]
}

// awaitCertificate connects until the service has the certificate of p instead of before.
func awaitCertificate(t *testing.T, s *service.Service, before, p service.Pair) {
	t.Helper()
	handshakeUntil(t, s, before, func(got *x509.Certificate) bool { return got.Equal(p.Leaf) })
}

// handshakeUntil connects until condition holds. Until then the certificate must be that
// of p.
func handshakeUntil(t *testing.T, s *service.Service, p service.Pair, condition func(*x509.Certificate) bool) {
	t.Helper()
	service.Eventually(t, "another certificate", func() bool {
		got := handshake(t, s)
		if condition(got) {
			return true
		}
		if !got.Equal(p.Leaf) {
			t.Fatal("got a certificate that was replaced")
		}
		return false
	})
}

// TestCertificateIsReplaced replaces the files of a running service.
func TestCertificateIsReplaced(t *testing.T) {
	t.Parallel()
	first, second, third := service.NewPair(t), service.NewPair(t), service.NewPair(t)
	folder := t.TempDir()
	first.In(t, folder)
	s := service.StartTLS(t, folder)
	open := first.Over(t, true)
	s.On(t, open, "GET", "/healthz", "", nil).RequireOK(t)
	rejections := func(s *service.Service) int { return strings.Count(s.Stderr.String(), `"level":"error"`) }

	// A key or half a certificate alone is rejected, and logged once however many
	// handshakes follow.
	service.WriteTo(t, filepath.Join(folder, "key.pem"), second.Key)
	handshakeUntil(t, s, first, func(*x509.Certificate) bool { return rejections(s) == 1 })
	checks := time.After(2500 * time.Millisecond)
	handshakeUntil(t, s, first, func(*x509.Certificate) bool {
		select {
		case <-checks:
			return true
		default:
			return false
		}
	})
	service.WriteTo(t, filepath.Join(folder, "cert.pem"), second.Cert[:len(second.Cert)/2])
	handshakeUntil(t, s, first, func(*x509.Certificate) bool { return rejections(s) == 2 })
	service.Must(t, os.Remove(filepath.Join(folder, "cert.pem")))
	handshakeUntil(t, s, first, func(*x509.Certificate) bool { return rejections(s) == 3 })
	service.WriteTo(t, filepath.Join(folder, "cert.pem"), second.Cert)
	awaitCertificate(t, s, first, second)
	if n := rejections(s); n != 3 {
		t.Errorf("got %d errors in the log, want 3", n)
	}
	// Open connections continue: their transport trusts only the first certificate.
	s.On(t, open, "GET", "/healthz", "", nil).CheckStatus(t, 200)
	if _, err := s.TryOn(first.Over(t, true), "GET", "/healthz", nil); err == nil {
		t.Error("got the old certificate on a new connection")
	}
	if strings.Contains(s.Stderr.String(), folder) {
		t.Error("got the path in the log")
	}

	// Kubernetes mounts files as links into a folder that is a link.
	mounted := t.TempDir()
	for name, p := range map[string]service.Pair{"a": second, "b": third} {
		service.Must(t, os.Mkdir(filepath.Join(mounted, name), 0o700))
		p.In(t, filepath.Join(mounted, name))
	}
	link := func(target, name string) {
		t.Helper()
		next := filepath.Join(mounted, "next")
		service.Must(t, errors.Join(os.Symlink(target, next), os.Rename(next, filepath.Join(mounted, name))))
	}
	link("a", "data")
	link("data/cert.pem", "cert.pem")
	link("data/key.pem", "key.pem")
	linked := service.StartTLS(t, mounted)
	awaitCertificate(t, linked, second, second)
	link("b", "data")
	awaitCertificate(t, linked, second, third)
	if n := rejections(linked); n != 0 {
		t.Errorf("got %d errors in the log after a pair was replaced at once, want 0", n)
	}
}

// TestCertificateMetric reads only the metrics, which also notice new files.
func TestCertificateMetric(t *testing.T) {
	t.Parallel()
	first, second, folder := service.NewPair(t), service.NewPair(t), t.TempDir()
	first.In(t, folder)
	s, admin := service.StartAdminOf(t, func(t *testing.T, settings ...string) *service.Service {
		return service.StartTLS(t, folder, settings...)
	})
	expires := func(p service.Pair) bool {
		line := regexp.MustCompile(`(?m)^plantstore_certificate_expires_timestamp_seconds (\S+)$`).FindStringSubmatch(admin.Get(t, "/metrics").Body)
		if line == nil {
			t.Fatal("got no metric")
		}
		at, err := strconv.ParseFloat(line[1], 64)
		return err == nil && int64(at) == p.Leaf.NotAfter.Unix()
	}
	if !expires(first) {
		t.Error("got another time than that of the certificate")
	}
	second.In(t, folder)
	service.Eventually(t, "the new certificate", func() bool {
		return expires(second) && strings.Contains(s.Stderr.String(), "loaded the new certificate")
	})
	_, plain := service.StartAdmin(t)
	if strings.Contains(plain.Get(t, "/metrics").Body, "plantstore_certificate") {
		t.Error("got the metric without TLS")
	}
}

func TestBadCertificateStopsTheStart(t *testing.T) {
	t.Parallel()
	own, other := service.NewPair(t), service.NewPair(t)
	for name, test := range map[string]struct {
		cert, key []byte
		mentions  string
	}{
		"no certificate":     {nil, own.Key, "server.tls_certificate (PLANTSTORE_SERVER_TLS_CERTIFICATE): no such file"},
		"no key":             {own.Cert, nil, "server.tls_key (PLANTSTORE_SERVER_TLS_KEY): no such file"},
		"half a key":         {own.Cert, own.Key[:len(own.Key)/2], "server.tls_key"},
		"the key of another": {own.Cert, other.Key, "server.tls_key"},
		"swapped files":      {own.Key, own.Cert, "server.tls_certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			for file, text := range map[string][]byte{"cert.pem": test.cert, "key.pem": test.key} {
				if text != nil {
					service.WriteTo(t, filepath.Join(folder, file), text)
				}
			}
			_, stderr, status := service.RunToEnd(t, append(service.PairFiles(folder), "PORT=0", "PLANTSTORE_AUTH_TOKENS="+service.Token))
			if status != 2 || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, test.mentions) || strings.Contains(stderr, folder) {
				t.Errorf("got exit status %d and %q, want 2 and one line with %s", status, stderr, test.mentions)
			}
		})
	}
}
