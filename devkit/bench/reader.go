package bench

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/gocql/gocql"
	scyllacdc "github.com/scylladb/scylla-cdc-go"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/rows"
)

// Reader is the simplest alternative to a relay: scylla-cdc-go, and a producer that is
// given each event as it comes. It keeps no checkpoint, adds no retries, and knows no
// order but the log's.
type Reader struct {
	Session *gocql.Session
	Client  *kgo.Client
	// Table is keyspace.table; Topic is the topic of all events, empty for an event's
	// type.
	Table, Topic string
	// Window and Delay are the library's confidence window, and its delays after
	// queries with rows and without; zero for the library's defaults.
	Window, Delay time.Duration
	// Age is the age of the changes that it starts with.
	Age    time.Duration
	Logger scyllacdc.Logger
}

// Run reads until ctx ends.
func (r *Reader) Run(ctx context.Context) error {
	conf := scyllacdc.AdvancedReaderConfig{ChangeAgeLimit: r.Age}
	if r.Window > 0 {
		conf.ConfidenceWindowSize = r.Window
	}
	if r.Delay > 0 {
		conf.PostNonEmptyQueryDelay, conf.PostEmptyQueryDelay = r.Delay, r.Delay
		conf.QueryTimeWindowSize = time.Hour
	}
	reader, err := scyllacdc.NewReader(ctx, &scyllacdc.ReaderConfig{
		Session: r.Session, TableNames: []string{r.Table}, Consistency: gocql.LocalQuorum,
		ChangeConsumerFactory: scyllacdc.MakeChangeConsumerFactoryFromFunc(r.consume),
		Logger:                r.Logger, Advanced: conf,
	})
	if err != nil {
		return fmt.Errorf("start the CDC reader: %w", err)
	}
	if err := reader.Run(ctx); err != nil && ctx.Err() == nil {
		return fmt.Errorf("read the CDC log: %w", err)
	}
	return nil
}

func (r *Reader) consume(ctx context.Context, _ string, c scyllacdc.Change) error {
	for _, row := range c.Delta {
		if row.GetOperation() != scyllacdc.Insert {
			continue
		}
		e, err := rows.FromRow(outbox.DefaultTable, row)
		if err != nil {
			return err
		}
		r.Client.Produce(ctx, NewRecord(&e, cmp.Or(r.Topic, e.Type)), nil)
	}
	return nil
}
