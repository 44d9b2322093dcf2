package cmd

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"plantstore/config"
	"plantstore/controllers"
	"plantstore/middleware"
	"plantstore/routes"
)

// progress is how far follow has come, for its metrics and its health.
type progress struct {
	since    atomic.Int64          // when it fell behind, in milliseconds since 1970, or 0
	err      atomic.Pointer[error] // of the last attempt to get or deliver changes
	accepted prometheus.Gauge
	attempts *prometheus.CounterVec
}

func newProgress() *progress {
	return &progress{
		accepted: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "plantstore_follow_accepted_timestamp_seconds", Help: "When changes were last accepted, in seconds since 1970; 0 before the first changes.",
		}),
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "plantstore_follow_attempts_total", Help: "Attempts to deliver changes, by their result: accepted or failed.",
		}, []string{"result"}),
	}
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

// serve serves the health and the metrics of p with [serveAdmin].
func (p *progress) serve(cfg *config.Config) (stop func() error, err error) {
	for _, result := range []string{"accepted", "failed"} {
		p.attempts.WithLabelValues(result) // Prometheus sees no increase in the first value
	}
	lag := gauge("plantstore_follow_lag_seconds", "For how long changes have waited, or the service has not responded.", nil, p.lag)
	log, level := newLogger(cfg)
	return serveAdmin(cfg, routes.Options{
		ObserverOptions: middleware.ObserverOptions{Log: log, Metrics: newMetrics(p.accepted, p.attempts, lag)},
		LogLevel:        level, Health: controllers.NewHealth(p.ready), Hosts: cfg.Server.AllowedHosts,
		Failures: controllers.NewFailures(zap.NewNop()), // which follow itself reports
	}, log)
}
