package cmd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"plantstore/auth"
	"plantstore/config"
	"plantstore/controllers"
	"plantstore/middleware"
	"plantstore/models"
	"plantstore/routes"
)

// serve runs the service until the context of cmd is done, and then shuts it down
// gracefully.
func (s *settings) serve(cmd *cobra.Command, _ []string) (err error) {
	ctx := cmd.Context()
	cfg, err := s.load(usesDatabase)
	if err != nil {
		return err
	}
	// Go collects garbage when the heap has doubled: often, if only a few MB are live. The ballast counts as live, but the
	// process does not grow, as nothing is written to it. With 256 connections, the process has 74 MB, and 56 MB without
	// a ballast. A GOGC of 200 is as fast, but idle connections with TLS then take a third more memory.
	if os.Getenv("GOGC") == "" {
		ballast := make([]byte, 16<<20)
		defer runtime.KeepAlive(ballast)
	}
	log, level := newLogger(cfg)
	defer func() { _ = log.Sync() }()
	for _, warning := range s.warnings {
		log.Warn(warning)
	}
	sampled := sample(log)
	// A closed terminal, a request to reload, or a log that nobody reads any more must not end the service.
	signal.Ignore(syscall.SIGHUP, syscall.SIGPIPE)
	tracer, flushSpans, err := newTracer(ctx, sampled)
	if err != nil {
		return err
	}
	defer flushSpans()
	encryption, err := newTLS(cfg, sampled)
	if err != nil {
		return err
	}
	serving, stop := context.WithCancel(context.WithoutCancel(ctx)) // until the last response, which is after ctx ends
	defer stop()
	verifyJWT, err := newJWTVerifier(serving, cfg, log, sampled)
	if err != nil {
		return err
	}
	if err := checkAddresses(cfg); err != nil { // before the database is migrated
		return err
	}
	db, err := openDatabase(ctx, cfg, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	before, _ := db.Schema.Migrations(ctx) // Prepare reports an error
	if err := db.Schema.Prepare(ctx); err != nil {
		return databaseError(err)
	}
	if len(before) > 0 && before[0].AppliedAt.IsZero() && cfg.Env == config.Production {
		log.Warn("created a new, empty database at " + db.Name() + ": if it should have data, check database.url")
	}
	if err := db.UseStandbys(); err != nil {
		return fmt.Errorf("%s: %w", config.SettingOf("database.replica_urls"), err)
	}

	static, devToken := cfg.Auth.Tokens, ""
	if len(static) == 0 && cfg.Env == config.Development {
		if devToken, err = ensureDevToken(); err != nil {
			return fmt.Errorf("development token: %w", err)
		}
		static = []string{devToken}
	}
	tokens := models.NewTokenStore(db)
	issued, err := auth.NewIssuedTokens(ctx, tokens, log)
	if err != nil {
		return err
	}
	defer func() {
		if err := issued.Close(); err != nil {
			log.Warn("cannot store when some tokens were last used", zap.Error(err))
		}
	}()
	verifiers := []auth.Verifier{auth.StaticTokens(static), issued.Verify}
	if verifyJWT != nil {
		verifiers = append(verifiers, verifyJWT)
	} else if len(static) == 0 && issued.Len() == 0 {
		log.Warn("no tokens exist yet; create one with `plantstore token create`")
	}

	health := controllers.NewHealth(db.Ready, models.CheckTemporary)
	db.KeepFeeds(cfg.Feed.Retention)
	metrics := newMetrics(append(db.Collectors(), newReadiness(health.Fault),
		gauge("plantstore_tokens_in_force", "Issued tokens that are neither revoked nor expired.", nil, func() float64 { return float64(issued.Len()) }))...)
	if cfg.TLS() {
		metrics.MustRegister(gauge("plantstore_certificate_expires_timestamp_seconds", "When the certificate of the service expires, in seconds since 1970.", nil, func() float64 {
			current, _ := encryption.GetCertificate(nil) // never fails, and notices that the files have changed: there may be no handshakes
			return float64(current.Leaf.NotAfter.Unix())
		}))
	}
	adminHost, _, _ := net.SplitHostPort(cfg.Server.AdminAddress)
	options := routes.Options{
		ObserverOptions: middleware.ObserverOptions{
			Log: log, Tokens: static, BasePath: cfg.Server.BasePath, Metrics: metrics, Tracer: tracer,
		},
		LogLevel:     level,
		DB:           db,
		Tokens:       controllers.NewTokens(tokens, issued),
		Health:       health,
		Failures:     controllers.NewFailures(log),
		Docs:         cfg.Docs.Enabled,
		Verify:       auth.AnyOf(verifiers...),
		Limits:       routes.Limits(cfg.Limits),
		MaxBodyBytes: cfg.Server.MaxBodyBytes,
		Bulk:         middleware.BulkOptions(cfg.Bulk),
		Proxies:      cfg.Server.TrustedProxies,
		Origins:      cfg.Server.CORSOrigins,
		Hosts:        append([]string{cfg.Server.Host, adminHost}, cfg.Server.AllowedHosts...),
		Development:  cfg.Env == config.Development,
		TLS:          cfg.TLS(),
	}
	if o, jwt := cfg.Docs.OAuth2, cfg.Auth.JWT; o.ClientID != "" {
		if len(o.Scopes) == 0 {
			for _, name := range models.DefaultScopes().Names() {
				o.Scopes = append(o.Scopes, jwt.ScopePrefix+name)
			}
		}
		options.SignIn = &controllers.SignIn{ClientID: o.ClientID, Audience: jwt.Audience, Scopes: o.Scopes, Endpoints: auth.Discover(serving, jwt.Issuer, log)}
	}
	api := routes.New(options)
	if err := db.CheckColumns(ctx); err != nil {
		return err
	}
	limit, err := connectionLimit(cfg, maxFiles(), log)
	if err != nil {
		return err
	}
	port, err := listen("server.port", addressOf(cfg))
	if err != nil {
		return err
	}
	listener := limitConnections(port, limit, cfg.Server.MaxPerAddress, cfg.Server.TrustedProxies, sampled)
	server := newServer(cfg, listener.limitStreams(api), listener, sampled)
	server.TLSConfig = encryption
	metrics.MustRegister(listener.collectors()...)
	stopAdmin, err := serveAdmin(cfg, options, sampled)
	if err != nil {
		return err
	}
	defer func() { _ = stopAdmin() }()
	runtime.GC() // what the start leaves behind would let the heap grow to twice of what requests need
	log.Info("serving",
		zap.String("version", version), zap.String("commit", commit), zap.String("env", cfg.Env),
		zap.String("address", listener.Addr().String()),
		zap.String("database_system", db.Dialect.Facts().System), zap.String("database", db.Name()), zap.Int64("schema", db.Schema.Version()),
		zap.Int("gomaxprocs", runtime.GOMAXPROCS(0)), zap.Int("max_connections", limit),
		zap.Int("requests_per_second", cfg.Limits.RequestsPerSecond))
	if cfg.Env == config.Development {
		welcome(cfg, listener.Addr().(*net.TCPAddr).Port, devToken)
	}
	served := make(chan error, 1)
	go func() {
		if cfg.TLS() {
			served <- server.ServeTLS(listener, "", "") // the certificate is in server.TLSConfig
		} else {
			served <- server.Serve(listener)
		}
	}()
	select {
	case err := <-served:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	delay := cfg.Server.ShutdownDelay
	if errors.Is(context.Cause(ctx), errInterrupted) {
		delay = 0 // there is no load balancer
	}
	return shutDown(server, listener, health, delay, cfg.Server.ShutdownTimeout, log)
}

// newJWTVerifier returns the verifier of JWTs, or nil if they have no issuer.
func newJWTVerifier(ctx context.Context, cfg *config.Config, log, rejections *zap.Logger) (auth.Verifier, error) {
	if cfg.Auth.JWT.Issuer == "" {
		return nil, nil
	}
	verify, err := auth.JWT(ctx, auth.JWTOptions(cfg.Auth.JWT), log, rejections)
	if err != nil { // only a configured key can be wrong: other keys are fetched later
		err = usageError(fmt.Errorf("%s: %w", config.SettingOf("auth.jwt.public_key"), err))
	}
	return verify, err
}
