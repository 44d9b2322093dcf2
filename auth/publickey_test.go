package auth_test

import (
	"crypto"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"
	"go.uber.org/zap"

	"plantstore/auth"
)

func publicPEM(t testing.TB, key crypto.PublicKey) string {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}

func TestPublicKeys(t *testing.T) {
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	edPublic, edKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ec := ecKey(t, elliptic.P256())
	options := (&provider{}).options()
	for _, test := range []struct {
		method jwt.SigningMethod
		key    any
		public crypto.PublicKey
	}{
		{jwt.SigningMethodRS256, rsaKey, &rsaKey.PublicKey},
		{jwt.SigningMethodES256, ec, &ec.PublicKey},
		{jwt.SigningMethodEdDSA, edKey, edPublic},
	} {
		t.Run(test.method.Alg()+" is valid, and the public key is no secret", func(t *testing.T) {
			options.PublicKey = publicPEM(t, test.public)
			verify := verifierOf(t, options)
			if got, err := verify(t.Context(), sign(t, test.method, test.key, nil, claims(nil))); err != nil || got.Name != "jwt:alice" {
				t.Errorf("got %+v, %v", got, err)
			}
			confused := sign(t, jwt.SigningMethodHS256, []byte(options.PublicKey), nil, claims(nil))
			if _, err := verify(t.Context(), confused); !errors.Is(err, auth.ErrInvalidToken) {
				t.Errorf("signed with the public key as a secret: got %v, want ErrInvalidToken", err)
			}
		})
	}

	private, err := x509.MarshalPKCS8PrivateKey(ec)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct{ text, want string }{
		"no PEM":        {"MIIB", "not PEM of a public key: "},
		"a private key": {string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})), "not PEM of a public key: "},
		"no key":        {string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: []byte("x")})), "asn1: "},
		"a short key": {"-----BEGIN PUBLIC KEY-----\nMFwwDQYJKoZIhvcNAQEBBQADSwAwSAJBAKj34GkxFhD90vcNLYLInFEX6Ppy1tPf\n" +
			"9Cnzj4p4WGeKLs1Pt8QuKUpRKfFLfRYC9AIKjbJTWit+CqvjWYzvQwECAwEAAQ==\n-----END PUBLIC KEY-----\n", "an RSA key of 512 bits, less than 2048"},
	} {
		t.Run(name+" is rejected", func(t *testing.T) {
			options.PublicKey = test.text
			if _, err := auth.JWT(t.Context(), options, zap.NewNop(), zap.NewNop()); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %s", err, test.want)
			}
		})
	}
}
