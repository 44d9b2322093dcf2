package api

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"plantstore/database/dbtest"
	"plantstore/tests/service"
)

// use is one request with a token.
type use struct {
	began, ended time.Time
	response     service.Response
	err          error
}

// useUntil sends requests with a token, one after another, until ctx ends.
func useUntil(ctx context.Context, s *service.Service, token string) (uses []use) {
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	for ctx.Err() == nil {
		u := use{began: time.Now()}
		u.response, u.err = s.TryOn(transport, "GET", "/plants?limit=1", nil, service.As(token)...)
		u.ended = time.Now()
		uses = append(uses, u)
	}
	return uses
}

// TestTokensEndOnEveryReplica uses tokens on two services that share a database while the
// tokens are revoked or expire.
func TestTokensEndOnEveryReplica(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		// Rejected tokens must not reach the limit.
		settings := []string{"DATABASE_URL=" + url, "PLANTSTORE_LIMITS_FAILURES_PER_MINUTE=0"}
		replicas := []*service.Service{service.Start(t, settings...), service.Start(t, settings...)}
		lasting := service.Issue(t, url)
		for _, test := range []struct {
			name string
			args []string // of token create
			// end ends the token and returns the time from which it must be rejected.
			end func(t *testing.T, issued string) time.Time
		}{
			{"revoked by the command", nil, func(t *testing.T, issued string) time.Time {
				service.CheckCLI(t, []string{"DATABASE_URL=" + url}, []string{"token", "revoke", service.PrefixOf(issued)}, 0, "revoked "+service.PrefixOf(issued)+" in "+service.NameOfDatabase(url)+"\n", "revoked a token")
				return time.Now().Add(service.RevocationTime)
			}},
			{"revoked by DELETE", nil, func(t *testing.T, issued string) time.Time {
				replicas[0].Send(t, "DELETE", "/tokens/"+service.PrefixOf(issued), nil, service.As(service.Token)...).CheckEmpty(t, 204)
				return time.Now().Add(service.RevocationTime)
			}},
			{"expired", []string{"--expires", "4s"}, func(t *testing.T, issued string) time.Time {
				return *service.IssuedToken(t, replicas[1], issued).ExpiresAt
			}},
		} {
			t.Run(test.name, func(t *testing.T) {
				t.Parallel()
				issued := service.Issue(t, url, test.args...)
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				uses := make([][]use, len(replicas))
				var group sync.WaitGroup
				for i, s := range replicas {
					// Each replica has the token in its cache from here on.
					s.Get(t, "/plants", service.As(issued)...).RequireOK(t)
					group.Go(func() { uses[i] = useUntil(ctx, s, issued) })
				}
				begin := time.Now()
				last := test.end(t, issued)
				revoked := time.Now()
				time.AfterFunc(time.Until(last)+time.Second, stop)
				group.Wait()
				for i := range uses {
					t.Run(fmt.Sprintf("replica %d", i+1), func(t *testing.T) { checkEnd(t, uses[i], begin, revoked, last) })
				}
				for _, s := range replicas {
					s.Get(t, "/plants", service.As(lasting)...).CheckStatus(t, 200)
				}
			})
		}
	})
}

// checkEnd checks that a token was accepted at begin and then only rejected, and that no
// request after last was accepted.
func checkEnd(t *testing.T, uses []use, begin, revoked, last time.Time) {
	t.Helper()
	accepted, rejected := 0, 0
	var lastAccepted time.Time
	for _, u := range uses {
		switch {
		case u.err != nil:
			t.Fatal(u.err)
		case u.response.Status == 200:
			accepted++
			lastAccepted = u.ended
			if rejected > 0 {
				t.Error("accepted a token after it was rejected")
			}
			if u.began.After(last) {
				t.Errorf("accepted %v too late", u.began.Sub(last))
			}
		default:
			if rejected++; rejected == 1 || u.response.Code() != 40102 {
				u.response.CheckError(t, 40102)
			}
		}
	}
	if accepted == 0 || rejected == 0 || lastAccepted.Before(begin) {
		t.Errorf("got %d accepted, %d rejected, the last accepted %v after the start", accepted, rejected, lastAccepted.Sub(begin))
	}
	t.Logf("%d requests accepted, the last %v after the end, %v before the deadline; %d rejected",
		accepted, lastAccepted.Sub(revoked).Round(time.Millisecond), last.Sub(lastAccepted).Round(time.Millisecond), rejected)
}
