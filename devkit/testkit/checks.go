package testkit

import (
	"bytes"
	"context"
	"encoding/json"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/verify"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay"
)

// Published waits until each of these events is in a topic, and returns their records in the same
// order. It ends the test after Patience, or if a record differs from its event in type,
// aggregate, number or payload, or an event is in the topics twice.
func (k *Kit) Published(events ...outbox.Event) []*kgo.Record {
	k.t.Helper()
	found := make([]*kgo.Record, len(events))
	missing := 0
	for end := time.Now().Add(Patience); ; time.Sleep(10 * time.Millisecond) {
		byID := k.byID()
		missing = 0
		for i := range events {
			switch rs := byID[events[i].ID]; len(rs) {
			case 0:
				missing++
			case 1:
				found[i] = rs[0]
			default:
				k.t.Fatalf("event %s is in topic %s at offset %d and in topic %s at offset %d", events[i].ID, rs[0].Topic, rs[0].Offset, rs[1].Topic, rs[1].Offset)
			}
		}
		if missing == 0 {
			break
		}
		if time.Now().After(end) {
			k.t.Fatalf("%d of %d events are in no topic after %s", missing, len(events), Patience)
		}
	}
	for i, r := range found {
		got, err := outbox.FromRecord(r.Key, r.Value, r.Headers)
		want := &events[i]
		if err != nil || got.Type != want.Type || got.AggregateID != want.AggregateID || got.AggregateType != want.AggregateType ||
			got.Sequence != want.Sequence || !bytes.Equal(got.Payload, want.Payload) || (got.Payload == nil) != (want.Payload == nil) {
			k.t.Fatalf("the record of event %s is %+v, %v; want %+v", want.ID, got, err, want)
		}
	}
	return found
}

// byID returns the records of the topics by event.
func (k *Kit) byID() map[outbox.ID][]*kgo.Record {
	byID := make(map[outbox.ID][]*kgo.Record)
	for _, r := range k.records.of("") {
		if e, err := outbox.FromRecord(r.Key, r.Value, r.Headers); err == nil {
			byID[e.ID] = append(byID[e.ID], r)
		}
	}
	return byID
}

// NothingLost waits until every event of the relay's tables is in its topic, and checks that it
// is there once and in the order of its aggregate, and that every event of the topics is in its
// table. It returns the number of events; each problem fails the test. The tables need sequence
// numbers.
func (k *Kit) NothingLost() (events int) {
	k.t.Helper()
	for i := range k.tables {
		events += k.nothingLost(&k.tables[i])
	}
	return events
}

func (k *Kit) nothingLost(table *relay.Config) int {
	k.t.Helper()
	best, end := int64(-1), time.Now().Add(Patience)
	for {
		counts, findings := k.verify(table)
		if counts.Published > best { // a busy machine is slow, but makes progress
			best, end = counts.Published, time.Now().Add(Patience)
		}
		if counts.Missing > 0 && time.Now().Before(end) {
			time.Sleep(100 * time.Millisecond)
			continue
		}
		if counts.Verdict() == verify.VerdictProblems {
			k.t.Errorf("table %s: of %d events %d are lost, %d twice, %d out of order, %d numbers missing, %d rows no events, %d events without a row, %d with the number of another one\n%s", app.TableName(table),
				counts.Rows, counts.Missing, counts.Doubles, counts.Disorder, counts.Gaps, counts.Unreadable, counts.Unknown, counts.Conflicts, findings)
		}
		return int(counts.Rows)
	}
}

// findingsShown bounds the findings that a failed check shows.
const findingsShown = 10

// verify compares a table with the topics.
func (k *Kit) verify(table *relay.Config) (verify.Counts, []byte) {
	k.t.Helper()
	v, err := k.conf.Verification(k.t.Context(), table, k.session)
	if err != nil {
		k.t.Fatal(err)
	}
	v.Scan.Ranges, v.Window.Until = tokens, time.Now()
	if err := v.Run(k.t.Context()); err != nil {
		k.t.Fatal(err)
	}
	var findings bytes.Buffer
	shown := 0
	counts := v.Ledger().Check(v.Window, func(f verify.Finding) {
		if shown++; shown <= findingsShown {
			_ = json.NewEncoder(&findings).Encode(f) // texts and numbers
		}
	})
	return counts, findings.Bytes()
}

// ConsumedOnce delivers the records of a topic to a consumer as Kafka does at least once: in the
// order of each partition, again from an earlier offset at random moments, as after a rebalance,
// and all of them again at the end. effects then returns how often the effect of an event is
// stored: once for every event, or the test fails. An error of consume fails the test.
func (k *Kit) ConsumedOnce(topic string, consume func(context.Context, *kgo.Record) error, effects func(context.Context, outbox.ID) (int, error)) {
	k.t.Helper()
	all := k.Records(topic)
	if len(all) == 0 {
		k.t.Errorf("topic %s has no record", topic)
	}
	deliver := func(r *kgo.Record) {
		if err := consume(k.t.Context(), r); err != nil {
			k.t.Errorf("consume %s[%d]@%d: %v", r.Topic, r.Partition, r.Offset, err)
		}
	}
	byPartition := make(map[int32][]*kgo.Record)
	for _, r := range all {
		deliver(r)
		done := append(byPartition[r.Partition], r)
		byPartition[r.Partition] = done
		if k.rnd.IntN(4) == 0 {
			for _, again := range done[k.rnd.IntN(len(done)):] {
				deliver(again)
			}
		}
	}
	for _, r := range all {
		deliver(r)
	}
	for _, r := range all {
		e, err := outbox.FromRecord(r.Key, r.Value, r.Headers)
		if err != nil {
			k.t.Errorf("%s[%d]@%d is no event: %v", r.Topic, r.Partition, r.Offset, err)
			continue
		}
		if n, err := effects(k.t.Context(), e.ID); n != 1 || err != nil {
			k.t.Errorf("the effect of event %s is stored %d times, %v; want once", e.ID, n, err)
		}
	}
}
