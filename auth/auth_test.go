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
	for _, test := range []struct{ name, text, want string }{
		{"a token is cut to its id", token, "pst_abcdefgh…"},
		{"each token in a text is cut", "/plants/" + token + "?x=" + token + ".", "/plants/pst_abcdefgh…?x=pst_abcdefgh…."},
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
