package relay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/rows"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/capture"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
)

// errEnough ends the read of Written at its limit.
var errEnough = errors.New("enough events")

// Unread returns the number of events in the CDC log that were written since a time, at most
// limit: of the shard of cfg, or of the whole table without one. While no relay reads the log,
// they wait. It only reads, and requires Session, Keyspace, Name and the table of cfg.
func Unread(ctx context.Context, cfg Config, since time.Time, limit int) (n int, err error) {
	err = Written(ctx, cfg, since, limit, func(WrittenEvent) { n++ })
	return n, err
}

// WrittenEvent is an event in the CDC log, without its content.
type WrittenEvent struct {
	outbox.Event
	// First and At are its first and its last write since the time: an event is written again to
	// settle it, or because its batch was repeated.
	First, At time.Time
}

// Written is Unread that calls each for the events, in the order of the streams of the log.
func Written(ctx context.Context, cfg Config, since time.Time, limit int, each func(WrittenEvent)) error {
	type identity struct {
		id, aggregate outbox.ID
		sequence      int64
	}
	var events []WrittenEvent
	known := make(map[identity]int)
	err := readWritten(ctx, cfg, since, func(row *cdclog.Row) error {
		e := WrittenEvent{Event: row.Event, First: row.Time.Time(), At: row.Time.Time()}
		of := identity{e.ID, e.AggregateID, e.Sequence}
		if i, ok := known[of]; ok {
			w := &events[i]
			if e.At.Before(w.First) {
				w.First = e.At
			}
			if e.At.After(w.At) {
				w.At = e.At
			}
			return nil
		}
		known[of] = len(events)
		if events = append(events, e); len(events) == limit {
			return errEnough
		}
		return nil
	})
	for i := range events {
		each(events[i])
	}
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// readWritten reads the rows of the CDC log that add events, also those that write one again.
func readWritten(ctx context.Context, cfg Config, since time.Time, each func(*cdclog.Row) error) error {
	cfg = cfg.withDefaults()
	table, _, err := readTable(ctx, &cfg)
	if err != nil {
		return err
	}
	own := cdclog.PortionOf(cfg.Shard, table)
	if own.None() {
		return nil // another shard processes the whole table
	}
	generations := cdclog.NewGenerations(cfg.Session, cfg.TableKeyspace, cfg.Table, &own)
	starts, err := generations.Times(ctx)
	if err != nil {
		return err
	}
	slices.SortFunc(starts, time.Time.Compare)
	reader := cdclog.NewReader(cfg.Session, rows.Outline(table), &own)
	now := time.Now()
	for i, start := range starts {
		if start.After(now) || i+1 < len(starts) && starts[i+1].Before(since) {
			continue
		}
		g, err := generations.Generation(ctx, start)
		if err != nil {
			return err
		}
		for streams := range slices.Chunk(g.Streams, capture.GroupStreams) {
			_, err := reader.Read(ctx, cdclog.NewStreamList(streams...), max(since.UnixMicro(), 0), 0, true,
				func([]byte, cdclog.RowKey) bool { return false }, func(row *cdclog.Row) error {
					if row.Insert {
						return each(row)
					}
					return nil
				})
			if err != nil {
				return fmt.Errorf("read the events of %s in the CDC log: %w", table, err)
			}
		}
	}
	return nil
}
