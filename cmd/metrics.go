package cmd

import (
	"context"
	"crypto/tls"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"plantstore/auth"
)

// newMetrics returns a registry of the metrics in all and the metrics of the process and of Go.
func newMetrics(all ...prometheus.Collector) *prometheus.Registry {
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "plantstore_build_info", Help: "The version of the program; always 1.",
		ConstLabels: prometheus.Labels{"version": version, "commit": commit, "goversion": runtime.Version()},
	})
	build.Set(1)
	registry := prometheus.NewRegistry()
	registry.MustRegister(build, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	registry.MustRegister(all...)
	return registry
}

// tokensInForce returns the metric of how many issued tokens are accepted.
func tokensInForce(issued *auth.IssuedTokens) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "plantstore_tokens_in_force", Help: "Issued tokens that are neither revoked nor expired.",
	}, func() float64 { return float64(issued.Len()) })
}

// certificateExpires returns the metric of when a certificate expires. Each scrape asks get for it,
// which then also notices that its files have changed: there may be no handshakes.
func certificateExpires(get func(*tls.ClientHelloInfo) (*tls.Certificate, error)) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "plantstore_certificate_expires_timestamp_seconds", Help: "When the certificate of the service expires, in seconds since 1970.",
	}, func() float64 {
		current, _ := get(nil) // never fails
		return float64(current.Leaf.NotAfter.Unix())
	})
}

// newReadiness returns the metric of whether the service is ready; fault returns why it is not,
// or nothing. Each scrape asks, so that it is known without probes. So does registration.
func newReadiness(fault func(context.Context) string) prometheus.Collector {
	desc := prometheus.NewDesc("plantstore_ready", "1 if a write would succeed, otherwise 0, with the reason.", []string{"reason"}, nil)
	return prometheus.CollectorFunc(func(metrics chan<- prometheus.Metric) {
		reason, ready := fault(context.Background()), 0.0
		if reason == "" {
			ready = 1
		}
		metrics <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, ready, reason)
	})
}

func (l *connections) collectors() []prometheus.Collector {
	inState := func(state string, count func() int) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "plantstore_connections", Help: "Open connections to the API: active ones have a request.",
			ConstLabels: prometheus.Labels{"state": state},
		}, func() float64 {
			l.mu.Lock()
			defer l.mu.Unlock()
			return float64(count())
		})
	}
	limit := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "plantstore_connections_max", Help: "The limit of connections to the API.",
	})
	limit.Set(float64(l.all.limit))
	return []prometheus.Collector{
		inState("idle", func() int { return l.all.idle.Len() }),
		inState("active", func() int { return l.all.open - l.all.idle.Len() }),
		limit,
	}
}
