package relay

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/failure"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/checkpoint"
)

// AnotherRelayError is returned by the first start of a relay with a table that relays of other
// names or keyspaces have begun to publish: it would publish all events again. It is Fatal.
type AnotherRelayError struct {
	Name, Table string
	// Others are the other relays, NAME or NAME in KEYSPACE.
	Others []string
}

// Error returns the names and the ways to continue.
func (e *AnotherRelayError) Error() string {
	others := strings.Join(e.Others, ", ")
	return fmt.Sprintf("relay %s has never published %s, and relay %s has: it would publish every event that has a row again; "+
		"set relay.name and scylla.keyspace to those of relay %s, or set --backfill-from to the time since which this relay publishes events, also those that the others have published (1970-01-01T00:00:00Z for all)",
		e.Name, e.Table, others, others)
}

// Class is Fatal: the relay cannot start until the operator has decided.
func (e *AnotherRelayError) Class() failure.Class { return failure.Fatal }

// followAnother refuses the first start of a relay with a table that others have begun to publish,
// unless BackfillFrom states the time from which to publish it too: the relay then begins at that
// time, as if it had stopped there. published is the time since when the relay may have published
// with another number of shards.
func (x *pass) followAnother(ctx context.Context, published time.Time) error {
	return x.untilRead(ctx, "cannot read which relays have published the outbox table; nothing is published before that", func() error {
		generation, first, err := x.store.Start(ctx)
		if err != nil || !generation.IsZero() || !first.IsZero() || !published.IsZero() {
			return err
		}
		table := x.cfg.TableKeyspace + "." + x.cfg.Table
		others, err := checkpoint.Others(ctx, x.cfg.Session, x.cfg.Keyspace, x.cfg.Name, table)
		if err != nil || len(others) == 0 {
			return err
		}
		from := x.cfg.BackfillFrom
		if from.IsZero() {
			return &AnotherRelayError{Name: x.cfg.Name, Table: table, Others: others}
		}
		now := x.cfg.clock.Now()
		if oldest := now.Add(-x.cfg.FirstAge); !x.table.Numbered() && from.Before(oldest) {
			return &outbox.MappingError{
				Table: table, Problem: "cannot be scanned: it has no sequence numbers", Fix: "set --backfill-from to " + oldest.Add(time.Minute).UTC().Format(time.RFC3339) + " or later: the relay reads the events of the CDC log",
			}
		}
		from = checkpoint.Earliest(from, now.Add(-x.cfg.ConfidenceWindow)).Truncate(time.Millisecond)
		x.log.Warn("publishing a table that other relays have published", "others", others, "written_from", from.UTC())
		return x.store.SaveFirst(ctx, from)
	})
}
