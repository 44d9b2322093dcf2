package cmd

import (
	"errors"
	"net/http"
	"net/http/pprof"
	"time"

	"go.uber.org/zap"
)

// serveDebug serves the profiles of net/http/pprof at address, apart from the API,
// until stop is called. If address is empty, it does nothing.
func serveDebug(address string, log *zap.Logger) (stop func() error, err error) {
	if address == "" {
		return func() error { return nil }, nil
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index) // includes the named profiles
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	listener, err := listen("server.debug_address", address)
	if err != nil {
		return nil, err
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.Error("serve profiles", zap.Error(err))
		}
	}()
	log.Info("serving profiles", zap.Stringer("address", listener.Addr()))
	return server.Close, nil
}
