package models

import (
	"regexp"
	"strings"
	"testing"
)

func TestNewSecret(t *testing.T) {
	form := regexp.MustCompile(`^pst_[a-z2-7]{47}$`)
	seen := make(map[string]bool)
	for range 1000 {
		secret := newSecret()
		if !form.MatchString(secret) || !isWellFormed(secret) || !IsTokenID(secret[:tokenIDLength]) || IsTokenID(secret) {
			t.Fatalf("%q has not the form of a token", secret)
		}
		if seen[secret[:tokenIDLength]] {
			t.Fatalf("%q begins as another", secret)
		}
		seen[secret[:tokenIDLength]] = true
	}
}

// TestMistyped changes each character of a token, and swaps each with the next.
func TestMistyped(t *testing.T) {
	secret := newSecret()
	for i := range secret {
		for _, c := range []byte("aZ2-.") {
			mistyped := []byte(secret)
			if mistyped[i] = c; string(mistyped) != secret && isWellFormed(string(mistyped)) {
				t.Errorf("%q passes for %q", mistyped, secret)
			}
		}
		if i > 0 && secret[i] != secret[i-1] {
			swapped := []byte(secret)
			swapped[i], swapped[i-1] = swapped[i-1], swapped[i]
			if isWellFormed(string(swapped)) {
				t.Errorf("%q passes for %q", swapped, secret)
			}
		}
	}
	for _, other := range []string{"", "pst_", secret[1:], secret[:len(secret)-1], secret + "a", " " + secret, strings.ToUpper(secret)} {
		if isWellFormed(other) {
			t.Errorf("%q passes", other)
		}
	}
}
