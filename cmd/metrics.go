package cmd

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"plantstore/auth"
)

// newMetrics returns a registry of the metrics in all, and of those of the process and of Go.
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
