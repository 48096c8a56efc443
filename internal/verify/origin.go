package verify

import (
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// origin identifies the records of a table's events: an id is unique for its source and table
// only. An empty field matches every record.
type origin struct {
	source string // ce_source
	table  string // ce_table: the name with its keyspace; a record of an earlier version has none
}

// event returns the event of a record and its epoch; ok is false if it is none, or has another
// origin. An edited event has the id of its original, as which it counts.
func (o origin) event(r *kgo.Record) (e outbox.Event, epoch int64, ok bool) {
	if o.table != "" {
		for _, h := range r.Headers {
			if h.Key == outbox.HeaderTable && string(h.Value) != o.table {
				return e, 0, false
			}
		}
	}
	record, err := outbox.FromRecord(r.Key, r.Value, r.Headers)
	if err != nil || o.source != "" && record.Source != o.source {
		return e, 0, false
	}
	if !record.OriginalID.IsZero() {
		record.ID = record.OriginalID
	}
	return record.Event, record.Epoch, true
}
