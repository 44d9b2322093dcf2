package service

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Pair is a certificate for localhost and 127.0.0.1 with its key, in PEM.
type Pair struct {
	Cert, Key []byte
	Leaf      *x509.Certificate
}

// NewPair returns a self-signed pair.
func NewPair(t *testing.T) Pair {
	t.Helper()
	return NewPairUntil(t, time.Now().Add(time.Hour))
}

// NewPairUntil returns a self-signed pair that expires.
func NewPairUntil(t *testing.T, expires time.Time) Pair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Must(t, err)
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	Must(t, err)
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "localhost"},
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: expires.Add(-2 * time.Hour), NotAfter: expires,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	Must(t, err)
	leaf, err := x509.ParseCertificate(der)
	Must(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	Must(t, err)
	return Pair{
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}),
		leaf,
	}
}

// Trust returns the settings of a client that trusts p.
func (p Pair) Trust() *tls.Config {
	pool := x509.NewCertPool()
	pool.AddCert(p.Leaf)
	return &tls.Config{RootCAs: pool}
}

// Over returns a transport that trusts p and speaks HTTP/2 or HTTP/1.1.
func (p Pair) Over(t *testing.T, http2 bool) *http.Transport {
	t.Helper()
	protocols := new(http.Protocols)
	protocols.SetHTTP2(http2)
	protocols.SetHTTP1(!http2)
	transport := &http.Transport{TLSClientConfig: p.Trust(), Protocols: protocols}
	t.Cleanup(transport.CloseIdleConnections)
	return transport
}

// In writes p to cert.pem and key.pem in folder.
func (p Pair) In(t *testing.T, folder string) {
	t.Helper()
	WriteTo(t, filepath.Join(folder, "key.pem"), p.Key)
	WriteTo(t, filepath.Join(folder, "cert.pem"), p.Cert)
}

// WriteTo writes text to the file at path.
func WriteTo(t *testing.T, path string, text []byte) {
	t.Helper()
	Must(t, os.WriteFile(path, text, 0o600))
}

// PairFiles returns the settings that name the pair in folder.
func PairFiles(folder string) []string {
	return []string{
		"PLANTSTORE_SERVER_TLS_CERTIFICATE=" + filepath.Join(folder, "cert.pem"),
		"PLANTSTORE_SERVER_TLS_KEY=" + filepath.Join(folder, "key.pem"),
	}
}

// StartTLS starts the service with the pair in folder.
func StartTLS(t *testing.T, folder string, settings ...string) *Service {
	t.Helper()
	s := Start(t, append(PairFiles(folder), settings...)...)
	s.URL = "https" + strings.TrimPrefix(s.URL, "http")
	return s
}
