package tests

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// pair is a certificate for localhost and 127.0.0.1 with its key, in PEM.
type pair struct {
	cert, key []byte
	leaf      *x509.Certificate
}

// newPair returns a self-signed pair.
func newPair(t *testing.T) pair {
	t.Helper()
	return newPairUntil(t, time.Now().Add(time.Hour))
}

func newPairUntil(t *testing.T, expires time.Time) pair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "localhost"},
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: expires.Add(-2 * time.Hour), NotAfter: expires,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must(t, err)
	leaf, err := x509.ParseCertificate(der)
	must(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	return pair{
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}),
		leaf,
	}
}

// trust returns the settings of a client that trusts p.
func (p pair) trust() *tls.Config {
	pool := x509.NewCertPool()
	pool.AddCert(p.leaf)
	return &tls.Config{RootCAs: pool}
}

// over returns a transport that trusts p and speaks HTTP/2 or HTTP/1.1.
func (p pair) over(t *testing.T, http2 bool) *http.Transport {
	t.Helper()
	protocols := new(http.Protocols)
	protocols.SetHTTP2(http2)
	protocols.SetHTTP1(!http2)
	transport := &http.Transport{TLSClientConfig: p.trust(), Protocols: protocols}
	t.Cleanup(transport.CloseIdleConnections)
	return transport
}

// in writes p to cert.pem and key.pem in folder.
func (p pair) in(t *testing.T, folder string) {
	t.Helper()
	writeTo(t, filepath.Join(folder, "key.pem"), p.key)
	writeTo(t, filepath.Join(folder, "cert.pem"), p.cert)
}

func writeTo(t *testing.T, path string, text []byte) {
	t.Helper()
	must(t, os.WriteFile(path, text, 0o600))
}

// pairFiles returns the settings that name the pair in folder.
func pairFiles(folder string) []string {
	return []string{
		"PLANTSTORE_SERVER_TLS_CERTIFICATE=" + filepath.Join(folder, "cert.pem"),
		"PLANTSTORE_SERVER_TLS_KEY=" + filepath.Join(folder, "key.pem"),
	}
}

// startTLS starts the service with the pair in folder.
func startTLS(t *testing.T, folder string, settings ...string) *service {
	t.Helper()
	s := start(t, append(pairFiles(folder), settings...)...)
	s.url = "https" + strings.TrimPrefix(s.url, "http")
	return s
}

// on sends a request with the token over transport.
func (s *service) on(t *testing.T, transport *http.Transport, method, path, contentType string, body io.Reader) response {
	t.Helper()
	r, err := s.tryOn(transport, method, path, body, "Authorization", "Bearer "+token, "Content-Type", contentType)
	must(t, err)
	return r
}

// handshake returns the certificate of the service, from a new connection.
func (s *service) handshake(t *testing.T) *x509.Certificate {
	t.Helper()
	dialer := tls.Dialer{NetDialer: &net.Dialer{Timeout: patience}, Config: &tls.Config{InsecureSkipVerify: true}}
	conn, err := dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(s.url, "https://"))
	must(t, err)
	defer conn.Close()
	return conn.(*tls.Conn).ConnectionState().PeerCertificates[0]
}

// awaitCertificate connects until the service has the certificate of p instead of before.
func (s *service) awaitCertificate(t *testing.T, before, p pair) {
	t.Helper()
	s.handshakeUntil(t, before, func(got *x509.Certificate) bool { return got.Equal(p.leaf) })
}

// handshakeUntil connects until condition holds. Until then the certificate must be that
// of p.
func (s *service) handshakeUntil(t *testing.T, p pair, condition func(*x509.Certificate) bool) {
	t.Helper()
	eventually(t, "another certificate", func() bool {
		got := s.handshake(t)
		if condition(got) {
			return true
		}
		if !got.Equal(p.leaf) {
			t.Fatal("got a certificate that was replaced")
		}
		return false
	})
}

// TestCertificateIsReplaced replaces the files of a running service.
func TestCertificateIsReplaced(t *testing.T) {
	t.Parallel()
	first, second, third := newPair(t), newPair(t), newPair(t)
	folder := t.TempDir()
	first.in(t, folder)
	s := startTLS(t, folder)
	open := first.over(t, true)
	requireOK(t, s.on(t, open, "GET", "/healthz", "", nil))
	rejections := func(s *service) int { return strings.Count(s.stderr.String(), `"level":"error"`) }

	// A key or half a certificate alone is rejected, and logged once however many
	// handshakes follow.
	writeTo(t, filepath.Join(folder, "key.pem"), second.key)
	s.handshakeUntil(t, first, func(*x509.Certificate) bool { return rejections(s) == 1 })
	checks := time.After(2500 * time.Millisecond)
	s.handshakeUntil(t, first, func(*x509.Certificate) bool {
		select {
		case <-checks:
			return true
		default:
			return false
		}
	})
	writeTo(t, filepath.Join(folder, "cert.pem"), second.cert[:len(second.cert)/2])
	s.handshakeUntil(t, first, func(*x509.Certificate) bool { return rejections(s) == 2 })
	must(t, os.Remove(filepath.Join(folder, "cert.pem")))
	s.handshakeUntil(t, first, func(*x509.Certificate) bool { return rejections(s) == 3 })
	writeTo(t, filepath.Join(folder, "cert.pem"), second.cert)
	s.awaitCertificate(t, first, second)
	if n := rejections(s); n != 3 {
		t.Errorf("got %d errors in the log, want 3", n)
	}
	// Open connections continue: their transport trusts only the first certificate.
	checkStatus(t, s.on(t, open, "GET", "/healthz", "", nil), 200)
	if _, err := s.tryOn(first.over(t, true), "GET", "/healthz", nil); err == nil {
		t.Error("got the old certificate on a new connection")
	}
	if strings.Contains(s.stderr.String(), folder) {
		t.Error("got the path in the log")
	}

	// Kubernetes mounts files as links into a folder that is a link.
	mounted := t.TempDir()
	for name, p := range map[string]pair{"a": second, "b": third} {
		must(t, os.Mkdir(filepath.Join(mounted, name), 0o700))
		p.in(t, filepath.Join(mounted, name))
	}
	link := func(target, name string) {
		t.Helper()
		next := filepath.Join(mounted, "next")
		must(t, errors.Join(os.Symlink(target, next), os.Rename(next, filepath.Join(mounted, name))))
	}
	link("a", "data")
	link("data/cert.pem", "cert.pem")
	link("data/key.pem", "key.pem")
	linked := startTLS(t, mounted)
	linked.awaitCertificate(t, second, second)
	link("b", "data")
	linked.awaitCertificate(t, second, third)
	if n := rejections(linked); n != 0 {
		t.Errorf("got %d errors in the log after a pair was replaced at once, want 0", n)
	}
}

// TestCertificateMetric reads only the metrics, which also notice new files.
func TestCertificateMetric(t *testing.T) {
	t.Parallel()
	first, second, folder := newPair(t), newPair(t), t.TempDir()
	first.in(t, folder)
	s, admin := startAdminOf(t, func(t *testing.T, settings ...string) *service { return startTLS(t, folder, settings...) })
	expires := func(p pair) bool {
		line := regexp.MustCompile(`(?m)^plantstore_certificate_expires_timestamp_seconds (\S+)$`).FindStringSubmatch(admin.get(t, "/metrics").body)
		if line == nil {
			t.Fatal("got no metric")
		}
		at, err := strconv.ParseFloat(line[1], 64)
		return err == nil && int64(at) == p.leaf.NotAfter.Unix()
	}
	if !expires(first) {
		t.Error("got another time than that of the certificate")
	}
	if got := s.awaitLog(t, "the certificate expires soon: replace its files")["setting"]; got != "server.tls_certificate (PLANTSTORE_SERVER_TLS_CERTIFICATE)" {
		t.Errorf("got the setting %v", got)
	}
	second.in(t, folder)
	eventually(t, "the new certificate", func() bool {
		return expires(second) && strings.Contains(s.stderr.String(), "loaded the new certificate")
	})
	_, plain := startAdmin(t)
	if strings.Contains(plain.get(t, "/metrics").body, "plantstore_certificate") {
		t.Error("got the metric without TLS")
	}
}

func TestBadCertificateStopsTheStart(t *testing.T) {
	t.Parallel()
	own, other := newPair(t), newPair(t)
	const encrypted = "server.tls_key (PLANTSTORE_SERVER_TLS_KEY): the key is encrypted, which is not supported"
	for name, test := range map[string]struct {
		cert, key []byte
		mentions  string
	}{
		"no certificate":     {nil, own.key, "server.tls_certificate (PLANTSTORE_SERVER_TLS_CERTIFICATE): no such file"},
		"no key":             {own.cert, nil, "server.tls_key (PLANTSTORE_SERVER_TLS_KEY): no such file"},
		"half a key":         {own.cert, own.key[:len(own.key)/2], "server.tls_key"},
		"the key of another": {own.cert, other.key, "server.tls_key"},
		"an encrypted key":   {own.cert, []byte("-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIHs\n-----END ENCRYPTED PRIVATE KEY-----\n"), encrypted},
		"an old one":         {own.cert, []byte("-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,B99E\n\nMIHs\n-----END EC PRIVATE KEY-----\n"), encrypted},
		"swapped files":      {own.key, own.cert, "server.tls_certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			for file, text := range map[string][]byte{"cert.pem": test.cert, "key.pem": test.key} {
				if text != nil {
					writeTo(t, filepath.Join(folder, file), text)
				}
			}
			_, stderr, status := runToEnd(t, append(pairFiles(folder), "PORT=0", "PLANTSTORE_AUTH_TOKENS="+token))
			if status != 2 || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, test.mentions) || strings.Contains(stderr, folder) {
				t.Errorf("got exit status %d and %q, want 2 and one line with %s", status, stderr, test.mentions)
			}
		})
	}
}
