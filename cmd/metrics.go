package cmd

import (
	"context"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// newMetrics returns a registry of the metrics in all and the metrics of the process and of Go.
func newMetrics(all ...prometheus.Collector) *prometheus.Registry {
	build := prometheus.Labels{"version": version, "commit": commit, "goversion": runtime.Version()}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		gauge("plantstore_build_info", "The version of the program; always 1.", build, func() float64 { return 1 }))
	registry.MustRegister(all...)
	return registry
}

// gauge returns a metric whose value each scrape gets from value. labels may be nil.
func gauge(name, help string, labels prometheus.Labels, value func() float64) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels}, value)
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
		return gauge("plantstore_connections", "Open connections to the API: active ones have a request.", prometheus.Labels{"state": state}, func() float64 {
			l.mu.Lock()
			defer l.mu.Unlock()
			return float64(count())
		})
	}
	return []prometheus.Collector{
		inState("idle", func() int { return l.all.idle.Len() }),
		inState("active", func() int { return l.all.open - l.all.idle.Len() }),
		gauge("plantstore_connections_max", "The limit of connections to the API.", nil, func() float64 { return float64(l.all.limit) }),
	}
}
