package operate

import (
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	v1 "go.opentelemetry.io/proto/otlp/common/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"plantstore/database/dbtest"
	"plantstore/tests/service"
)

// receiver is a collector of spans.
type receiver struct {
	url   string
	mu    sync.Mutex
	raw   strings.Builder // all that it got
	spans []*otlp.Span
	about []*v1.KeyValue // the service, as its last message says
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := new(receiver)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		body, err := io.ReadAll(request.Body)
		var message collector.ExportTraceServiceRequest
		if err != nil || proto.Unmarshal(body, &message) != nil || request.URL.Path != "/v1/traces" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.raw.Write(body)
		for _, resource := range message.GetResourceSpans() {
			r.about = resource.GetResource().GetAttributes()
			for _, scope := range resource.GetScopeSpans() {
				r.spans = append(r.spans, scope.GetSpans()...)
			}
		}
	}))
	t.Cleanup(server.Close)
	r.url = server.URL
	return r
}

// all returns the spans so far with a name that starts so.
func (r *receiver) all(name string) (spans []*otlp.Span) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, span := range r.spans {
		if strings.HasPrefix(span.GetName(), name) {
			spans = append(spans, span)
		}
	}
	return spans
}

// inTrace returns the spans of a trace with a name that starts so.
func (r *receiver) inTrace(id, name string) []*otlp.Span {
	return slices.DeleteFunc(r.all(name), func(s *otlp.Span) bool { return hex.EncodeToString(s.GetTraceId()) != id })
}

// below returns the spans below parent with a name that starts so.
func (r *receiver) below(parent *otlp.Span, name string) []*otlp.Span {
	return slices.DeleteFunc(r.all(name), func(s *otlp.Span) bool {
		return string(s.GetParentSpanId()) != string(parent.GetSpanId()) || string(s.GetTraceId()) != string(parent.GetTraceId())
	})
}

// linked reports whether from is linked to to.
func linked(from, to *otlp.Span) bool {
	return slices.ContainsFunc(from.GetLinks(), func(l *otlp.Span_Link) bool {
		return string(l.GetSpanId()) == string(to.GetSpanId()) && string(l.GetTraceId()) == string(to.GetTraceId())
	})
}

// textOf returns attributes as key=value, sorted and separated by spaces.
func textOf(attributes []*v1.KeyValue) string {
	var texts []string
	for _, a := range attributes {
		value := a.GetValue().GetStringValue()
		if number, ok := a.GetValue().GetValue().(*v1.AnyValue_IntValue); ok {
			value = strconv.FormatInt(number.IntValue, 10)
		}
		texts = append(texts, a.GetKey()+"="+value)
	}
	slices.Sort(texts)
	return strings.Join(texts, " ")
}

// startTraced starts a service that sends its spans to r soon.
func startTraced(t *testing.T, r *receiver, settings ...string) *service.Service {
	t.Helper()
	return service.Start(t, append([]string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + r.url, "OTEL_BSP_SCHEDULE_DELAY=20"}, settings...)...)
}

// traceparentOf returns the header of the n-th trace, and its trace id.
func traceparentOf(n int) (header, id string) {
	id = fmt.Sprintf("%032x", 1<<40+n)
	return "00-" + id + "-00f067aa0ba902b7-01", id
}

// TestSpans sends concurrent requests and checks their spans: below each request its wait for
// a batch, below one request of each batch the batch, and below that its statement.
func TestSpans(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		c, r := new(canaries), newReceiver(t)
		s := startTraced(t, r, "DATABASE_URL="+url)
		requests := map[string][2]string{} // by trace id, the name of the request's span and of its statement
		// Concurrent requests share batches, sooner or later.
		next := 0
		for _, operation := range []struct{ method, path, route, statement, body string }{
			{"POST", "/plants", "/plants", "INSERT plants", `{"id":%d,"name":"` + c.data("a name") + `","tag":"` + c.data("a tag") + `"}`},
			{"GET", "/plants/%d", "/plants/:id", "SELECT plants", ""},
			{"PUT", "/plants/%d", "/plants/:id", "INSERT plants", `{"name":"` + c.data("another name") + `"}`},
			{"DELETE", "/plants/%d", "/plants/:id", "DELETE plants", ""},
		} {
			var group sync.WaitGroup
			for n := range 40 {
				header, id := traceparentOf(next)
				next++
				requests[id] = [2]string{operation.method + " " + operation.route, operation.statement}
				path, body := strings.Replace(operation.path, "%d", strconv.Itoa(n), 1), strings.Replace(operation.body, "%d", strconv.Itoa(n), 1)
				group.Go(func() {
					if got, err := s.Try(operation.method, path, strings.NewReader(body), service.As(service.Token, "traceparent", header)...); err != nil || got.Status >= 300 {
						t.Errorf("%s %s: got %v, %v", operation.method, path, got, err)
					}
				})
			}
			group.Wait()
		}
		header, search := traceparentOf(next)
		s.Get(t, "/plants?q="+c.plant("a query")+"&tag="+c.plant("a filter"), service.As(service.Token, "traceparent", header)...)
		s.Get(t, "/"+c.plant("a path"), "User-Agent", c.plant("a header"))
		s.Get(t, "/plants", service.As(c.plant("a token"))...)
		s.Call(t, "POST", "/tokens", `{"name":"`+c.data("the name of a token")+`","scopes":["plants:read"]}`)
		s.Get(t, "/healthz")
		s.Get(t, "/readyz")
		s.Stop(t) // sends the last spans

		shared := 0
		for id, want := range requests {
			checkTrace(t, r, id, want[0], want[1])
		}
		if len(r.inTrace(search, "SELECT plants")) != 1 {
			t.Errorf("got the spans %v of a search, want one of its statement", r.inTrace(search, ""))
		}
		for _, batch := range r.all("batch") {
			if len(batch.GetLinks()) > 1 {
				shared++
				if got, want := textOf(batch.GetAttributes()), fmt.Sprintf("db.operation.batch.size=%d", len(batch.GetLinks())); got != want {
					t.Errorf("batch: got %s, want %s", got, want)
				}
			}
		}
		if shared == 0 {
			t.Error("got no batch of several requests")
		}
		if got := textOf(r.about); !strings.Contains(got, "service.name=plantstore service.version=") {
			t.Errorf("got the resource %s", got)
		}
		for name, want := range map[string]string{
			"GET /plants":  `^http.request.method=GET http.response.status_code=(200|401) http.route=/plants`,
			"POST /tokens": "^http.request.method=POST http.response.status_code=200 http.route=/tokens$",
			"SELECT plants": "^db.collection.name=plants db.operation.name=SELECT db.query.text=(WITH found AS MATERIALIZED .)?SELECT .* FROM .* " +
				"db.system.name=(sqlite|postgresql)$",
			"INSERT tokens": "^db.collection.name=tokens db.operation.name=INSERT db.query.text=INSERT INTO .* db.system.name=(sqlite|postgresql)$",
		} {
			t.Run(name, func(t *testing.T) {
				spans := r.all(name)
				for _, span := range spans {
					if got := textOf(span.GetAttributes()); !regexp.MustCompile(want).MatchString(got) {
						t.Errorf("got %s, want %s", got, want)
					}
				}
				if len(spans) == 0 {
					t.Error("got no span")
				}
			})
		}
		c.check(t, "spans", r.raw.String(), true)
		for _, secret := range []string{service.Token, "healthz", "readyz"} {
			if strings.Contains(r.raw.String(), secret) {
				t.Errorf("got %s in a span", secret)
			}
		}
	})
}

// TestFollowersShareNoSpans: what the service reads for all followers is in the trace of none.
func TestFollowersShareNoSpans(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		r := newReceiver(t)
		s := startTraced(t, r, "DATABASE_URL="+url)
		header, id := traceparentOf(1)
		events := s.Stream(t, "", "traceparent", header)
		events.Next()
		const posts = 10
		for n := range int64(posts) { // the follower itself reads those that it finds before it waits
			s.Post(t, service.BodyOf(n)).RequireOK(t)
			events.Await(strconv.FormatInt(n, 10))
		}
		events.Close()
		s.Stop(t)
		if spans := r.inTrace(id, "SELECT plants"); len(spans) >= posts {
			t.Errorf("got %d spans of reads in the trace of a follower, want at most its own", len(spans))
		}
	})
}

// checkTrace checks the spans of a request, whose client sent the trace id.
func checkTrace(t *testing.T, r *receiver, id, name, statement string) {
	t.Helper()
	requests := r.inTrace(id, name)
	if len(requests) != 1 || requests[0].GetName() != name || requests[0].GetKind() != otlp.Span_SPAN_KIND_SERVER ||
		hex.EncodeToString(requests[0].GetParentSpanId()) != "00f067aa0ba902b7" {
		t.Errorf("trace %s: got the requests %v, want one %s below the client's span", id, requests, name)
		return
	}
	request := requests[0]
	batches := slices.DeleteFunc(r.all("batch"), func(batch *otlp.Span) bool { return !linked(batch, request) || !linked(request, batch) })
	if len(batches) != 1 {
		t.Errorf("%s: got the batches %v, want one that is linked to the request, and from it", name, batches)
		return
	}
	firsts := slices.DeleteFunc(r.all(""), func(s *otlp.Span) bool { return string(s.GetSpanId()) != string(batches[0].GetParentSpanId()) })
	if len(firsts) != 1 || !linked(batches[0], firsts[0]) {
		t.Errorf("%s: got the batch below %v, want one of its requests", name, firsts)
	}
	statements := r.below(batches[0], statement)
	if len(statements) == 0 || statements[0].GetKind() != otlp.Span_SPAN_KIND_CLIENT {
		t.Errorf("%s: got the statements %v below its batch, want %s", name, r.below(batches[0], ""), statement)
	}
}

// TestSpansAreOff: without an endpoint, or if the standard variables say so, there are no spans.
// The trace id of the client is in the log anyway.
func TestSpansAreOff(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	for name, settings := range map[string][]string{
		"no endpoint":          nil,
		"OTEL_SDK_DISABLED":    {"OTEL_EXPORTER_OTLP_ENDPOINT=" + r.url, "OTEL_SDK_DISABLED=true"},
		"OTEL_TRACES_EXPORTER": {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=" + r.url + "/v1/traces", "OTEL_TRACES_EXPORTER=none"},
		"OTEL_TRACES_SAMPLER":  {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=" + r.url + "/v1/traces", "OTEL_TRACES_SAMPLER=always_off"},
	} {
		t.Run(name, func(t *testing.T) {
			s := service.Start(t, settings...)
			header, id := traceparentOf(1)
			s.Post(t, `{"id":1,"name":"x"}`, "traceparent", header).RequireOK(t)
			s.Stop(t)
			if line := s.AwaitLog(t, "request"); line["trace_id"] != id {
				t.Errorf("got %v, want the trace id %s", line, id)
			}
			if spans := r.all(""); len(spans) > 0 {
				t.Errorf("got %v, want no spans", spans)
			}
		})
	}
}

// TestSpanNamesTheService sets the standard variables.
func TestSpanNamesTheService(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	s := service.Start(t, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT="+r.url+"/v1/traces", "OTEL_SERVICE_NAME=greenhouse", "OTEL_RESOURCE_ATTRIBUTES=deployment.environment.name=test")
	s.Post(t, `{"id":1,"name":"x"}`).RequireOK(t)
	s.Stop(t)
	spans := r.all("POST /plants")
	if got := textOf(r.about); len(spans) != 1 || !strings.Contains(got, "service.name=greenhouse") || !strings.Contains(got, "deployment.environment.name=test") {
		t.Fatalf("got %v of %s", spans, got)
	}
	if line, id := s.AwaitLog(t, "request"), hex.EncodeToString(spans[0].GetTraceId()); line["trace_id"] != id {
		t.Errorf("got %v, want the trace id of the span, %s", line, id)
	}
}

// TestCollectorIsDown: a collector that is absent or does not respond delays neither requests
// nor, for long, the end of the service, and does not flood the log.
func TestCollectorIsDown(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	service.Must(t, err)
	t.Cleanup(func() { _ = silent.Close() })
	absent, err := net.Listen("tcp", "127.0.0.1:0")
	service.Must(t, err)
	service.Must(t, absent.Close())
	const short, long = "50", "600000" // milliseconds
	for _, test := range []struct {
		name          string
		collector     net.Addr
		timeout, want string // of an export; a line of the log
	}{
		{"silent", silent.Addr(), short, "cannot trace"},
		{"silent for long", silent.Addr(), long, "the last spans were not sent"},
		{"absent", absent.Addr(), short, "cannot trace"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := service.Start(t, "OTEL_EXPORTER_OTLP_ENDPOINT=http://"+test.collector.String(), "OTEL_BSP_SCHEDULE_DELAY=1",
				"OTEL_BSP_MAX_QUEUE_SIZE=8", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE=4",
				"OTEL_BSP_EXPORT_TIMEOUT="+test.timeout, "OTEL_EXPORTER_OTLP_TIMEOUT="+test.timeout)
			begin := time.Now()
			for n := range 100 {
				s.Call(t, "POST", "/plants", service.BodyOf(int64(n))).RequireOK(t)
			}
			if took := time.Since(begin); took > service.Patience/2 {
				t.Errorf("100 requests took %v", took)
			}
			begin = time.Now()
			s.Stop(t)
			if took := time.Since(begin); took > service.Patience/2 {
				t.Errorf("the stop took %v", took)
			}
			lines := strings.Count(s.Stderr.String(), test.want)
			if line := s.AwaitLog(t, test.want); line["level"] != "warn" || lines > 3 {
				t.Errorf("got %d lines like %v, want at most 3 warnings", lines, line)
			}
		})
	}
}

// TestInvalidVariablesOfOpenTelemetry checks the one line about each, which has no value.
func TestInvalidVariablesOfOpenTelemetry(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ variable, value, want string }{
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4317", "OTEL_EXPORTER_OTLP_ENDPOINT must be "},
		{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://user:secret@ x/", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT must be "},
		{"OTEL_RESOURCE_ATTRIBUTES", "secret", "OTEL_RESOURCE_ATTRIBUTES must be "},
	} {
		t.Run(test.variable, func(t *testing.T) {
			settings := []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1", "PLANTSTORE_AUTH_TOKENS=" + service.Token, test.variable + "=" + test.value}
			out, errors, status := service.RunToEnd(t, settings, "serve")
			if status != 2 || out != "" || !strings.HasPrefix(errors, "plantstore: "+test.want) || strings.Contains(errors, "secret") {
				t.Errorf("got %d, %q, %q", status, out, errors)
			}
		})
	}
}
