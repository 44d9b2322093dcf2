package cmd

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"golang.org/x/net/netutil"

	"plantstore/config"
	"plantstore/controllers"
	"plantstore/middleware"
	"plantstore/models"
	"plantstore/routes"
)

func newServe(s *settings) *cobra.Command {
	return &cobra.Command{
		Use:   "serve",
		Short: "Serve the API (the default)",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := s.load()
			if err != nil {
				return err
			}
			return serve(cmd.Context(), cfg, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
}

// serve runs the service until ctx ends, and then ends it in good order: it
// turns unready, finishes the requests that it has begun, and closes the
// database.
func serve(ctx context.Context, cfg *config.Config, stdout, stderr io.Writer) (err error) {
	relaxGC()
	log := newLogger(cfg, stderr)
	defer func() { _ = log.Sync() }() // a terminal cannot be synced, and says so

	static, devToken, err := tokensOf(cfg)
	if err != nil {
		return err
	}
	server, err := newServer(cfg, log)
	if err != nil {
		return err
	}
	db, err := openDatabase(ctx, cfg, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if err := prepareSchema(ctx, db, cfg.Database.Migrate, log); err != nil {
		return err
	}

	plants := models.NewPlantStore(db, models.WriteOptions{
		Timeout:  cfg.Database.Timeout,
		Flushers: cfg.Writes.Flushers,
		MaxBatch: cfg.Writes.MaxBatch,
		Queue:    cfg.Writes.Queue,
	})
	defer plants.Close()

	tokens := models.NewTokenStore(db, cfg.Database.Timeout)
	issued, err := models.NewTokenVerifier(ctx, tokens, log)
	if err != nil {
		return err
	}
	defer func() {
		if err := issued.Close(); err != nil {
			log.Warn("of some tokens, the last use is not written down", zap.Error(err))
		}
	}()
	verify, err := newVerifier(ctx, cfg, static, issued, log)
	if err != nil {
		return err
	}

	health := controllers.NewHealth(db.Ping)
	server.Handler = routes.New(routes.Options{
		Log:          log,
		Plants:       controllers.NewPlants(plants),
		Tokens:       controllers.NewTokens(tokens),
		Health:       health,
		Docs:         cfg.Docs.Enabled,
		Verify:       verify,
		Limits:       limitsOf(cfg.Limits),
		MaxBodyBytes: cfg.Server.MaxBodyBytes,
		Bulk:         routes.Bulk{MaxBodyBytes: cfg.Bulk.MaxBodyBytes, Timeout: cfg.Bulk.Timeout},
		Proxies:      cfg.Server.TrustedProxies,
		Origins:      cfg.Server.CORSOrigins,
		TLS:          cfg.Server.TLS(),
	})
	if err := checkTemporaryFolder(); err != nil {
		log.Warn("imports will fail: TMPDIR must name a folder that can be written to", zap.Error(err))
	}
	listener, err := listen(cfg.Server)
	if err != nil {
		return err
	}
	stopDebug, err := serveDebug(cfg.Server.DebugAddress, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopDebug()) }()
	served := make(chan error, 1)
	go func() {
		if cfg.Server.TLS() {
			served <- server.ServeTLS(listener, "", "") // which server.TLSConfig has
		} else {
			served <- server.Serve(listener)
		}
	}()

	log.Info("serving", zap.String("version", version), zap.String("env", cfg.Env), zap.String("address", listener.Addr().String()))
	if cfg.Env == config.Development {
		welcome(stdout, cfg, listener.Addr().(*net.TCPAddr).Port, devToken)
	}
	select {
	case err := <-served:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	return drain(cfg, server, health, log)
}

// listen opens the service's port.
func listen(cfg config.Server) (net.Listener, error) {
	listener, err := net.Listen("tcp", net.JoinHostPort(cfg.Host, strconv.Itoa(cfg.Port)))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", config.SettingOf("server.port"), err)
	}
	return netutil.LimitListener(listener, cfg.MaxConnections), nil
}

func limitsOf(cfg config.Limits) routes.Limits {
	return routes.Limits{
		RequestsPerSecond: cfg.RequestsPerSecond,
		Burst:             cmp.Or(cfg.Burst, cfg.RequestsPerSecond),
		FailuresPerMinute: cfg.FailuresPerMinute,
	}
}

// newVerifier returns what tells whom a bearer token stands for.
func newVerifier(ctx context.Context, cfg *config.Config, static []string, issued *models.TokenVerifier, log *zap.Logger) (middleware.Verifier, error) {
	verifiers := []middleware.Verifier{middleware.StaticTokens(static), middleware.IssuedTokens(issued)}
	if cfg.Auth.JWT.Issuer == "" {
		if len(static) == 0 && issued.Len() == 0 {
			log.Warn("nobody can come in: plantstore token create issues a token")
		}
		return middleware.AnyOf(verifiers...), nil
	}
	jwt, err := middleware.JWT(ctx, middleware.JWTOptions{
		Issuer:     cfg.Auth.JWT.Issuer,
		Audience:   cfg.Auth.JWT.Audience,
		Algorithms: cfg.Auth.JWT.Algorithms,
		Leeway:     cfg.Auth.JWT.Leeway,
		JWKSURL:    cfg.Auth.JWT.JWKSURL,
		PublicKey:  cfg.Auth.JWT.PublicKey,
		Log:        log,
	})
	if err != nil {
		key := "auth.jwt.public_key"
		if cfg.Auth.JWT.PublicKey == "" {
			key = "auth.jwt.jwks_url"
		}
		return nil, usageError(fmt.Errorf("%s: %w", config.SettingOf(key), err))
	}
	return middleware.AnyOf(append(verifiers, jwt)...), nil
}

// checkTemporaryFolder makes sure that an import finds the folder it needs.
func checkTemporaryFolder() error {
	file, err := os.CreateTemp("", "plantstore-*")
	if err != nil {
		return err
	}
	return errors.Join(file.Close(), os.Remove(file.Name()))
}

// relaxGC has garbage collected half as often as by default, unless the variable
// GOGC says how often: what is in use is small beside the program itself.
func relaxGC() {
	if set := debug.SetGCPercent(200); set != 100 {
		debug.SetGCPercent(set)
	}
}

// maxStreams is how many requests a connection of HTTP/2 may have under way at the
// same time: what Go has for its default, which may change.
const maxStreams = 250

func newServer(cfg *config.Config, log *zap.Logger) (*http.Server, error) {
	server := &http.Server{
		ReadHeaderTimeout: cfg.Server.ReadHeaderTimeout,
		ReadTimeout:       cfg.Server.ReadTimeout,
		WriteTimeout:      cfg.Server.WriteTimeout,
		IdleTimeout:       cfg.Server.IdleTimeout,
		MaxHeaderBytes:    cfg.Server.MaxHeaderBytes,
		ErrorLog:          zap.NewStdLog(log.Named("http")),
		// OPTIONS * is a path like any other that does not exist.
		DisableGeneralOptionsHandler: true,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams,
			// The time-outs above are for one request. This is for a client that has
			// stopped to read a connection, and would keep it.
			WriteByteTimeout: cfg.Server.WriteTimeout,
		},
	}
	if cfg.Server.TLS() {
		certificate, err := newCertificate(cfg.Server, log)
		if err != nil {
			return nil, usageError(err)
		}
		server.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: certificate.get}
	}
	return server, nil
}

// drain stops server: unready first, so that load balancers look elsewhere, then
// deaf to new connections, and silent when the last request has its answer.
func drain(cfg *config.Config, server *http.Server, health *controllers.Health, log *zap.Logger) error {
	health.Drain()
	log.Info("stopping", zap.Duration("delay", cfg.Server.ShutdownDelay), zap.Duration("timeout", cfg.Server.ShutdownTimeout))
	time.Sleep(cfg.Server.ShutdownDelay)
	ctx, cancel := context.WithTimeout(context.Background(), cfg.Server.ShutdownTimeout)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		return errors.Join(fmt.Errorf("some requests did not finish within server.shutdown_timeout: %w", err), server.Close())
	}
	log.Info("stopped")
	return nil
}
