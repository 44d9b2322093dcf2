// Package routes is the map of the service: the method, path, scope, limits and handler
// of every route, and the middleware that all of them share.
package routes

import (
	"fmt"
	"net/http"
	"net/http/pprof"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"plantstore/auth"
	"plantstore/controllers"
	"plantstore/database"
	"plantstore/database/limit"
	"plantstore/middleware"
	"plantstore/models"
)

// Options are the parts of the service.
type Options struct {
	middleware.ObserverOptions // NewWith sets Codes, Proxies, Silent and Work

	LogLevel     http.Handler // the admin address serves it
	DB           *database.DB // of the resources
	Tokens       *controllers.Tokens
	Health       *controllers.Health
	Failures     *controllers.Failures
	Verify       auth.Verifier
	Limits       Limits
	Bulk         middleware.BulkOptions
	MaxBodyBytes int64
	Proxies      []string            // addresses or CIDR ranges with a trusted X-Forwarded-For
	Origins      []string            // of pages that may call the API from a browser
	Hosts        []string            // names of the service, besides localhost: see middleware.OwnSite
	Development  bool                // the API rejects what OwnSite rejects, as the admin address does
	TLS          bool                // the service itself serves HTTPS
	Docs         bool                // the OpenAPI document and Swagger UI are served
	SignIn       *controllers.SignIn // on Swagger UI; or nil
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
	Query        []string     // the parameters, see controllers.Query; routes that are not public reject other parameters
	Limits       []middleware.Handler
	Handler      middleware.Handler
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

// Limits, in bytes, of the memory for the bodies of requests that have no response yet, and for
// responses that clients have not read yet.
const (
	ReceiveLimit = 64 << 20
	SendLimit    = 64 << 20
)

// Resource is a resource at /Name, with the scopes Name:read and Name:write.
type Resource struct {
	Handlers
	Own []Route // operations that only this resource has, with paths below its path; their scopes and limits are derived
}

// Handlers are the handlers of a resource: a [controllers.Resource].
type Handlers interface {
	Name() string
	Model() models.Model
	Create(*gin.Context) error
	List(*gin.Context) error
	Get(*gin.Context) error
	Put(*gin.Context) error
	Patch(*gin.Context) error
	Delete(*gin.Context) error
	PatchAll(*gin.Context) error
	DeleteAll(*gin.Context) error
	Import(*gin.Context) error
	Export(*gin.Context) error
	Changes(*controllers.Health) middleware.Handler // or nil
	Lists() controllers.Lists
	Filters() []controllers.Filter // the parameters that select rows
	Sorts() []string               // the values of the parameter sort
	Parents() []controllers.Parent // the resources that have lists of the rows
}

// Resources returns the resources. The first is the default of the command line.
func Resources(o Options) []Resource {
	plants := controllers.NewPlants(o.DB)
	return []Resource{
		{plants, []Route{
			{Method: "GET", Path: "/tags", Query: []string{"limit"}, Handler: plants.Tags},
		}},
	}
}

// Table returns every route.
func Table(o Options) []Route {
	sending := limit.NewShares(SendLimit, SendLimit/2)
	body, send := middleware.BodyLimit(o.MaxBodyBytes), middleware.SendLimit(sending)
	small := []middleware.Handler{body, middleware.ReceiveLimit(ReceiveLimit)}
	empty := []middleware.Handler{body, controllers.SkipBody}
	page := []middleware.Handler{body, controllers.SkipBody, send}
	stream := []middleware.Handler{body, controllers.SkipBody, middleware.Stream(o.Verify), send}
	download := []middleware.Handler{body, controllers.SkipBody, middleware.Bulk(o.Bulk, o.Verify)}
	edit := append(slices.Clip(small), middleware.Bulk(o.Bulk, o.Verify))
	upload := []middleware.Handler{
		middleware.BodyLimit(o.Bulk.MaxBodyBytes), middleware.Reserve(sending, controllers.MaxReport),
		middleware.Bulk(o.Bulk, o.Verify), controllers.Receive(o.Bulk.MaxBodyBytes),
	}
	routes := probes(o)
	for _, r := range Resources(o) {
		path, read, write, filters := "/"+r.Name(), models.ReadScope(r.Name()), models.WriteScope(r.Name()), []string{"after"}
		for _, f := range r.Filters() {
			if f.Operator == "=" {
				f.Name += "*"
			}
			filters = append(filters, f.Name)
		}
		filters = slices.Clip(filters) // each append then makes a copy
		routes = append(routes,
			Route{"POST", path, write, nil, small, r.Create},
			Route{"GET", path, read, append(filters, "limit", "sort", "count"), page, r.List},
			Route{"GET", path + "/:id", read, nil, empty, r.Get},
			Route{"PUT", path + "/:id", write, nil, small, r.Put},
			Route{"PATCH", path + "/:id", write, nil, small, r.Patch},
			Route{"DELETE", path + "/:id", write, nil, empty, r.Delete},
			Route{"POST", path + "/import", write, []string{"mode", "dry_run", "on_conflict", "ignore_columns"}, upload, r.Import},
			Route{"GET", path + "/export", read, append(filters, "bom", "etag"), download, r.Export})
		if edited := slices.Concat(filters[1:], []string{"dry_run", "max"}); len(edited) > 2 {
			routes = append(routes, Route{"PATCH", path, write, edited, edit, r.PatchAll}, Route{"DELETE", path, write, edited, download, r.DeleteAll})
		}
		for _, p := range r.Parents() {
			others := slices.DeleteFunc(slices.Clone(filters), func(name string) bool { return name == p.Column+"*" })
			routes = append(routes, Route{"GET", "/" + p.Name + "/:id" + path, read, append(others, "limit", "sort", "count"), page, p.List})
		}
		for _, own := range r.Own {
			own.Path, own.Scope, own.Limits = path+own.Path, write, small
			if own.Method == http.MethodGet {
				own.Scope, own.Limits = read, page
			}
			routes = append(routes, own)
		}
		if changes := r.Changes(o.Health); changes != nil {
			routes = append(routes, Route{"GET", path + "/changes", read, []string{"after", "limit", "wait", "lastEventId"}, stream, changes})
		}
	}
	routes = append(routes,
		Route{"POST", "/tokens", models.ScopeAdmin, nil, small, o.Tokens.Create},
		Route{"GET", "/tokens", models.ScopeAdmin, []string{"limit", "after"}, page, o.Tokens.List},
		Route{"DELETE", "/tokens/:id", models.ScopeAdmin, nil, empty, o.Tokens.Revoke})
	if o.Docs {
		docs := controllers.NewDocs(o.BasePath, o.SignIn)
		for _, path := range []string{"/", "/docs/:file", "/openapi.json", "/swagger", "/swagger/*file"} {
			routes = append(routes, Route{"GET", path, Public, nil, nil, docs.File})
		}
	}
	return routes
}

// probes returns the routes of the probes, which the admin address also has.
func probes(o Options) []Route {
	return []Route{
		{"GET", "/healthz", Public, nil, nil, o.Health.Live},
		{"GET", "/readyz", Public, nil, nil, o.Health.Ready},
	}
}

// New returns the handler of the API.
func New(o Options) http.Handler { return NewWith(o, Table(o)) }

// atOnce is how many profiles, and how many scrapes of the metrics, run at a time: they must leave
// processors to the API, and connections to probes.
const atOnce = 4

// Admin returns the handler of the admin address: the probes, Prometheus metrics, the level of the log
// and Go's profiles, without tokens.
func Admin(o Options) http.Handler {
	serve := func(h http.Handler) middleware.Handler {
		return func(c *gin.Context) error {
			middleware.RequestOf(c).Quiet = true
			query := c.Request.URL.Query()
			query.Del("gc") // a collection for each profile would hold up the API
			c.Request.URL.RawQuery = query.Encode()
			h.ServeHTTP(c.Writer, c.Request)
			return nil
		}
	}
	pages := http.NewServeMux()                    // without pprof.Cmdline: a flag may have the password of the database
	pages.HandleFunc("/debug/pprof/", pprof.Index) // includes the named profiles
	pages.HandleFunc("/debug/pprof/profile", pprof.Profile)
	pages.HandleFunc("/debug/pprof/trace", pprof.Trace)
	pages.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	metrics, profiles := serve(promhttp.HandlerFor(o.Metrics, promhttp.HandlerOpts{})), serve(pages)
	o.Docs, o.TLS, o.Origins, o.Metrics, o.Development = false, false, nil, prometheus.NewRegistry(), true
	handler := NewWith(o, append(probes(o),
		Route{"GET", "/log-level", Public, nil, nil, serve(o.LogLevel)},
		Route{"PUT", "/log-level", Public, nil, nil, serve(o.LogLevel)},
		Route{"GET", "/metrics", Public, nil, []middleware.Handler{middleware.AtMost(atOnce, "scrapes")}, metrics},
		Route{"GET", "/debug/pprof", Public, nil, nil, profiles}, // a redirect
		Route{"GET", "/debug/pprof/*profile", Public, nil, []middleware.Handler{middleware.AtMost(atOnce, "profiles")}, profiles}))
	bodies := limit.NewTurns(atOnce, 0)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 { // only few bodies may keep connections from probes, for a second
			deadline := time.Now()
			if r.Method == http.MethodPut && bodies.Try() { // for /log-level
				defer bodies.Free()
				deadline = deadline.Add(time.Second)
				r.Body = http.MaxBytesReader(w, r.Body, middleware.Small)
			} else {
				r.Body, r.ContentLength = http.NoBody, 0
			}
			_ = http.NewResponseController(w).SetReadDeadline(deadline)
			w.Header().Set("Connection", "close")
		}
		handler.ServeHTTP(w, r)
	})
}

// NewWith returns the handler of routes, with what all of them share. It panics if a route has no known scope.
func NewWith(o Options, routes []Route) http.Handler {
	gin.SetMode(gin.ReleaseMode)
	e := gin.New()
	// Paths match exactly: no redirects, no cleaning, and %2F separates no segments.
	e.RedirectTrailingSlash = false
	e.UseRawPath = true
	e.HandleMethodNotAllowed = true
	// Trust only the peer address and the configured proxies.
	e.ForwardedByClientIP = len(o.Proxies) > 0
	e.RemoteIPHeaders = []string{"X-Forwarded-For"}
	if err := e.SetTrustedProxies(o.Proxies); err != nil {
		panic(err) // config has checked them
	}

	observer := o.ObserverOptions
	observer.Proxies = middleware.ParseProxies(o.Proxies)
	if o.DB != nil {
		observer.Work, observer.Pages = o.DB.Limits.Work, o.DB.Limits.Pages
	}
	for _, r := range probes(o) {
		observer.Silent = append(observer.Silent, r.Path)
	}
	for _, row := range controllers.ErrorTable() {
		observer.Codes = append(observer.Codes, row.Code)
	}
	e.Use(
		middleware.Observe(observer),
		middleware.Headers(o.TLS, o.Health.Draining, o.Origins),
		o.Failures.Respond,
		middleware.DiscardBody,
		middleware.Recovery(o.Log),
	)
	if o.Development {
		e.Use(middleware.Handle(middleware.OwnSite(o.Hosts, o.Origins)))
	}
	allowed, bearer := middleware.Handle(allowedMethods(routes)), middleware.Bearer(o.Verify, o.Limits.FailuresPerMinute)
	limit := middleware.RateLimit(o.Limits.RequestsPerSecond, o.Limits.Burst)
	e.NoRoute(middleware.Handle(controllers.NoRoute(o.Docs)))
	e.NoMethod(allowed, middleware.Handle(controllers.NoMethod))
	for _, r := range routes {
		var chain gin.HandlersChain
		use := func(handlers ...middleware.Handler) {
			for _, h := range handlers {
				chain = append(chain, middleware.Handle(h))
			}
		}
		if strings.Contains(r.Path, ":") {
			chain = append(chain, allowed)
		}
		if r.Scope != Public {
			if !slices.Contains(models.AllScopes(), r.Scope) {
				panic(fmt.Sprintf("the route %s %s must have the scope Public, or one of models.AllScopes", r.Method, r.Path))
			}
			use(bearer, middleware.RequireScope(r.Scope))
			if o.Limits.RequestsPerSecond > 0 {
				use(limit)
			}
			use(controllers.Query(r.Query...))
			if r.Method == http.MethodGet {
				use(controllers.Position)
			}
		}
		use(r.Limits...)
		use(r.Handler)
		for _, method := range r.methods() {
			e.Handle(method, r.Path, chain...)
		}
	}
	return e
}

// allowedMethods rejects the methods that a path without parameters does not have but a
// path with a parameter does: DELETE /plants/import must not delete a plant with the id import.
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
		if allowed, ok := methods[c.Request.URL.EscapedPath()]; ok && !slices.Contains(allowed, c.Request.Method) {
			c.Header("Allow", strings.Join(allowed, ", "))
			return controllers.NoMethod(c)
		}
		return nil
	}
}
