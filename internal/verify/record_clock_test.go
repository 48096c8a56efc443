package verify

import (
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// writeAt stores an event as written at a time.
func (b *fixture) writeAt(e outbox.Event, at time.Time) {
	b.t.Helper()
	batch := b.session.Batch(gocql.LoggedBatch).WithTimestamp(at.UnixMicro())
	if err := outbox.Append(batch, e); err != nil {
		b.t.Fatal(err)
	}
	if err := batch.Exec(); err != nil {
		b.t.Fatal(err)
	}
}

// Records are dated by a clock that is up to a day behind those of the writers, or ahead. No event
// that is about to expire, or whose record was deleted, is missing; one that was not published is,
// where the topic can show it.
func TestVerifier_RecordClockDiffers(t *testing.T) {
	t.Parallel()
	for _, ahead := range []time.Duration{0, -time.Hour, -23 * time.Hour, time.Hour} {
		t.Run(ahead.String(), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			now := time.Now().UTC().Truncate(time.Millisecond)
			const ttl = 7 * 24 * time.Hour
			// The log refuses writes of days ago.
			for _, option := range []string{"default_time_to_live = 604800", "cdc = {'enabled': false}"} {
				if err := b.session.Query("ALTER TABLE outbox_messages WITH " + option).Exec(); err != nil {
					t.Fatal(err)
				}
			}
			publish := func(e outbox.Event) {
				r := &kgo.Record{Topic: e.Type, Key: e.Key(), Value: e.Payload, Timestamp: e.CreatedAt.Add(ahead + time.Second)}
				r.Headers = outbox.AppendHeaders(r.Headers, &e, source)
				if err := b.client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
					t.Fatal(err)
				}
			}
			store := func(aggregate int, at time.Time) outbox.Event {
				e := event(aggregate, 1)
				e.CreatedAt = at
				b.writeAt(e, at)
				return e
			}
			// Topic A has all records, topic B has deleted the first one.
			for i, at := range []time.Time{now.Add(-ttl + 30*time.Minute), now.Add(-48 * time.Hour), now.Add(-10 * time.Hour)} {
				publish(store(2*i+1, at))
			}
			lost := store(21, now.Add(-5*time.Hour))
			for i, at := range []time.Time{now.Add(-72*time.Hour - 30*time.Minute), now.Add(-72 * time.Hour), now.Add(-10 * time.Hour)} {
				publish(store(2*i+2, at))
			}
			if _, err := kadm.NewClient(b.client).DeleteRecords(t.Context(), kadm.Offsets{"B": {0: {Topic: "B", Partition: 0, At: 1}}}); err != nil {
				t.Fatal(err)
			}
			var log strings.Builder
			want := map[string]int{"published": 5, "missing": 1, "unverifiable": 1}
			b.check(b.verifier(&log), want, lost)
		})
	}
}
