package cmd

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/go-logr/logr/funcr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"
)

// newTracer returns a tracer that exports spans by OTLP/HTTP, and a function that sends the
// last ones. The standard variables of OpenTelemetry configure it, which the SDK reads. The
// tracer is nil unless they name an endpoint. A collector that does not respond delays no
// request: spans that find the SDK's queue full are dropped.
func newTracer(ctx context.Context, log *zap.Logger) (tracer trace.Tracer, flush func(), err error) {
	if on, err := tracingOn(); err != nil || !on {
		return nil, func() {}, err
	}
	log = log.Named("tracing")
	warn := func(err error) { log.Warn("cannot trace", zap.Error(err)) }
	otel.SetErrorHandler(otel.ErrorHandlerFunc(warn))
	// Without the values, which may be headers with a password.
	withoutValues := funcr.Options{RenderArgsHook: func([]any) []any { return nil }}
	otel.SetLogger(funcr.New(func(_, message string) { warn(errors.New(message)) }, withoutValues))

	about, err := resource.New(ctx, resource.WithTelemetrySDK(),
		resource.WithAttributes(semconv.ServiceName("plantstore"), semconv.ServiceVersion(version)), resource.WithFromEnv())
	if err != nil {
		return nil, nil, usageError(errors.New("OTEL_RESOURCE_ATTRIBUTES must be a list of key=value, separated by commas"))
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, nil, usageError(fmt.Errorf("OTEL_EXPORTER_OTLP_*: %w", err))
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(about))
	flush = func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil {
			log.Warn("the last spans were not sent", zap.Error(err))
		}
	}
	return provider.Tracer("plantstore"), flush, nil
}

// tracingOn reports whether the environment names an endpoint for spans.
func tracingOn() (on bool, err error) {
	for _, name := range []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"} {
		endpoint := strings.TrimSpace(os.Getenv(name))
		if endpoint == "" {
			continue
		}
		on = true
		// Without the value, which may have a password. The SDK would use its default instead.
		if u, err := url.Parse(endpoint); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return false, usageError(fmt.Errorf("%s must be the URL of an OTLP/HTTP endpoint, such as http://127.0.0.1:4318", name))
		}
	}
	disabled := strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") || os.Getenv("OTEL_TRACES_EXPORTER") == "none"
	return on && !disabled, nil
}
