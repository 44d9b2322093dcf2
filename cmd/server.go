package cmd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	stdlog "log"
	"net"
	"net/http"
	"net/http/pprof"
	"syscall"
	"time"

	"go.uber.org/zap"

	"plantstore/config"
	"plantstore/controllers"
)

func newServer(cfg *config.Config, log *zap.Logger) (*http.Server, error) {
	server := &http.Server{
		ReadHeaderTimeout: cfg.Server.ReadHeaderTimeout,
		ReadTimeout:       cfg.Server.ReadTimeout,
		WriteTimeout:      cfg.Server.WriteTimeout,
		IdleTimeout:       cfg.Server.IdleTimeout,
		MaxHeaderBytes:    cfg.Server.MaxHeaderBytes,
		ErrorLog:          stdlog.New(serverLog{log.Named("http")}, "", 0),
		// OPTIONS * gets the same 404 as any unknown path.
		DisableGeneralOptionsHandler: true,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: 250, // of a connection: Go's default, which may change
			// The timeouts above are per request. This one closes connections that the
			// client no longer reads.
			WriteByteTimeout: cfg.Server.WriteTimeout,
		},
	}
	if cfg.TLS() {
		certificate, err := newCertificate(cfg, log)
		if err != nil {
			return nil, usageError(err)
		}
		server.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: certificate.get}
	}
	return server, nil
}

// listen listens on address, which the setting key configures. Its errors are errors in
// the configuration, unless another process uses the port.
func listen(key, address string) (net.Listener, error) {
	listener, err := net.Listen("tcp", address)
	if err == nil {
		return listener, nil
	}
	if _, unknown := errors.AsType[*net.DNSError](err); key == "server.port" && (unknown || errors.Is(err, syscall.EADDRNOTAVAIL)) {
		key = "server.host"
	}
	err = fmt.Errorf("%s: %w", config.SettingOf(key), err)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, err
	}
	return nil, usageError(err)
}

// serveDebug serves the profiles of net/http/pprof at address, apart from the API, until
// the program ends.
func serveDebug(address string, log *zap.Logger) error {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index) // includes the named profiles
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	listener, err := listen("server.debug_address", address)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() { log.Error("serve profiles", zap.Error(server.Serve(listener))) }()
	log.Info("serving profiles", zap.Stringer("address", listener.Addr()))
	return nil
}

// shutDown makes the service report not ready, so that load balancers stop using it,
// then stops accepting connections and waits for in-flight requests.
func shutDown(cfg *config.Config, server *http.Server, health *controllers.Health, log *zap.Logger) error {
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
