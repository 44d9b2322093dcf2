package middleware

import (
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// outcome has the labels of a request's duration.
type outcome struct {
	method, route string
	status        int
}

// newMetrics returns a function that counts a request in registry: the time from its headers to the
// end of its handler, and the code of its Error. The names are OpenTelemetry's, where it has
// any (semantic conventions 1.23, HTTP). A path that is not a route is an empty route. The counters of
// codes start at 0, since Prometheus sees no increase in a counter's first value.
func newMetrics(registry prometheus.Registerer, codes []int32) func(of outcome, code int32, duration time.Duration) {
	durations := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "http_server_request_duration_seconds", Help: "Duration of HTTP requests.",
		Buckets: []float64{0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10}, // as OpenTelemetry advises
	}, []string{"http_request_method", "http_route", "http_response_status_code"})
	refused := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "plantstore_refused_total", Help: "Requests that got an Error, or whose response broke off, by the code.",
	}, []string{"error"})
	for _, code := range codes {
		refused.WithLabelValues(strconv.Itoa(int(code)))
	}
	registry.MustRegister(durations, refused)
	var observers sync.Map // by outcome: without the lock, and the texts, of durations
	return func(of outcome, code int32, duration time.Duration) {
		observer, known := observers.Load(of)
		if !known {
			observer = durations.WithLabelValues(of.method, of.route, strconv.Itoa(of.status))
			observers.Store(of, observer)
		}
		observer.(prometheus.Observer).Observe(duration.Seconds())
		if code != 0 {
			refused.WithLabelValues(strconv.Itoa(int(code))).Inc()
		}
	}
}
