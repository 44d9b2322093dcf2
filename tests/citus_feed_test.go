//go:build citus

package tests

import (
	"testing"

	"plantstore/database/dbtest"
)

// TestCitusHasNoFeed: all but the feed works, and the error says so.
func TestCitusHasNoFeed(t *testing.T) {
	t.Parallel()
	s := start(t, "DATABASE_URL="+dbtest.Citus(t))
	requireOK(t, s.post(t, bodyOf(1)))
	requireOK(t, s.call(t, "PUT", "/plants/1", `{"name":"x"}`))
	checkEmpty(t, s.send(t, "DELETE", "/plants/1", nil, as(token)...), 204)
	for _, query := range []string{"", "?after=0", "?wait=1s"} {
		t.Run(query, func(t *testing.T) { checkError(t, s.get(t, "/plants/changes"+query, as(token)...), 50101) })
	}
	t.Run("events", func(t *testing.T) {
		checkError(t, s.get(t, "/plants/changes", as(token, "Accept", "text/event-stream")...), 50101)
	})
}
