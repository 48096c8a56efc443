package verify

import (
	"fmt"
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

// storeAt writes event 1 of an aggregate, made at a time, with this write time.
func (b *fixture) storeAt(aggregate int, at time.Time) outbox.Event {
	b.t.Helper()
	e := event(aggregate, 1)
	e.CreatedAt = at
	b.writeAt(e, at)
	return e
}

// publishAt produces the record of an event with a timestamp.
func (b *fixture) publishAt(topic string, e outbox.Event, at time.Time) {
	b.t.Helper()
	r := &kgo.Record{Topic: topic, Key: e.Key(), Value: e.Payload, Timestamp: at}
	r.Headers = outbox.AppendHeaders(r.Headers, &e, source)
	if err := b.client.ProduceSync(b.t.Context(), r).FirstErr(); err != nil {
		b.t.Fatal(err)
	}
}

// Records are dated by a clock that is up to a day behind the clocks of the writers, or ahead. No
// event that is about to expire, or whose record was deleted, is missing; one that was not
// published is, where the topic can show it.
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
			publish := func(e outbox.Event) { b.publishAt(e.Type, e, e.CreatedAt.Add(ahead+time.Second)) }
			store := b.storeAt
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

// As above for a verification, with and without a window, where the broker dates records. Events
// whose records are dated before the window are published, also the events of an aggregate in two
// topics whose brokers' clocks differ.
func TestVerification_RecordClockDiffers(t *testing.T) {
	t.Parallel()
	for _, ahead := range []time.Duration{0, -time.Hour, -23 * time.Hour, time.Hour} {
		for _, since := range []time.Duration{0, 6 * time.Hour} {
			t.Run(fmt.Sprintf("%s since %s", ahead, since), func(t *testing.T) {
				t.Parallel()
				b := setup(t)
				now := time.Now().UTC().Truncate(time.Millisecond)
				if err := b.session.Query("ALTER TABLE outbox_messages WITH cdc = {'enabled': false}").Exec(); err != nil {
					t.Fatal(err) // the log refuses writes of days ago
				}
				publish := func(topic string, e outbox.Event, ahead time.Duration) {
					b.publishAt(topic, e, e.CreatedAt.Add(ahead+time.Second))
				}
				store := b.storeAt
				for i, at := range []time.Duration{30 * time.Hour, 5 * time.Hour, 4*time.Hour + 30*time.Minute, 2 * time.Hour} {
					publish("A", store(2*i+1, now.Add(-at)), ahead)
				}
				store(21, now.Add(-3*time.Hour)) // not published
				// Topic B has deleted the first record.
				deleted, kept := store(2, now.Add(-4*time.Hour)), store(4, now.Add(-4*time.Hour+time.Minute))
				publish("B", deleted, ahead)
				publish("B", kept, ahead)
				if _, err := kadm.NewClient(b.client).DeleteRecords(t.Context(), kadm.Offsets{"B": {0: {Topic: "B", Partition: 0, At: 1}}}); err != nil {
					t.Fatal(err)
				}
				got, found := b.run(b.verification(func(v *Verification) {
					if since > 0 {
						v.Window.Since = now.Add(-since)
					}
				}))
				if got.Missing != 1 || got.Untold != 1 || got.Unknown+got.Doubles+got.Disorder != 0 || got.Published < 4 {
					t.Errorf("a verification counts %+v: %v, want one missing event and one that the topic has deleted", got, found)
				}
			})
		}
	}
}

// The brokers of two topics date records by clocks that differ by half a minute: the events of an
// aggregate in both are in order.
func TestLedger_BrokersDateRecords(t *testing.T) {
	t.Parallel()
	for _, appended := range []bool{true, false} {
		l := NewLedger()
		first, second := record(1, 1, 0, 0, 30_000_000), record(1, 2, 1, 0, 1_000_000)
		first.Appended, second.Appended = appended, appended
		if err := l.AddRows(row(1, 1, 1), row(1, 2, 2)); err != nil {
			t.Fatal(err)
		}
		if err := l.AddRecords(first, second); err != nil {
			t.Fatal(err)
		}
		if got := l.Check(Window{}, nil); (got.Disorder == 0) != appended {
			t.Errorf("dated by brokers %t: %d out of order", appended, got.Disorder)
		}
	}
}

// Rows expire by the database's clock: a verification on a host whose clock is an hour behind does
// not report rows that have expired since as missing.
func TestVerify_HostClockIsBehind(t *testing.T) {
	t.Parallel()
	for behind, unknown := range map[time.Duration]int64{0: 1, time.Hour: 0} {
		b := setup(t)
		for _, option := range []string{"default_time_to_live = 3600", "cdc = {'enabled': false}"} {
			if err := b.session.Query("ALTER TABLE outbox_messages WITH " + option).Exec(); err != nil {
				t.Fatal(err)
			}
		}
		b.db.Faults().Clock().SetSkew(behind)
		e := event(1, 1)
		e.CreatedAt = time.Now().Add(-30 * time.Minute)
		b.publishAt("A", e, e.CreatedAt)
		if got, found := b.run(b.verification(func(v *Verification) { v.Topics = []string{"A"} })); got.Unknown != unknown {
			t.Errorf("behind by %s: a verification counts %+v: %v, want %d unknown", behind, got, found, unknown)
		}
	}
}
