package middleware_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	"plantstore/auth"
	"plantstore/middleware"
)

const (
	traceID     = "4bf92f3577b34da6a3ce929d0e0e4736"
	clientID    = "00f067aa0ba902b7"
	traceparent = "00-" + traceID + "-" + clientID + "-01"
)

// traced sends a GET with headers, in pairs, to an engine with the middleware, whose route
// responds with status. It returns the trace id in the log, or "".
func traced(o middleware.ObserverOptions, path string, status int, headers ...string) (logged string) {
	gin.SetMode(gin.ReleaseMode)
	e := gin.New()
	o.Log, o.Metrics, o.Proxies = zap.NewNop(), prometheus.NewRegistry(), middleware.ParseProxies([]string{"192.0.2.0/24"}) // of httptest
	e.Use(middleware.Observe(o), func(c *gin.Context) { logged = middleware.TraceIDField(c).String })
	respond := func(c *gin.Context) { c.Status(status) }
	e.Any("/plants/:id", respond)
	e.Any("/healthz", respond)
	e.ServeHTTP(httptest.NewRecorder(), get(path, headers...))
	return logged
}

func TestTraceReadsTraceparent(t *testing.T) {
	for name, test := range map[string]struct{ header, want string }{
		"sampled":                        {traceparent, traceID},
		"not sampled":                    {"00-" + traceID + "-" + clientID + "-00", traceID},
		"reserved flags":                 {"00-" + traceID + "-" + clientID + "-ff", ""},
		"a later version":                {"01-" + traceID + "-" + clientID + "-01", traceID},
		"a later version with more":      {"fe-" + traceID + "-" + clientID + "-01-What.Ever", traceID},
		"a later version with more text": {"01-" + traceID + "-" + clientID + "-01x", ""},
		"version 00 with more":           {traceparent + "-x", ""},
		"version ff":                     {"ff-" + traceID + "-" + clientID + "-01", ""},
		"a version that is no number":    {"0x-" + traceID + "-" + clientID + "-01", ""},
		"upper case":                     {strings.ToUpper(traceparent), ""},
		"a trace id of zeros":            {"00-" + strings.Repeat("0", 32) + "-" + clientID + "-01", ""},
		"a span id of zeros":             {"00-" + traceID + "-" + strings.Repeat("0", 16) + "-01", ""},
		"a trace id that is no number":   {"00-" + traceID[1:] + "g-" + clientID + "-01", ""},
		"flags that are no number":       {"00-" + traceID + "-" + clientID + "-+1", ""},
		"too short":                      {traceparent[:len(traceparent)-1], ""},
		"underscores":                    {strings.ReplaceAll(traceparent, "-", "_"), ""},
		"spaces":                         {" " + traceparent, ""},
		"empty":                          {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := traced(middleware.ObserverOptions{}, "/plants/1", 200, "traceparent", test.header); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
	t.Run("two headers", func(t *testing.T) {
		if got := traced(middleware.ObserverOptions{}, "/plants/1", 200, "traceparent", traceparent, "traceparent", traceparent); got != "" {
			t.Errorf("got %q, want none", got)
		}
	})
}

// TestTraceHasNoToken sends parts of tokens as trace context.
func TestTraceHasNoToken(t *testing.T) {
	const token = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
	for name, header := range map[string]string{
		"its beginning":         "00-" + token[:32] + "-" + clientID + "-01",
		"its end":               "00-" + token[32:] + "-" + clientID + "-01",
		"14 characters":         "00-" + traceID[:3] + token[40:54] + traceID[:15] + "-" + clientID + "-01",
		"8 characters":          "00-" + traceID[:10] + token[40:48] + traceID[:14] + "-" + clientID + "-01",
		"in the id of the span": "00-" + traceID + "-" + token[20:36] + "-01",
	} {
		for whose, sent := range map[string]string{"the client's": token, "another one's": "x"} {
			t.Run(whose+", "+name, func(t *testing.T) {
				spans := tracetest.NewSpanRecorder()
				o := middleware.ObserverOptions{Tracer: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)).Tracer("")}
				if sent != token {
					o.Tokens = []string{token}
				}
				got := traced(o, "/plants/1", 200, "traceparent", header, "Authorization", "Bearer "+sent)
				if span := spans.Ended()[0]; strings.Contains(header, got) || span.Parent().IsValid() {
					t.Errorf("got the trace id %q and the parent %v, want a new trace", got, span.Parent())
				}
			})
		}
	}
}

func TestTraceStartsSpans(t *testing.T) {
	text, number := attribute.String, attribute.Int
	for name, test := range map[string]struct {
		path       string
		status     int
		sampler    sdktrace.Sampler
		header     string
		span       string // its name; empty: none
		status5xx  bool
		attributes []attribute.KeyValue
		logged     bool
	}{
		"a request": {
			"/plants/1", 200, sdktrace.AlwaysSample(), "", "GET /plants/:id", false,
			[]attribute.KeyValue{text("http.request.method", "GET"), number("http.response.status_code", 200), text("http.route", "/plants/:id")},
			true,
		},
		"a server fault": {
			"/plants/1", 503, sdktrace.AlwaysSample(), traceparent, "GET /plants/:id", true,
			[]attribute.KeyValue{
				text("http.request.method", "GET"), number("http.response.status_code", 503), text("http.route", "/plants/:id"), text("error.type", "503"),
			},
			true,
		},
		"a client's fault": {
			"/nothing", 404, sdktrace.AlwaysSample(), traceparent, "GET", false,
			[]attribute.KeyValue{text("http.request.method", "GET"), number("http.response.status_code", 404)},
			true,
		},
		"a probe":     {"/healthz", 200, sdktrace.AlwaysSample(), "", "", false, nil, false},
		"not sampled": {"/plants/1", 200, sdktrace.NeverSample(), "", "", false, nil, false},
		"not sampled, with the client's trace id": {"/plants/1", 200, sdktrace.NeverSample(), traceparent, "", false, nil, true},
		"the client samples": {
			"/plants/1", 200, sdktrace.ParentBased(sdktrace.NeverSample()), traceparent, "GET /plants/:id", false,
			[]attribute.KeyValue{text("http.request.method", "GET"), number("http.response.status_code", 200), text("http.route", "/plants/:id")},
			true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			recorder := tracetest.NewSpanRecorder()
			provider := sdktrace.NewTracerProvider(sdktrace.WithSampler(test.sampler), sdktrace.WithSpanProcessor(recorder))
			logged := traced(middleware.ObserverOptions{Tracer: provider.Tracer(""), Silent: []string{"/healthz"}}, test.path, test.status, "traceparent", test.header)
			if (logged != "") != test.logged || test.header != "" && logged != traceID {
				t.Errorf("got the trace id %q in the log", logged)
			}
			spans := recorder.Ended()
			if test.span == "" {
				if len(spans) > 0 {
					t.Errorf("got %v, want no span", spans)
				}
				return
			}
			if len(spans) != 1 {
				t.Fatalf("got %d spans, want 1", len(spans))
			}
			span := spans[0]
			if span.Name() != test.span || span.SpanKind() != trace.SpanKindServer || !slices.Equal(span.Attributes(), test.attributes) {
				t.Errorf("got %s with %v, want %s with %v", span.Name(), span.Attributes(), test.span, test.attributes)
			}
			if isError := span.Status().Code == codes.Error; isError != test.status5xx {
				t.Errorf("got the status %v", span.Status())
			}
			if parent := span.Parent(); span.SpanContext().TraceID().String() != logged || test.header != "" && parent.SpanID().String() != clientID {
				t.Errorf("got the span %v below %v, want one of the trace %s", span.SpanContext(), parent, logged)
			}
		})
	}
}

// TestTraceOfUntrustedClients: only a trusted proxy and a client with a valid token may decide whether a request
// is recorded. The requests of other clients are recorded as those without a client's span.
func TestTraceOfUntrustedClients(t *testing.T) {
	const valid = "a-valid-token"
	ignored := strings.TrimSuffix(traceparent, "1") + "0"
	for _, test := range []struct {
		name, header, path, token string
		isProxy                   bool
		sampler                   sdktrace.Sampler // of requests without a client's span
		span, below               bool             // there is a span, below the client's span
	}{
		{"no token", traceparent, "/plants", "", false, sdktrace.NeverSample(), false, false},
		{"an invalid token", traceparent, "/plants", "wrong", false, sdktrace.NeverSample(), false, false},
		{"a public path", traceparent, "/public", valid, false, sdktrace.NeverSample(), false, false},
		{"an unknown path", traceparent, "/nothing", valid, false, sdktrace.NeverSample(), false, false},
		{"a valid token", traceparent, "/plants", valid, false, sdktrace.NeverSample(), true, true},
		{"a trusted proxy", traceparent, "/public", "", true, sdktrace.NeverSample(), true, true},
		{"no token, not to be sampled", ignored, "/plants", "", false, sdktrace.AlwaysSample(), true, false},
		{"a valid token, not to be sampled", ignored, "/plants", valid, false, sdktrace.AlwaysSample(), false, false},
		{"a trusted proxy, not to be sampled", ignored, "/public", "", true, sdktrace.AlwaysSample(), false, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			recorder := tracetest.NewSpanRecorder()
			provider := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.ParentBased(test.sampler)), sdktrace.WithSpanProcessor(recorder))
			gin.SetMode(gin.ReleaseMode)
			e, o := gin.New(), middleware.ObserverOptions{Log: zap.NewNop(), Metrics: prometheus.NewRegistry(), Tracer: provider.Tracer("")}
			if test.isProxy {
				o.Proxies = middleware.ParseProxies([]string{"192.0.2.1"})
			}
			e.Use(middleware.Observe(o))
			e.GET("/public", func(*gin.Context) {})
			e.GET("/plants", middleware.Handle(middleware.Bearer(auth.StaticTokens([]string{valid}), 0)))
			headers := []string{"traceparent", test.header}
			if test.token != "" {
				headers = append(headers, "Authorization", "Bearer "+test.token)
			}
			before := time.Now()
			e.ServeHTTP(httptest.NewRecorder(), get(test.path, headers...))
			spans := recorder.Ended()
			if (len(spans) == 1) != test.span {
				t.Fatalf("got %d spans, want one: %t", len(spans), test.span)
			}
			if test.span && (spans[0].Parent().IsValid() != test.below || spans[0].StartTime().Before(before)) {
				t.Errorf("got a span below %v, want it below the client's: %t", spans[0].Parent(), test.below)
			}
		})
	}
}

// get returns a GET with headers, in pairs.
func get(path string, headers ...string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return r
}

// BenchmarkTrace measures what tracing adds to a request.
func BenchmarkTrace(b *testing.B) {
	gin.SetMode(gin.ReleaseMode)
	const token = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
	tracer := func(sampler sdktrace.Sampler) trace.Tracer {
		return sdktrace.NewTracerProvider(sdktrace.WithSampler(sampler), sdktrace.WithBatcher(tracetest.NewNoopExporter())).Tracer("")
	}
	for _, test := range []struct {
		name, header string
		tracer       trace.Tracer
	}{
		{"off", "", nil}, // 75 ns are of the router
		{"off, traceparent", traceparent, nil},
		{"not sampled", "", tracer(sdktrace.NeverSample())},
		{"not sampled, traceparent", traceparent, tracer(sdktrace.NeverSample())},
		{"sampled", "", tracer(sdktrace.AlwaysSample())},
	} {
		b.Run(test.name, func(b *testing.B) {
			headers := []string{"Authorization", "Bearer " + token}
			if test.header != "" {
				headers = append(headers, "traceparent", test.header)
			}
			e := gin.New()
			e.Use(middleware.Observe(middleware.ObserverOptions{Log: zap.NewNop(), Tracer: test.tracer, Tokens: []string{token}, Metrics: prometheus.NewRegistry()}))
			e.GET("/plants/:id", func(*gin.Context) {})
			w, r := httptest.NewRecorder(), get("/plants/1", headers...)
			b.ReportAllocs()
			for b.Loop() {
				e.ServeHTTP(w, r)
			}
		})
	}
}
