package auth_test

import (
	"context"
	"strings"
	"testing"

	"plantstore/auth"
)

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
