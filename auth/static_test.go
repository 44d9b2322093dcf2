package auth_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"plantstore/auth"
	"plantstore/models"
)

func TestStaticTokens(t *testing.T) {
	verify := auth.StaticTokens([]string{"first", "second"})
	for token, want := range map[string]string{"first": "static:1", "second": "static:2"} {
		t.Run(token+" is "+want, func(t *testing.T) {
			got, err := verify(t.Context(), token)
			if err != nil || got.Name != want || !got.Scopes.Allow(models.ScopeAdmin) {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
	for name, token := range map[string]string{
		"nothing": "", "a part": "firs", "an extension": "firstx", "another case": "First", "two tokens": "firstsecond",
	} {
		t.Run(name+" is invalid", func(t *testing.T) {
			if got, err := verify(t.Context(), token); got != nil || !errors.Is(err, auth.ErrInvalidToken) {
				t.Errorf("got %+v, %v, want ErrInvalidToken", got, err)
			}
		})
	}
	t.Run("an empty token is invalid if there are no tokens", func(t *testing.T) {
		if got, err := auth.StaticTokens(nil)(t.Context(), ""); got != nil || !errors.Is(err, auth.ErrInvalidToken) {
			t.Errorf("got %+v, %v, want ErrInvalidToken", got, err)
		}
	})
}

func BenchmarkStaticToken(b *testing.B) {
	verify := auth.StaticTokens([]string{strings.Repeat("a", 64), strings.Repeat("b", 64), strings.Repeat("c", 64)})
	token := strings.Repeat("c", 64)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := verify(context.Background(), token); err != nil {
			b.Fatal(err)
		}
	}
}
