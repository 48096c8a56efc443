package verify

import (
	"strings"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// A record of another source or table is another event, also with the same id: it neither proves
// that the event of a row is published nor that the database has lost a row. The same holds
// for an edited event, which counts as its original.
func TestOrigin_OfRecords(t *testing.T) {
	t.Parallel()
	const table = "outbox.outbox_messages"
	for _, tt := range []struct {
		name string
		from origin
		own  bool
	}{
		{"this source and table", origin{source, table}, true},
		{"this source, from an earlier version", origin{source, ""}, true},
		{"another source with this table", origin{"/another", table}, false},
		{"another source, from an earlier version", origin{"/another", ""}, false},
		{"a source that begins with this one", origin{source + "/2", table}, false},
		{"a table of another keyspace", origin{source, "bank.outbox_messages"}, false},
		{"another source and table", origin{"/another", "bank.orders"}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			stored, edited, gone := event(1, 1), event(2, 1), event(4, 1)
			b.write(stored, event(3, 1), edited)
			b.publish(0, event(3, 1))
			edit := outbox.Record{Event: edited, OriginalID: edited.ID}
			edit.ID = outbox.IDFromUUID(id(9, 9))
			b.publishFrom(tt.from, 1, outbox.Record{Event: stored}, edit, outbox.Record{Event: gone})

			want := Counts{Rows: 3, Published: 1, Missing: 2, Foreign: 3}
			if tt.own {
				want = Counts{Rows: 3, Published: 3, Unknown: 1}
			}
			got, found := b.run(b.verification())
			if got.Young, got.Pending = 0, 0; got != want {
				t.Errorf("a verification counts %+v, want %+v: %v", got, want, found)
			}
			var log strings.Builder
			v := b.verifier(&log)
			if !tt.own {
				b.check(v, map[string]int{"published": 1, "missing": 2}, stored, edited)
				b.publish(1, stored, edited)
			}
			b.check(v, map[string]int{"published": 3})
		})
	}
}
