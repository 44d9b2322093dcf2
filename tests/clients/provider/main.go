// Provider is an OpenID provider for tests of the sign-in on Swagger UI: the example of zitadel/oidc, with
// clients that get JWTs as access tokens. It prints its issuer and serves until it is killed. It is a
// module of its own, so that the program does not depend on the provider.
package main

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

const redirect = "http://127.0.0.1/swagger/oauth2-redirect.html" // on any port (RFC 8252, section 7.3)

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	issuer := "http://" + listener.Addr().String()
	storage.RegisterClients(
		storage.NativeClient("page", redirect),
		storage.NativeClient("reader", redirect), // may not have plants:write
		storage.NativeClient("brief", redirect),  // gets tokens that expire at once
		storage.NativeClient("elsewhere", "http://127.0.0.1/elsewhere"),
	)
	store := &jwtStorage{storage.NewStorage(storage.NewUserStore(issuer))}
	handler := exampleop.SetupServer(issuer, store, slog.New(slog.DiscardHandler), false)
	fmt.Println(issuer)
	log.Fatal((&http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}).Serve(listener))
}

// jwtStorage is the storage of the example, whose clients get JWTs with the scopes.
type jwtStorage struct{ *storage.Storage }

// CreateAuthRequest rejects unknown scopes, as Keycloak, Okta and Cognito do.
func (s *jwtStorage) CreateAuthRequest(ctx context.Context, r *oidc.AuthRequest, userID string) (op.AuthRequest, error) {
	if slices.Contains(r.Scopes, "unknown") {
		return nil, oidc.ErrInvalidScope().WithDescription("unknown is not a scope of this provider")
	}
	return s.Storage.CreateAuthRequest(ctx, r, userID)
}

// CreateAccessToken lets the tokens of the client brief expire at once.
func (s *jwtStorage) CreateAccessToken(ctx context.Context, r op.TokenRequest) (string, time.Time, error) {
	id, expires, err := s.Storage.CreateAccessToken(ctx, r)
	if slices.Contains(r.GetAudience(), "brief") {
		expires = time.Now()
	}
	return id, expires, err
}

// GetPrivateClaimsFromScopes adds the scopes to an access token (RFC 9068, section 2.2.3).
func (s *jwtStorage) GetPrivateClaimsFromScopes(_ context.Context, _, _ string, scopes []string) (map[string]any, error) {
	return map[string]any{"scope": strings.Join(scopes, " ")}, nil
}

// GetClientByClientID returns a client that gets JWTs.
func (s *jwtStorage) GetClientByClientID(ctx context.Context, id string) (op.Client, error) {
	c, err := s.Storage.GetClientByClientID(ctx, id)
	return client{c}, err
}

type client struct{ op.Client }

func (client) AccessTokenType() op.AccessTokenType { return op.AccessTokenTypeJWT }

// IsScopeAllowed leaves out plants:write if the client may not have it, as Auth0 does.
func (c client) IsScopeAllowed(scope string) bool {
	return c.GetID() != "reader" || scope != "plants:write"
}
