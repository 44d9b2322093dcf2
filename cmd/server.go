package cmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	stdlog "log"
	"net"
	"net/http"
	"regexp"
	"runtime"
	"strconv"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"plantstore/config"
	"plantstore/controllers"
	"plantstore/routes"
)

// newServer returns a server with the limits of cfg for handler and the connections of listener. The API
// and the admin address have the same limits.
func newServer(cfg *config.Config, handler http.Handler, listener *connections, log *zap.Logger) *http.Server {
	return &http.Server{
		Handler:           handler,
		ConnState:         listener.observe,
		ErrorLog:          stdlog.New(httpErrors{log.Named("http")}, "", 0),
		ReadHeaderTimeout: cfg.Server.ReadHeaderTimeout,
		ReadTimeout:       cfg.Server.ReadTimeout,
		WriteTimeout:      cfg.Server.WriteTimeout,
		IdleTimeout:       cfg.Server.IdleTimeout,
		MaxHeaderBytes:    cfg.Server.MaxHeaderBytes,
		// Its response to OPTIONS * is a 200 without the headers of all responses.
		DisableGeneralOptionsHandler: true,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: 250, // of a connection: Go's default, which may change
			// The timeouts above are per request. This one closes connections that the
			// client no longer reads.
			WriteByteTimeout: cfg.Server.WriteTimeout,
			// Per-connection buffers for data that no handler has read. Go's defaults are 1 MiB each.
			MaxReadFrameSize:              16 << 10,
			MaxReceiveBufferPerConnection: 128 << 10, // of bodies: an import sends as much in a round trip
			MaxReceiveBufferPerStream:     128 << 10,
		},
	}
}

// listen listens on address, which the setting key configures.
func listen(key, address string) (net.Listener, error) {
	var lc net.ListenConfig
	lc.SetMultipathTCP(false) // such sockets have no packet filters, see refuse
	listener, err := lc.Listen(context.Background(), "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", config.SettingOf(key), err)
	}
	return listener, nil
}

func addressOf(cfg *config.Config) string {
	return net.JoinHostPort(cfg.Server.Host, strconv.Itoa(cfg.Server.Port))
}

// checkAddresses fails if the service could not listen on its addresses. It does so only for a
// moment: clients must not wait for a start.
func checkAddresses(cfg *config.Config) error {
	for _, of := range [][2]string{{"server.port", addressOf(cfg)}, {"server.admin_address", cfg.Server.AdminAddress}} {
		if of[1] == "" {
			continue
		}
		listener, err := listen(of[0], of[1])
		if err != nil {
			return err
		}
		defer listener.Close()
	}
	return nil
}

// sample returns log for what may happen a thousand times per second: it logs each message
// at most once per minute. All callers share it: its counts take half a megabyte.
func sample(log *zap.Logger) *zap.Logger {
	return log.WithOptions(zap.WrapCore(func(core zapcore.Core) zapcore.Core {
		return zapcore.NewSamplerWithOptions(core, time.Minute, 1, 0)
	}))
}

// quoted matches a text in the syntax of Go.
var quoted = regexp.MustCompile(`"(\\.|[^"\\])*"`)

// httpErrors logs as warnings what net/http writes: it cannot accept connections, or a handler misuses it. It leaves
// out what that quotes: the start of a request that it cannot read, which may be a token.
type httpErrors struct{ log *zap.Logger }

func (h httpErrors) Write(line []byte) (int, error) {
	level := zapcore.WarnLevel
	if bytes.HasPrefix(line, []byte("http: TLS handshake error ")) { // the client's fault, as of port scanners
		level = zapcore.DebugLevel
	}
	h.log.Log(level, string(quoted.ReplaceAll(bytes.TrimSpace(line), []byte(`"…"`))))
	return len(line), nil
}

// adminConnections is the limit of connections to the admin address.
const adminConnections = 64

// serveAdmin serves the parts in o at the admin address, if that is set, until stop is called. The handlers of
// profiles extend the time limit of a response by the duration of the profile.
func serveAdmin(cfg *config.Config, o routes.Options, log *zap.Logger) (stop func() error, err error) {
	if cfg.Server.AdminAddress == "" {
		return func() error { return nil }, nil
	}
	listener, err := listen("server.admin_address", cfg.Server.AdminAddress)
	if err != nil {
		return nil, err
	}
	limited := limitConnections(listener, adminConnections, 0, nil, log)
	server := newServer(cfg, routes.Admin(o), limited, log)
	go func() {
		if err := server.Serve(limited); !errors.Is(err, http.ErrServerClosed) {
			log.Error("cannot serve the admin address", zap.Error(err))
		}
	}()
	log.Info("serving the admin address", zap.Stringer("address", listener.Addr()))
	return server.Close, nil
}

// otherFiles is how many files the service has open at most, besides connections of
// clients and to PostgreSQL: files of SQLite and imports, listeners, the keys of an issuer.
const otherFiles = 64

// connectionLimit returns server.max_connections, or less if files, the number of files
// that the process may open, has no room for so many. It fails if there is no room for a connection
// for each processor.
func connectionLimit(cfg *config.Config, files int, log *zap.Logger) (int, error) {
	databases := 1 + len(cfg.Database.ReplicaURLs)
	needed := databases*cfg.Database.MaxConnections + adminConnections + otherFiles
	room := files - needed
	if room >= cfg.Server.MaxConnections {
		return cfg.Server.MaxConnections, nil
	}
	if least := needed + runtime.GOMAXPROCS(0); files < least {
		return 0, fmt.Errorf("ulimit -n is %d: raise it to at least %d, or to %d for server.max_connections", files, least, needed+cfg.Server.MaxConnections)
	}
	log.Warn("ulimit -n is too low for server.max_connections, which is lowered",
		zap.Int("ulimit", files), zap.Int("max_connections", cfg.Server.MaxConnections), zap.Int("lowered_to", room))
	return room, nil
}

// drainTime is how long clients have, after the last connection was accepted, to send a
// request on it. net/http closes a connection without a response if its request arrives
// after that.
const drainTime = time.Second

// shutDown makes the service report not ready, so that load balancers stop using it,
// then stops accepting connections and waits for in-flight requests. Meanwhile, responses
// ask clients to close their connections, so that few are left that a client may use at the
// moment when they are closed as idle.
func shutDown(server *http.Server, listener *connections, health *controllers.Health, delay, timeout time.Duration, log *zap.Logger) error {
	health.Drain()
	log.Info("stopping", zap.Duration("delay", delay), zap.Duration("timeout", timeout))
	time.Sleep(delay)
	if err := listener.drain(min(delay, drainTime)); err != nil {
		log.Warn("cannot refuse connections before closing the port", zap.Error(err))
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		return errors.Join(fmt.Errorf("some requests did not finish within server.shutdown_timeout, and %d connections are open: %w", listener.inUse(), err), server.Close())
	}
	log.Info("stopped")
	return nil
}
