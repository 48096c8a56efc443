package app

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/gocql/gocql"
	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/daemon"
	tracing "github.com/scylla-outbox/scylla-outbox/internal/trace"
	"github.com/scylla-outbox/scylla-outbox/internal/trace/otlp"
)

// spansTimeout bounds the export of the last spans when a process ends.
const spansTimeout = 5 * time.Second

// Trace makes the parts that are created with c later record spans, if the variables of
// OpenTelemetry configure an exporter. service is the default of service.name.
func Trace(ctx context.Context, c *Config, service string, log *slog.Logger, teardown *daemon.Teardown) error {
	on, err := otlp.Enabled(os.Getenv)
	if err != nil {
		return cli.Usage(err)
	}
	if !on {
		return nil
	}
	provider, err := otlp.Start(ctx, service, cli.Version, log)
	if err != nil {
		return err
	}
	teardown.Add("spans", func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), spansTimeout)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil {
			log.Warn("the last spans are not exported", "err", err)
		}
		return nil
	})
	c.Tracer = provider
	return nil
}

// databaseSystem is the value of db.system.name; OpenTelemetry defines none for ScyllaDB.
const databaseSystem = "scylladb"

// recording reports whether ctx has a span that is recorded.
func recording(ctx context.Context) bool { return trace.SpanFromContext(ctx).IsRecording() }

// statementSpan records a request to the database as a child of the span in ctx.
func statementSpan(ctx context.Context, operation string, began, ended time.Time, keyspace string, host *gocql.HostInfo, failure error, more ...attribute.KeyValue) {
	_, span := tracing.Tracer(trace.SpanFromContext(ctx).TracerProvider()).Start(ctx, operation,
		trace.WithSpanKind(trace.SpanKindClient), trace.WithTimestamp(began),
		trace.WithAttributes(semconv.DBSystemNameKey.String(databaseSystem), semconv.DBOperationName(operation), semconv.DBNamespace(keyspace)),
		trace.WithAttributes(more...))
	if host != nil {
		span.SetAttributes(semconv.ServerAddress(host.ConnectAddress().String()))
	}
	tracing.Fail(span, failure)
	span.End(trace.WithTimestamp(ended))
}

// statementOperation returns the first word of a statement.
func statementOperation(statement string) string {
	word, _, _ := strings.Cut(strings.TrimSpace(statement), " ")
	return strings.ToUpper(word)
}
