//go:build citus

package feed

import (
	"testing"

	"plantstore/database/dbtest"
	"plantstore/tests/service"
)

// TestCitusHasNoFeed: all but the feed works, and the error says so.
func TestCitusHasNoFeed(t *testing.T) {
	t.Parallel()
	s := service.Start(t, "DATABASE_URL="+dbtest.Citus(t))
	s.Post(t, service.BodyOf(1)).RequireOK(t)
	s.Call(t, "PUT", "/plants/1", `{"name":"x"}`).RequireOK(t)
	s.Send(t, "DELETE", "/plants/1", nil, service.As(service.Token)...).CheckEmpty(t, 204)
	for _, query := range []string{"", "?after=0", "?wait=1s"} {
		t.Run(query, func(t *testing.T) {
			s.Get(t, "/plants/changes"+query, service.As(service.Token)...).CheckError(t, 50101)
		})
	}
	t.Run("events", func(t *testing.T) {
		s.Get(t, "/plants/changes", service.As(service.Token, "Accept", "text/event-stream")...).CheckError(t, 50101)
	})
}
