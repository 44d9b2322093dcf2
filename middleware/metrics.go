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

// Metrics measures the time from the headers of each request to the end of its handler, and
// counts the codes of errors. The names are those of OpenTelemetry, where it has any
// (semantic conventions 1.23, HTTP). A path that is not a route is an empty route. The
// counters of codes start at 0, since Prometheus sees no increase in a counter's first value.
func Metrics(registry prometheus.Registerer, codes []int32) gin.HandlerFunc {
	durations := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "http_server_request_duration_seconds", Help: "Duration of HTTP requests.", Buckets: durationBuckets,
	}, []string{"http_request_method", "http_route", "http_response_status_code"})
	refused := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "plantstore_refused_total", Help: "Requests that got an Error, or whose response broke off, by the code.",
	}, []string{"error"})
	for _, code := range codes {
		refused.WithLabelValues(strconv.Itoa(int(code)))
	}
	registry.MustRegister(durations, refused)
	var observers sync.Map // by outcome: without the lock, and the texts, of durations
	return func(c *gin.Context) {
		start := time.Now()
		// Deferred, so that an aborted response counts, too.
		defer func() {
			of := outcome{metricMethod(c.Request.Method), c.FullPath(), c.Writer.Status()}
			duration, known := observers.Load(of)
			if !known {
				duration = durations.WithLabelValues(of.method, of.route, strconv.Itoa(of.status))
				observers.Store(of, duration)
			}
			duration.(prometheus.Observer).Observe(time.Since(start).Seconds())
			if code := errorCodeOf(c); code != 0 {
				refused.WithLabelValues(strconv.Itoa(int(code))).Inc()
			}
		}()
		c.Next()
	}
}

// outcome has the labels of a request's duration.
type outcome struct {
	method, route string
	status        int
}

// SetErrorCode records the code of the Error that c's request gets.
func SetErrorCode(c *gin.Context, code int32) { c.Set(errorCodeKey, code) }

// errorCodeOf returns the code of the Error that c's request got, or 0.
func errorCodeOf(c *gin.Context) int32 { return c.GetInt32(errorCodeKey) }

// otherMethod is OpenTelemetry's name for a method that is none of HTTP's.
const otherMethod = "_OTHER"

// metricMethod is loggedMethod with OpenTelemetry's name for what a client has chosen.
func metricMethod(method string) string {
	if method = loggedMethod(method); method == other {
		return otherMethod
	}
	return method
}
