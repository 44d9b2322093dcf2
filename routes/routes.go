// Package routes is the map of the service: every path, with what happens to a
// request on its way.
package routes

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"
	"go.uber.org/zap"

	"plantstore/controllers"
	"plantstore/middleware"
)

// Options are the parts that the routes lead to.
type Options struct {
	Log    *zap.Logger
	Plants *controllers.Plants
	Health *controllers.Health
	// Verify accepts or refuses a bearer token: see [middleware.Bearer].
	Verify       func(ctx context.Context, token string) error
	MaxBodyBytes int64
	// Bulk limits imports and exports.
	Bulk Bulk
}

// Bulk limits requests that move many plants.
type Bulk struct {
	MaxBodyBytes int64
	Timeout      time.Duration // for the whole of a request
}

// New returns the handler of the whole service.
func New(o Options) http.Handler {
	gin.SetMode(gin.ReleaseMode)
	e := gin.New()
	// A path is what it is: nothing is redirected, cleaned, or taken for another,
	// and nobody's word but the socket's is taken for who the client is.
	e.RedirectTrailingSlash = false
	e.RedirectFixedPath = false
	e.HandleMethodNotAllowed = true
	e.ForwardedByClientIP = false

	e.Use(
		middleware.RequestID(),
		middleware.AccessLog(o.Log),
		middleware.Headers(),
		controllers.Errors(o.Log),
		middleware.Recovery(o.Log),
		noOtherMethod(map[string][]string{
			"/plants/import": {http.MethodPost},
			"/plants/export": {http.MethodGet, http.MethodHead},
		}),
	)
	e.NoRoute(controllers.NoRoute)
	e.NoMethod(controllers.NoMethod)

	// Open to all.
	docs := controllers.NewDocs()
	get(e, "/", docs.Home)
	get(e, "/openapi.json", docs.OpenAPI)
	get(e, "/swagger/*file", docs.UI)
	get(e, "/healthz", o.Health.Live)
	get(e, "/readyz", o.Health.Ready)

	// For bearers of a token.
	api := e.Group("/", middleware.Bearer(o.Verify), middleware.BodyLimit(o.MaxBodyBytes))
	api.POST("/plants", o.Plants.Create)
	get(api, "/plants", o.Plants.List)
	get(api, "/plants/:id", o.Plants.Get)
	api.PUT("/plants/:id", o.Plants.Put)
	api.PATCH("/plants/:id", o.Plants.Patch)
	api.DELETE("/plants/:id", o.Plants.Delete)

	bulk := e.Group("/", middleware.Bearer(o.Verify), middleware.Deadline(o.Bulk.Timeout), middleware.BodyLimit(o.Bulk.MaxBodyBytes))
	bulk.POST("/plants/import", o.Plants.Import)
	get(bulk, "/plants/export", o.Plants.Export)

	return e
}

// noOtherMethod refuses all but the methods of paths that /plants/:id matches too,
// and whose other methods would be taken for requests for a plant.
func noOtherMethod(paths map[string][]string) gin.HandlerFunc {
	return func(c *gin.Context) {
		if methods, ok := paths[c.Request.URL.Path]; ok && !slices.Contains(methods, c.Request.Method) {
			c.Header("Allow", strings.Join(methods, ", "))
			controllers.NoMethod(c)
		}
	}
}

// get routes GET, and HEAD with it, as RFC 9110, section 9.1, asks.
func get(r gin.IRoutes, path string, handler gin.HandlerFunc) {
	r.GET(path, handler)
	r.HEAD(path, handler)
}
