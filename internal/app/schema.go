package app

import (
	"io"
	"log/slog"

	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/daemon"
	"github.com/scylla-outbox/scylla-outbox/schema"
)

// SchemaOptions returns the options of package schema; a nil logger logs nothing.
func (c *Config) SchemaOptions(log *slog.Logger) schema.Options {
	return schema.Options{
		Keyspace:    c.Scylla.Keyspace,
		Replication: c.Scylla.Replication,
		Tablets:     schema.TabletsMode(c.Schema.Tablets),
		CDCTTL:      c.Schema.CDCTTL,
		RowTTL:      c.Schema.RowTTL,
		Logger:      log,
	}
}

// Logger returns the configured logger on w. Errors are of usage.
func (c logConfig) Logger(w io.Writer) (*slog.Logger, error) {
	log, err := daemon.NewLogger(w, c.Level, c.Format)
	if err != nil {
		return nil, cli.Usage(err)
	}
	return log, nil
}
