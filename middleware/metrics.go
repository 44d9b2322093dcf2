package middleware

import (
	"strconv"
	"sync"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"
)

// durationBuckets are the upper bounds that OpenTelemetry advises for durations, in seconds.
var durationBuckets = []float64{0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10}

// metrics measure the time from the headers of each request to the end of its handler, and count
// the codes of errors. The names are those of OpenTelemetry, where it has any (semantic conventions
// 1.23, HTTP). A path that is not a route is an empty route.
type metrics struct {
	durations *prometheus.HistogramVec
	observers sync.Map // durations by outcome, without its lock and its texts
	refused   *prometheus.CounterVec
}

// outcome has the labels of a request's duration.
type outcome struct {
	method, route string
	status        int
}

// newMetrics returns the metrics in registry, or nil without one. The counters of codes start at 0,
// since Prometheus sees no increase in a counter's first value.
func newMetrics(registry prometheus.Registerer, codes []int32) *metrics {
	if registry == nil {
		return nil
	}
	m := &metrics{
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "http_server_request_duration_seconds", Help: "Duration of HTTP requests.", Buckets: durationBuckets,
		}, []string{"http_request_method", "http_route", "http_response_status_code"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "plantstore_refused_total", Help: "Requests that got an Error, or whose response broke off, by the code.",
		}, []string{"error"}),
	}
	for _, code := range codes {
		m.countError(code, 0)
	}
	registry.MustRegister(m.durations, m.refused)
	return m
}

// observe counts c's request. m may be nil.
func (m *metrics) observe(method string, c *gin.Context, r *request, duration time.Duration) {
	if m == nil {
		return
	}
	of := outcome{method, c.FullPath(), c.Writer.Status()}
	observer, known := m.observers.Load(of)
	if !known {
		observer = m.durations.WithLabelValues(of.method, of.route, strconv.Itoa(of.status))
		m.observers.Store(of, observer)
	}
	observer.(prometheus.Observer).Observe(duration.Seconds())
	if r.errorCode != 0 {
		m.countError(r.errorCode, 1)
	}
}

func (m *metrics) countError(code int32, n float64) {
	m.refused.WithLabelValues(strconv.Itoa(int(code))).Add(n)
}
