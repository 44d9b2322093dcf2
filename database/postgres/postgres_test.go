package postgres

import "testing"

// TestAfterIsImmutable: Citus rejects STABLE functions of a column in an UPDATE.
func TestAfterIsImmutable(t *testing.T) {
	const want = "GREATEST(CAST(v AS timestamptz), (c AT TIME ZONE 'UTC' + interval '1 microsecond') AT TIME ZONE 'UTC')"
	if got := (*Dialect)(nil).After("c", "v"); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
