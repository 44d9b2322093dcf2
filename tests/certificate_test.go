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
	"strings"
	"testing"
	"time"
)

// pair is a certificate for localhost and 127.0.0.1 with its key, in PEM.
type pair struct {
	cert, key []byte
	leaf      *x509.Certificate
}

// newPair returns a pair of its own, signed by itself.
func newPair(t *testing.T) pair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "localhost"},
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pair{
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}),
		leaf,
	}
}

// trust returns the settings of a client that takes p for the service's.
func (p pair) trust() *tls.Config {
	pool := x509.NewCertPool()
	pool.AddCert(p.leaf)
	return &tls.Config{RootCAs: pool}
}

// over returns a transport to the holder of p that speaks HTTP/2, or else HTTP/1.1.
func (p pair) over(t *testing.T, http2 bool) *http.Transport {
	t.Helper()
	protocols := new(http.Protocols)
	protocols.SetHTTP2(http2)
	protocols.SetHTTP1(!http2)
	transport := &http.Transport{TLSClientConfig: p.trust(), Protocols: protocols}
	t.Cleanup(transport.CloseIdleConnections)
	return transport
}

// in writes the pair to the files cert.pem and key.pem in folder.
func (p pair) in(t *testing.T, folder string) {
	t.Helper()
	writeTo(t, filepath.Join(folder, "key.pem"), p.key)
	writeTo(t, filepath.Join(folder, "cert.pem"), p.cert)
}

func writeTo(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
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

// on makes a request with the token over transport.
func (s *service) on(t *testing.T, transport *http.Transport, method, path, contentType string, body io.Reader) response {
	t.Helper()
	r, err := s.tryOn(transport, method, path, body, "Authorization", "Bearer "+token, "Content-Type", contentType)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// handshake connects anew and returns the certificate that the service shows.
func (s *service) handshake(t *testing.T) *x509.Certificate {
	t.Helper()
	dialer := tls.Dialer{NetDialer: &net.Dialer{Timeout: patience}, Config: &tls.Config{InsecureSkipVerify: true}}
	conn, err := dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(s.url, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.(*tls.Conn).ConnectionState().PeerCertificates[0]
}

// awaitCertificate connects until the service shows the certificate of p, which
// it must without one that is neither that nor that of before.
func (s *service) awaitCertificate(t *testing.T, before, p pair) {
	t.Helper()
	s.handshakeUntil(t, before, func(got *x509.Certificate) bool { return got.Equal(p.leaf) })
}

// handshakeUntil connects until holds, and meanwhile wants the certificate of p.
func (s *service) handshakeUntil(t *testing.T, p pair, holds func(*x509.Certificate) bool) {
	t.Helper()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for deadline := time.Now().Add(patience); ; <-ticker.C {
		got := s.handshake(t)
		switch {
		case holds(got):
			return
		case !got.Equal(p.leaf):
			t.Fatal("the service shows a certificate that is not there any more")
		case time.Now().After(deadline):
			t.Fatal("waited in vain for another certificate")
		}
	}
}

// TestCertificateIsReplaced replaces the files under the running service.
func TestCertificateIsReplaced(t *testing.T) {
	t.Parallel()
	first, second, third := newPair(t), newPair(t), newPair(t)
	folder := t.TempDir()
	first.in(t, folder)
	s := startTLS(t, folder)
	open := first.over(t, true)
	requireStatus(t, s.on(t, open, "GET", "/healthz", "", nil), 200)
	const refused = "the new certificate cannot be used, the one before stays"
	refusals := func() int { return strings.Count(s.stderr.String(), refused) }

	// A key alone is no pair, nor is half a certificate; each is said once, however
	// many handshakes follow.
	writeTo(t, filepath.Join(folder, "key.pem"), second.key)
	s.handshakeUntil(t, first, func(*x509.Certificate) bool { return refusals() == 1 })
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
	s.handshakeUntil(t, first, func(*x509.Certificate) bool { return refusals() == 2 })
	if err := os.Remove(filepath.Join(folder, "cert.pem")); err != nil {
		t.Fatal(err)
	}
	s.handshakeUntil(t, first, func(*x509.Certificate) bool { return refusals() == 3 })
	writeTo(t, filepath.Join(folder, "cert.pem"), second.cert)
	s.awaitCertificate(t, first, second)
	if n := refusals(); n != 3 {
		t.Errorf("%d refusals are logged, want 3", n)
	}
	// The connection from before goes on, as its transport trusts no other.
	checkStatus(t, s.on(t, open, "GET", "/healthz", "", nil), 200)
	if _, err := s.tryOn(first.over(t, true), "GET", "/healthz", nil); err == nil {
		t.Error("a new connection gets the old certificate")
	}
	if strings.Contains(s.stderr.String(), folder) {
		t.Error("the log has the path")
	}

	// As Kubernetes does it: the files are links into a folder that is a link.
	mounted := t.TempDir()
	for name, p := range map[string]pair{"a": second, "b": third} {
		if err := os.Mkdir(filepath.Join(mounted, name), 0o700); err != nil {
			t.Fatal(err)
		}
		p.in(t, filepath.Join(mounted, name))
	}
	link := func(target, name string) {
		t.Helper()
		next := filepath.Join(mounted, "next")
		if err := errors.Join(os.Symlink(target, next), os.Rename(next, filepath.Join(mounted, name))); err != nil {
			t.Fatal(err)
		}
	}
	link("a", "data")
	link("data/cert.pem", "cert.pem")
	link("data/key.pem", "key.pem")
	linked := startTLS(t, mounted)
	linked.awaitCertificate(t, second, second)
	link("b", "data")
	linked.awaitCertificate(t, second, third)
	if strings.Contains(linked.stderr.String(), refused) {
		t.Error("a pair that was replaced at once was refused")
	}
}

func TestBadCertificateStopsTheStart(t *testing.T) {
	t.Parallel()
	own, other := newPair(t), newPair(t)
	for what, test := range map[string]struct {
		cert, key []byte
		mentions  string
	}{
		"no certificate":    {nil, own.key, "server.tls_certificate (PLANTSTORE_SERVER_TLS_CERTIFICATE): no such file"},
		"no key":            {own.cert, nil, "server.tls_key (PLANTSTORE_SERVER_TLS_KEY): no such file"},
		"half a key":        {own.cert, own.key[:len(own.key)/2], "server.tls_key"},
		"another's key":     {own.cert, other.key, "server.tls_key"},
		"one for the other": {own.key, own.cert, "server.tls_certificate"},
	} {
		t.Run(what, func(t *testing.T) {
			folder := t.TempDir()
			for name, text := range map[string][]byte{"cert.pem": test.cert, "key.pem": test.key} {
				if text != nil {
					writeTo(t, filepath.Join(folder, name), text)
				}
			}
			_, stderr, status := runToEnd(t, append(pairFiles(folder), "PORT=0", "PLANTSTORE_AUTH_TOKENS="+token))
			if status != 2 || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, test.mentions) || strings.Contains(stderr, folder) {
				t.Errorf("exit status %d, %q", status, stderr)
			}
		})
	}
}
