// Package otlp exports spans by OTLP over HTTP. It is configured by the environment
// variables of OpenTelemetry alone; without them no spans are made.
package otlp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
)

// The variables that this package reads itself. The OpenTelemetry SDK reads others:
// OTEL_EXPORTER_OTLP_* of the exporter, OTEL_TRACES_SAMPLER, OTEL_BSP_*,
// OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME.
const (
	disabledVariable       = "OTEL_SDK_DISABLED"
	exporterVariable       = "OTEL_TRACES_EXPORTER"
	endpointVariable       = "OTEL_EXPORTER_OTLP_ENDPOINT"
	tracesEndpointVariable = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	protocolVariable       = "OTEL_EXPORTER_OTLP_PROTOCOL"
	tracesProtocolVariable = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
)

// protocol is the supported value of the protocol variables, and the default of OpenTelemetry.
const protocol = "http/protobuf"

// Enabled reports whether the environment configures an exporter: an endpoint, or
// OTEL_TRACES_EXPORTER=otlp for the default endpoint. Its error names the variable that is
// wrong.
func Enabled(lookup func(string) string) (bool, error) {
	if strings.EqualFold(lookup(disabledVariable), "true") {
		return false, nil
	}
	on := lookup(endpointVariable) != "" || lookup(tracesEndpointVariable) != ""
	switch v := lookup(exporterVariable); v {
	case "":
	case "none":
		return false, nil
	case "otlp":
		on = true
	default:
		return false, fmt.Errorf("%s=%q: use otlp or none", exporterVariable, v)
	}
	for _, name := range []string{tracesProtocolVariable, protocolVariable} {
		if v := lookup(name); on && v != "" && v != protocol {
			return false, fmt.Errorf("%s=%q: use %s", name, v, protocol)
		}
	}
	return on, nil
}

// Start returns a provider of spans that are exported in the background. service and version
// describe the process; OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES take precedence. The
// caller shuts the provider down, which exports the last spans. Errors of the export are
// logged: they neither delay nor fail the work of the process.
func Start(ctx context.Context, service, version string, log *slog.Logger) (*sdktrace.TracerProvider, error) {
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("create the exporter of spans: %w", err)
	}
	own := resource.NewWithAttributes(semconv.SchemaURL, semconv.ServiceName(service), semconv.ServiceVersion(version))
	environment, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithHost(), resource.WithFromEnv())
	if err != nil && !errors.Is(err, resource.ErrPartialResource) {
		return nil, errors.Join(fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err), exporter.Shutdown(ctx))
	}
	described, err := resource.Merge(own, environment)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("describe the process in spans: %w", err), exporter.Shutdown(ctx))
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		log.Warn("cannot export spans", "component", "opentelemetry", "err", err)
	}))
	return sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(described)), nil
}
