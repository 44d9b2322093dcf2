package models

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

func isToken(secret string) bool {
	_, ok := HashToken(secret)
	return ok
}

func TestNewSecret(t *testing.T) {
	form := regexp.MustCompile(`^pst_[a-z2-7]{47}$`)
	seen := make(map[string]bool)
	first := newSecret()
	varies := make([]bool, len(first))
	for range 1000 {
		secret := newSecret()
		for i := range secret {
			varies[i] = varies[i] || secret[i] != first[i]
		}
		id := secret[:TokenIDLength]
		if !form.MatchString(secret) || !isToken(secret) || !TokenID.MatchString(id) || TokenID.MatchString(secret) || SecretPart.FindString("X"+secret+"Y") != secret {
			t.Fatalf("%q does not have the form of a token", secret)
		}
		if seen[id] {
			t.Fatalf("two tokens begin with %s", id)
		}
		seen[id] = true
	}
	if i := slices.Index(varies[len(tokenPrefix):], false); i >= 0 {
		t.Errorf("character %d of all tokens is the same", len(tokenPrefix)+i)
	}
}

// TestMistypedTokens changes each character of a token, and swaps each with the next.
func TestMistypedTokens(t *testing.T) {
	secret := newSecret()
	var mistyped []string
	for i := range secret {
		for _, c := range "aZ2-." {
			mistyped = append(mistyped, secret[:i]+string(c)+secret[i+1:])
		}
		if i > 0 {
			mistyped = append(mistyped, secret[:i-1]+secret[i:i+1]+secret[i-1:i]+secret[i+1:])
		}
	}
	mistyped = append(mistyped, "", "pst_", secret[1:], secret[:len(secret)-1], secret+"a", " "+secret, strings.ToUpper(secret))
	for _, text := range mistyped {
		if text != secret && isToken(text) {
			t.Errorf("%q passes as %q", text, secret)
		}
	}
}
