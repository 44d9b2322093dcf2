package tests

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"plantstore/database/dbtest"
)

// revocationTime is how long a token may be good after it was revoked.
const revocationTime = 5 * time.Second

// use is one request with a token, and what came of it.
type use struct {
	began, ended time.Time
	response     response
	err          error
}

// useUntil sends requests with a token, each after the other, until ctx ends.
func (s *service) useUntil(ctx context.Context, token string) (uses []use) {
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	for ctx.Err() == nil {
		u := use{began: time.Now()}
		u.response, u.err = s.tryOn(transport, "GET", "/plants?limit=1", nil, as(token)...)
		u.ended = time.Now()
		uses = append(uses, u)
	}
	return uses
}

// TestTokensEndOnEveryReplica uses tokens all the time, on two services that share
// a database, while they end.
func TestTokensEndOnEveryReplica(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		// Who goes on with a token that has ended is not to be limited here.
		settings := []string{"DATABASE_URL=" + url, "PLANTSTORE_LIMITS_FAILURES_PER_MINUTE=0"}
		replicas := []*service{start(t, settings...), start(t, settings...)}
		lasting := issue(t, url)
		for _, test := range []struct {
			name string
			args []string // of token create
			// end ends the token, and returns from when on it must not be accepted.
			end func(t *testing.T, issued string) time.Time
		}{
			{"revoked by the command", nil, func(t *testing.T, issued string) time.Time {
				checkCLI(t, []string{"DATABASE_URL=" + url}, []string{"token", "revoke", prefixOf(issued)}, 0, "revoked "+prefixOf(issued)+"\n")
				return time.Now().Add(revocationTime)
			}},
			{"revoked by DELETE", nil, func(t *testing.T, issued string) time.Time {
				checkEmpty(t, replicas[0].send(t, "DELETE", "/tokens/"+prefixOf(issued), nil, as(token)...), 204)
				return time.Now().Add(revocationTime)
			}},
			{"expired", []string{"--expires", "4s"}, func(t *testing.T, issued string) time.Time {
				return *issuedToken(t, replicas[1], issued).ExpiresAt
			}},
		} {
			t.Run(test.name, func(t *testing.T) {
				t.Parallel()
				issued := issue(t, url, test.args...)
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				uses := make([][]use, len(replicas))
				var group sync.WaitGroup
				for i, s := range replicas {
					// Each replica knows the token from here on.
					requireStatus(t, s.get(t, "/plants", as(issued)...), 200)
					group.Go(func() { uses[i] = s.useUntil(ctx, issued) })
				}
				begin := time.Now()
				last := test.end(t, issued)
				revoked := time.Now()
				time.AfterFunc(time.Until(last)+time.Second, stop)
				group.Wait()
				for i := range uses {
					checkEnd(t, fmt.Sprintf("replica %d", i+1), uses[i], begin, revoked, last)
				}
				for _, s := range replicas {
					checkStatus(t, s.get(t, "/plants", as(lasting)...), 200)
				}
			})
		}
	})
}

// checkEnd checks that a token was accepted at begin, and then refused for good: no
// request that began after last may have been accepted. It logs how long it took from revoked on.
func checkEnd(t *testing.T, what string, uses []use, begin, revoked, last time.Time) {
	t.Helper()
	accepted, refused := 0, 0
	var lastAccepted time.Time
	for _, u := range uses {
		switch {
		case u.err != nil:
			t.Fatalf("%s: %v", what, u.err)
		case u.response.status == 200:
			accepted++
			lastAccepted = u.ended
			if refused > 0 {
				t.Errorf("%s: accepted after it was refused", what)
			}
			if u.began.After(last) {
				t.Errorf("%s: accepted %v too late", what, u.began.Sub(last))
			}
		default:
			if refused++; refused == 1 || u.response.code() != 40102 {
				checkError(t, u.response, 40102)
			}
		}
	}
	if accepted == 0 || refused == 0 || lastAccepted.Before(begin) {
		t.Errorf("%s: %d accepted, %d refused, the last accepted %v after the beginning", what, accepted, refused, lastAccepted.Sub(begin))
	}
	t.Logf("%s: %d requests accepted, the last answered %v after the end was told, %v before it must take effect; %d refused",
		what, accepted, lastAccepted.Sub(revoked).Round(time.Millisecond), last.Sub(lastAccepted).Round(time.Millisecond), refused)
}
