package cmd

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"plantstore/config"
	"plantstore/controllers"
	"plantstore/middleware"
	"plantstore/routes"
)

// progress is how far follow has come, for its health and a metric.
type progress struct {
	since atomic.Int64          // when it fell behind, in milliseconds since 1970, or 0
	err   atomic.Pointer[error] // of the last attempt to get or deliver changes
}

// note notes whether changes wait, or may wait as the service has not responded, and the error of an attempt.
func (p *progress) note(waiting bool, err error) {
	p.err.Store(&err)
	if !waiting {
		p.since.Store(0)
	} else {
		p.since.CompareAndSwap(0, time.Now().UnixMilli())
	}
}

// ready fails with the error of the last attempt.
func (p *progress) ready(context.Context) error {
	if err := p.err.Load(); err != nil && *err != nil {
		return controllers.NotReady(oneLine((*err).Error()))
	}
	return nil
}

// lag returns for how long p has been behind, in seconds.
func (p *progress) lag() float64 {
	if since := p.since.Load(); since > 0 {
		return time.Since(time.UnixMilli(since)).Seconds()
	}
	return 0
}

// serve serves the health and the lag of p with [serveAdmin].
func (p *progress) serve(cfg *config.Config) (stop func() error, err error) {
	lag := gauge("plantstore_follow_lag_seconds", "For how long changes have waited, or the service has not responded.", nil, p.lag)
	log, level := newLogger(cfg)
	end, err := serveAdmin(cfg, routes.Options{
		ObserverOptions: middleware.ObserverOptions{Log: log, Metrics: newMetrics(lag)},
		LogLevel:        level, Health: controllers.NewHealth(p.ready, nil), Hosts: cfg.Server.AllowedHosts,
		Failures: controllers.NewFailures(zap.NewNop()), // which follow itself reports
	}, log)
	return func() error { return errors.Join(end(), log.Sync()) }, err
}
