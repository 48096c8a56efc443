package cdclog

import (
	"testing"
	"time"

	"github.com/gocql/gocql"
	scyllacdc "github.com/scylladb/scylla-cdc-go"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/failure"
)

// fakeRow is a row of the log as scylla-cdc-go represents it.
type fakeRow struct {
	op     scyllacdc.OperationType
	values map[string]any
}

func (r fakeRow) GetOperation() scyllacdc.OperationType { return r.op }

func (r fakeRow) GetValue(column string) (any, bool) {
	v, ok := r.values[column]
	return v, ok
}

func fullRow(op scyllacdc.OperationType, change map[string]any) fakeRow {
	e := outbox.Event{
		ID: outbox.IDFromUUID(gocql.UUID{1}), AggregateID: outbox.IDFromUUID(gocql.UUID{2}), Sequence: 2, AggregateType: "order", Type: "OrderUpdated",
		CreatedAt: time.Now().UTC().Truncate(time.Millisecond), Payload: []byte(`{"aggregate":1,"seq":2}`),
	}
	id, aggregate := e.ID.UUID(), e.AggregateID.String()
	r := fakeRow{op, map[string]any{
		"aggregate_id": &aggregate, "seq": &e.Sequence, "event_id": &id, "aggregate_type": &e.AggregateType,
		"event_type": &e.Type, "payload": e.Payload, "content_type": (*string)(nil), "headers": map[string]string(nil),
		"created_at": &e.CreatedAt, "deliver_at": (*time.Time)(nil),
	}}
	for k, v := range change {
		r.values[k] = v
	}
	return r
}

func TestDecodeEvent(t *testing.T) {
	t.Parallel()
	noID := map[string]any{"event_id": (*gocql.UUID)(nil)}
	at := time.UnixMilli(1_800_000_000_000).UTC()
	written := gocql.MinTimeUUID(at)
	due := func(after time.Duration) map[string]any {
		at := at.Add(after)
		return map[string]any{"deliver_at": &at}
	}
	for _, tt := range []struct {
		name string
		row  fakeRow
		ok   bool
		bad  bool
	}{
		{"insert", fullRow(scyllacdc.Insert, nil), true, false},
		{"update that writes the whole row", fullRow(scyllacdc.Update, nil), true, false},
		{"null columns of an insert with a TTL", fullRow(scyllacdc.Update, noID), false, false},
		{"row delete", fullRow(scyllacdc.RowDelete, nil), false, false},
		{"partition delete", fullRow(scyllacdc.PartitionDelete, nil), false, false},
		{"preimage", fullRow(scyllacdc.PreImage, nil), false, false},
		{"postimage", fullRow(scyllacdc.PostImage, nil), false, false},
		{"insert without an event id", fullRow(scyllacdc.Insert, noID), false, true},
		{"insert due at the limit", fullRow(scyllacdc.Insert, due(outbox.MaxDelay)), true, false},
		{"insert due beyond the limit", fullRow(scyllacdc.Insert, due(outbox.MaxDelay+time.Millisecond)), false, true},
		{"update due beyond the limit", fullRow(scyllacdc.Update, due(time.Hour)), false, true},
		{"insert without a type", fullRow(scyllacdc.Insert, map[string]any{"event_type": (*string)(nil)}), false, true},
		{"column of another type", fullRow(scyllacdc.Insert, map[string]any{"seq": new(int32)}), false, true},
		{"another table", fakeRow{scyllacdc.Update, map[string]any{"v": new(int)}}, false, true},
	} {
		e, ok, err := DecodeEvent(&outbox.DefaultTable, tt.row, written)
		if ok != tt.ok || (err != nil) != tt.bad {
			t.Errorf("%s: eventOf() = %v, %v, want ok %v, an error %v", tt.name, ok, err, tt.ok, tt.bad)
		}
		if err != nil && failure.Classify(err) != failure.Permanent {
			t.Errorf("%s: Classify(%v) = %v, want permanent", tt.name, err, failure.Classify(err))
		}
		if ok && (e.Sequence != 2 || e.ID.UUID() != gocql.UUID{1}) {
			t.Errorf("%s: eventOf() = %+v", tt.name, e)
		}
	}
}
