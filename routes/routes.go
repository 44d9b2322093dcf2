// Package routes is the map of the service: the method, path, scope, limits and handler
// of every route, and the middleware that all of them share.
package routes

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"
	"go.uber.org/zap"

	"plantstore/auth"
	"plantstore/controllers"
	"plantstore/middleware"
	"plantstore/models"
)

// Options are the parts of the service.
type Options struct {
	Log          *zap.Logger
	Plants       *controllers.Plants
	Tokens       *controllers.Tokens
	Health       *controllers.Health
	Verify       auth.Verifier
	Limits       Limits
	Bulk         middleware.BulkOptions
	MaxBodyBytes int64
	Proxies      []string // addresses or CIDR ranges with a trusted X-Forwarded-For
	Origins      []string // of pages that may call the API from a browser
	TLS          bool     // the service itself serves HTTPS
	Docs         bool     // the OpenAPI document and Swagger UI are served
}

// Limits is how much a client may send; 0 means no limit.
type Limits struct {
	RequestsPerSecond int // on average, for each token and each address
	Burst             int // requests at once, at least 1
	FailuresPerMinute int // invalid tokens from an address
}

// Route is a row of the table of routes.
type Route struct {
	Method, Path string
	Scope        models.Scope // that the bearer token must have
	limits       []middleware.Handler
	handler      middleware.Handler
}

// methods returns the route's methods: GET includes HEAD (RFC 9110, section 9.1).
func (r Route) methods() []string {
	if r.Method == http.MethodGet {
		return []string{http.MethodGet, http.MethodHead}
	}
	return []string{r.Method}
}

// Public is the scope of routes that need no token.
const Public models.Scope = "public"

// Table returns every route.
func Table(o Options) []Route {
	small := []middleware.Handler{middleware.BodyLimit(o.MaxBodyBytes)}
	bulk := []middleware.Handler{middleware.BodyLimit(o.Bulk.MaxBodyBytes), middleware.Bulk(o.Bulk, o.Verify)}
	routes := []Route{
		{"GET", "/healthz", Public, nil, o.Health.Live},
		{"GET", "/readyz", Public, nil, o.Health.Ready},

		{"POST", "/plants", models.ScopePlantsWrite, small, o.Plants.Create},
		{"GET", "/plants", models.ScopePlantsRead, small, o.Plants.List},
		{"GET", "/plants/:id", models.ScopePlantsRead, small, o.Plants.Get},
		{"PUT", "/plants/:id", models.ScopePlantsWrite, small, o.Plants.Put},
		{"PATCH", "/plants/:id", models.ScopePlantsWrite, small, o.Plants.Patch},
		{"DELETE", "/plants/:id", models.ScopePlantsWrite, small, o.Plants.Delete},
		{"POST", "/plants/import", models.ScopePlantsWrite, bulk, o.Plants.Import},
		{"GET", "/plants/export", models.ScopePlantsRead, bulk, o.Plants.Export},

		{"POST", "/tokens", models.ScopeAdmin, small, o.Tokens.Create},
		{"GET", "/tokens", models.ScopeAdmin, small, o.Tokens.List},
		{"DELETE", "/tokens/:id", models.ScopeAdmin, small, o.Tokens.Revoke},
	}
	if o.Docs {
		docs := controllers.NewDocs()
		routes = append(routes,
			Route{"GET", "/", Public, nil, docs.Home},
			Route{"GET", "/openapi.json", Public, nil, docs.OpenAPI},
			Route{"GET", "/swagger/*file", Public, nil, docs.UI})
	}
	return routes
}

// New returns the handler of the whole service. It panics if a route has no known scope.
func New(o Options) http.Handler {
	routes := Table(o)
	gin.SetMode(gin.ReleaseMode)
	e := gin.New()
	// Paths match exactly: no redirects, no cleaning.
	e.RedirectTrailingSlash = false
	e.RedirectFixedPath = false
	e.HandleMethodNotAllowed = true
	// Trust only the peer address and the configured proxies.
	e.ForwardedByClientIP = len(o.Proxies) > 0
	e.RemoteIPHeaders = []string{"X-Forwarded-For"}
	if err := e.SetTrustedProxies(o.Proxies); err != nil {
		panic(err) // config has checked them
	}

	e.Use(
		middleware.RequestID(),
		middleware.AccessLog(o.Log),
		middleware.Headers(o.TLS),
		middleware.CORS(o.Origins),
		controllers.Errors(o.Log),
		middleware.Recovery(o.Log),
		middleware.DiscardBody(),
		middleware.Handle(allowedMethods(routes)),
	)
	e.NoRoute(middleware.Handle(controllers.NoRoute(o.Docs)))
	e.NoMethod(middleware.Handle(controllers.NoMethod))
	add(e, routes, authentication(o))
	return e
}

// authentication returns the handlers of every route that is not public, by its scope.
func authentication(o Options) func(models.Scope) []middleware.Handler {
	bearer := middleware.Bearer(o.Verify, o.Limits.FailuresPerMinute)
	var limits []middleware.Handler
	if perSecond := o.Limits.RequestsPerSecond; perSecond > 0 {
		limits = append(limits, middleware.RateLimit(perSecond, o.Limits.Burst))
	}
	return func(scope models.Scope) []middleware.Handler {
		return append([]middleware.Handler{bearer, middleware.RequireScope(scope)}, limits...)
	}
}

// add adds routes to e. The order of handlers is: authentication, scope, rate limits,
// content.
func add(e *gin.Engine, routes []Route, authenticate func(models.Scope) []middleware.Handler) {
	for _, r := range routes {
		var handlers []middleware.Handler
		if r.Scope != Public {
			if !slices.Contains(models.AllScopes(), r.Scope) {
				panic(fmt.Sprintf("the route %s %s must have the scope Public, or one of models.AllScopes", r.Method, r.Path))
			}
			handlers = authenticate(r.Scope)
		}
		var chain gin.HandlersChain
		for _, h := range slices.Concat(handlers, r.limits, []middleware.Handler{r.handler}) {
			chain = append(chain, middleware.Handle(h))
		}
		for _, method := range r.methods() {
			e.Handle(method, r.Path, chain...)
		}
	}
}

// allowedMethods rejects the methods that a path without parameters does not have but a
// path with one does: DELETE /plants/import must not delete a plant with the id import.
func allowedMethods(routes []Route) middleware.Handler {
	methods := make(map[string][]string)
	for _, r := range routes {
		if !strings.ContainsAny(r.Path, ":*") {
			methods[r.Path] = append(methods[r.Path], r.methods()...)
		}
	}
	for _, allowed := range methods {
		slices.Sort(allowed)
	}
	return func(c *gin.Context) error {
		if allowed, ok := methods[c.Request.URL.Path]; ok && !slices.Contains(allowed, c.Request.Method) {
			c.Header("Allow", strings.Join(allowed, ", "))
			return controllers.NoMethod(c)
		}
		return nil
	}
}
