package doctor

import (
	"context"
	"fmt"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/rows"
	"github.com/scylla-outbox/scylla-outbox/relay"
)

const (
	// sampleRows limits the rows that are read of a table, sampleEvents the rows of one partition.
	sampleRows   = 1000
	sampleEvents = 20
)

// sampleTable reads the first rows of a table, without payloads, and looks for events that
// contradict each other. sampled describes the rows that were read.
func sampleTable(ctx context.Context, conf *relay.Config) (sampled, problem, fix string, err error) {
	columns, err := outbox.ReadColumns(ctx, conf.Session, conf.TableKeyspace, conf.Table)
	if err != nil {
		return "", "", "", fmt.Errorf("read the columns of %s.%s: %w", conf.TableKeyspace, conf.Table, err)
	}
	table, err := conf.Mapping.Table(conf.TableKeyspace, conf.Table, columns)
	if err != nil {
		return "", "", "", err
	}
	table = rows.Outline(table)
	iter := conf.Session.Query("SELECT "+rows.Columns(table)+" FROM "+table.String()+" PER PARTITION LIMIT ? LIMIT ?", sampleEvents, sampleRows).
		WithContext(ctx).Idempotent(true).Iter()
	var events []outbox.Event
	for sc := rows.NewScanner(table); iter.Scan(sc.Dest()...); {
		if e, err := sc.Event(); err == nil { // the relay reports the others
			events = append(events, e)
		}
	}
	if err := iter.Close(); err != nil {
		return "", "", "", fmt.Errorf("read rows of %s: %w", table, err)
	}
	sampled = fmt.Sprintf("%d events, at most %d of a partition", len(events), sampleEvents)
	problem, fix = contradiction(events)
	return sampled, problem, fix, nil
}

// contradiction returns the first problem that the ids and numbers of events have, with its fix;
// empty if there is none.
func contradiction(events []outbox.Event) (problem, fix string) {
	type number struct {
		aggregate string
		seq       int64
	}
	ids, numbers := make(map[string]*outbox.Event), make(map[number]*outbox.Event)
	for i := range events {
		e := &events[i]
		id, at := e.ID.String(), number{e.AggregateID.String(), e.Sequence}
		const unique = "map event_id to a column whose values are unique in the table, or give each event an id of its own: of several events with one id, the relay publishes the first"
		switch other := ids[id]; {
		case other == nil:
		case other.AggregateID != e.AggregateID:
			return fmt.Sprintf("event id %s has the aggregates %s and %s", id, other.AggregateID.String(), at.aggregate), unique
		default:
			return fmt.Sprintf("event id %s has the numbers %d and %d in aggregate %s", id, other.Sequence, at.seq, at.aggregate), unique
		}
		if other := numbers[at]; other != nil && at.seq > 0 {
			return fmt.Sprintf("number %d of aggregate %s has the events %s and %s", at.seq, at.aggregate, other.ID.String(), id),
				"let one writer at a time number the events of an aggregate, as Appender.AppendNext does: the second event is published behind later ones"
		}
		ids[id], numbers[at] = e, e
	}
	return "", ""
}
