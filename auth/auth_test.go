package auth_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"plantstore/auth"
)

func TestAnyOf(t *testing.T) {
	down := errors.New("the database is down")
	failing := func(context.Context, string) (*auth.Identity, error) { return nil, down }
	verify := auth.AnyOf(auth.StaticTokens([]string{"first"}), auth.StaticTokens([]string{"other", "second"}))
	for _, test := range []struct {
		name, token string
		verify      auth.Verifier
		identity    string
		err         error
	}{
		{name: "a token of the first is valid", token: "first", verify: verify, identity: "static:1"},
		{name: "a token of the second is valid", token: "second", verify: verify, identity: "static:2"},
		{name: "any other token is invalid", token: "third", verify: verify, err: auth.ErrInvalidToken},
		{name: "without verifiers every token is invalid", token: "first", verify: auth.AnyOf(), err: auth.ErrInvalidToken},
		{name: "an error other than ErrInvalidToken ends it", token: "first", verify: auth.AnyOf(failing, verify), err: down},
		{name: "a verifier before that decides", token: "first", verify: auth.AnyOf(verify, failing), identity: "static:1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := test.verify(t.Context(), test.token)
			if !errors.Is(err, test.err) || (got != nil) != (test.identity != "") || got != nil && got.Name != test.identity {
				t.Errorf("got %+v, %v, want %q, %v", got, err, test.identity, test.err)
			}
		})
	}
}

func TestRedact(t *testing.T) {
	token := "pst_abcdefgh" + strings.Repeat("a2", 19) + "z"
	const jwt = "eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJhbGljZSJ9.c2lnbmF0dXJl-_"
	for _, test := range []struct{ name, text, want string }{
		{"a token is cut to its id", token, "pst_abcdefgh…"},
		{"each token in a text is cut", "/plants/" + token + "?x=" + token + ".", "/plants/pst_abcdefgh…?x=pst_abcdefgh…."},
		{"a part of a token is cut", token[:20] + "/" + token[:13], "pst_abcdefgh…/pst_abcdefgh…"},
		{"a JWT is removed", "no " + jwt + ", " + jwt[:9] + "?", "no eyJ…, eyJ…?"},
		{"an id stays", "pst_abcdefgh", "pst_abcdefgh"},
		{"another text stays", "pst_Abcdefgh" + token[12:], "pst_Abcdefgh" + token[12:]},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := auth.Redact(test.text); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func TestHasToken(t *testing.T) {
	const static, bearer = "3f8a1c5b7e9d2046", "Bearer eyXhbGciOiJFUzI1NiJ9.c2ln"
	for _, test := range []struct {
		text string
		want bool
	}{
		{"order-17", false},
		{"", false},
		{"PVNQD5DNATPZHK6QKTWAYV4XWP", false},
		{static, true},
		{"x-" + static + "-y", true},
		{static[:8], true},
		{"order-" + static[5:13], true},
		{static[:7], false},
		{"iJFUzI1N", true},
		{"pst_abcdefgh", false},
		{"pst_abcdefgha", true},
		{"eyJhbGci", true},
		{"de", false},
		{"dev", true},
		{"x-dev", true},
	} {
		t.Run(test.text, func(t *testing.T) {
			if got := auth.HasToken(test.text, static, bearer, "dev", ""); got != test.want {
				t.Errorf("got %t, want %t", got, test.want)
			}
		})
	}
}
