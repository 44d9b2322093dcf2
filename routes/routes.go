// Package routes is the map of the service: every path, with what happens to a
// request on its way.
package routes

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"
	"go.uber.org/zap"

	"plantstore/controllers"
	"plantstore/middleware"
	"plantstore/models"
)

// Options are the parts that the routes lead to.
type Options struct {
	Log    *zap.Logger
	Plants *controllers.Plants
	Tokens *controllers.Tokens
	Health *controllers.Health
	// Verify tells whom a bearer token stands for.
	Verify       middleware.Verifier
	Limits       Limits
	MaxBodyBytes int64
	// Proxies are the addresses, and ranges in CIDR notation, of those who are
	// believed when they say who the client is.
	Proxies []string
	// TLS says that the service itself speaks HTTPS.
	TLS bool
	// Origins are those of pages that may call the API from a browser.
	Origins []string
	// Docs says that the OpenAPI document and Swagger UI are served.
	Docs bool
	// Bulk limits imports and exports.
	Bulk Bulk
}

// Limits says how much a client may send; 0 is any number.
type Limits struct {
	// RequestsPerSecond is for each token and for each address; Burst of them, at
	// least 1, may come at once.
	RequestsPerSecond, Burst int
	// FailuresPerMinute is how many wrong tokens an address may send.
	FailuresPerMinute int
}

// Bulk limits requests that move many plants.
type Bulk struct {
	MaxBodyBytes int64
	Timeout      time.Duration // for the whole of a request
}

// route is a line of the map.
type route struct {
	method, path string
	scope        models.Scope      // that the bearer token must have
	bounds       gin.HandlersChain // of the request's size and time
	handler      gin.HandlerFunc
}

// methods returns the route's methods: one for GET is one for HEAD, too, as RFC
// 9110, section 9.1, asks.
func (r route) methods() []string {
	if r.method == http.MethodGet {
		return []string{http.MethodGet, http.MethodHead}
	}
	return []string{r.method}
}

// public is the scope of routes that need no token.
const public models.Scope = "public"

// table is the map.
func table(o Options) []route {
	small := gin.HandlersChain{middleware.BodyLimit(o.MaxBodyBytes)}
	bulk := gin.HandlersChain{middleware.Deadline(o.Bulk.Timeout), middleware.BodyLimit(o.Bulk.MaxBodyBytes)}
	routes := []route{
		{"GET", "/healthz", public, nil, o.Health.Live},
		{"GET", "/readyz", public, nil, o.Health.Ready},

		{"POST", "/plants", models.ScopeWrite, small, o.Plants.Create},
		{"GET", "/plants", models.ScopeRead, small, o.Plants.List},
		{"GET", "/plants/:id", models.ScopeRead, small, o.Plants.Get},
		{"PUT", "/plants/:id", models.ScopeWrite, small, o.Plants.Put},
		{"PATCH", "/plants/:id", models.ScopeWrite, small, o.Plants.Patch},
		{"DELETE", "/plants/:id", models.ScopeWrite, small, o.Plants.Delete},
		{"POST", "/plants/import", models.ScopeWrite, bulk, o.Plants.Import},
		{"GET", "/plants/export", models.ScopeRead, bulk, o.Plants.Export},

		{"POST", "/tokens", models.ScopeAdmin, small, o.Tokens.Create},
		{"GET", "/tokens", models.ScopeAdmin, small, o.Tokens.List},
		{"DELETE", "/tokens/:id", models.ScopeAdmin, small, o.Tokens.Revoke},
	}
	if o.Docs {
		docs := controllers.NewDocs()
		routes = append(routes,
			route{"GET", "/", public, nil, docs.Home},
			route{"GET", "/openapi.json", public, nil, docs.OpenAPI},
			route{"GET", "/swagger/*file", public, nil, docs.UI})
	}
	return routes
}

// New returns the handler of the whole service. It panics where a route says
// nothing of its scope.
func New(o Options) http.Handler {
	routes := table(o)
	gin.SetMode(gin.ReleaseMode)
	e := gin.New()
	// A path is what it is: nothing is redirected, cleaned, or taken for another.
	e.RedirectTrailingSlash = false
	e.RedirectFixedPath = false
	e.HandleMethodNotAllowed = true
	// Nobody's word but the socket's is taken for who the client is, and that of the
	// proxies that the operator names.
	e.ForwardedByClientIP = len(o.Proxies) > 0
	e.RemoteIPHeaders = []string{"X-Forwarded-For"}
	if err := e.SetTrustedProxies(o.Proxies); err != nil {
		panic(err) // not after config has checked them
	}

	e.Use(
		middleware.RequestID(),
		middleware.AccessLog(o.Log),
		middleware.Headers(o.TLS),
		middleware.CORS(o.Origins),
		controllers.Errors(o.Log),
		middleware.Recovery(o.Log),
		middleware.DiscardBody(),
		noOtherMethod(routes),
	)
	e.NoRoute(controllers.NoRoute(o.Docs))
	e.NoMethod(controllers.NoMethod)
	add(e, routes, authentication(o))
	return e
}

// authentication returns what every request passes that is not public.
func authentication(o Options) func(models.Scope) gin.HandlersChain {
	bearer := middleware.Bearer(o.Verify, o.Limits.FailuresPerMinute)
	var limits gin.HandlersChain
	if o.Limits.RequestsPerSecond > 0 {
		limits = gin.HandlersChain{middleware.RateLimit(o.Limits.RequestsPerSecond, o.Limits.Burst)}
	}
	return func(scope models.Scope) gin.HandlersChain {
		return append(gin.HandlersChain{bearer, middleware.RequireScope(scope)}, limits...)
	}
}

// add gives e the routes, whose order of handlers is: authentication, scope, limits,
// content.
func add(e *gin.Engine, routes []route, authenticate func(models.Scope) gin.HandlersChain) {
	for _, r := range routes {
		var chain gin.HandlersChain
		switch r.scope {
		case "":
			panic(fmt.Sprintf("the route %s %s has no scope: public, or one of those in models/scope.go", r.method, r.path))
		case public:
		default:
			chain = authenticate(r.scope)
		}
		chain = slices.Concat(chain, r.bounds, gin.HandlersChain{r.handler})
		for _, method := range r.methods() {
			e.Handle(method, r.path, chain...)
		}
	}
}

// noOtherMethod refuses the methods that a path without parameters does not have,
// where a path with one would take them: DELETE /plants/import is no request for the
// plant import.
func noOtherMethod(routes []route) gin.HandlerFunc {
	methods := make(map[string][]string)
	for _, r := range routes {
		if !strings.ContainsAny(r.path, ":*") {
			methods[r.path] = append(methods[r.path], r.methods()...)
		}
	}
	for _, has := range methods {
		slices.Sort(has)
	}
	return func(c *gin.Context) {
		if has, ok := methods[c.Request.URL.Path]; ok && !slices.Contains(has, c.Request.Method) {
			c.Header("Allow", strings.Join(has, ", "))
			controllers.NoMethod(c)
		}
	}
}
