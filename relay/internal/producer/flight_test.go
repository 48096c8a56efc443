package producer

import (
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/topics"
)

// The records of a flight stay in one batch: the partitioner rejects a record that would begin
// another one, and all later records, also if another flight has begun that batch.
func TestPartitioner_KeepsAFlightInOneBatch(t *testing.T) {
	t.Parallel()
	const partitions = 3
	keys := make(map[*Flight][]byte)
	topic := partitioner(&topics.Partitions{Log: relaytest.Logger(t)}).ForTopic("OrderCreated").(*flightsOfTopic)
	record := func(f *Flight) *kgo.Record { return &kgo.Record{Key: keys[f], Context: f} }
	// as calls the partitioner like the client; batch means that r would begin a batch.
	as := func(r *kgo.Record, batch bool) int {
		p := topic.Partition(r, partitions)
		if p >= 0 && batch {
			topic.OnNewBatch()
			p = topic.Partition(r, partitions)
		}
		return p
	}
	a, b := new(Flight), new(Flight)
	for i, f := range []*Flight{a, b} {
		f.Init(nil)
		e := relaytest.Event(i, 1, "OrderCreated")
		keys[f] = e.AggregateID.UUID().Bytes()
	}
	first := as(record(a), true)
	if first < 0 {
		t.Fatalf("the first record of a flight goes to %d", first)
	}
	if p := as(record(a), false); p != first {
		t.Errorf("the next one goes to %d, want %d, where it joins the batch", p, first)
	}
	if p := topic.Partition(record(a), 1000); p != first {
		t.Errorf("with more partitions the next one goes to %d, want %d, where the others are", p, first)
	}
	r := record(a)
	if p := as(r, true); p != rejected || !Rejected(r) {
		t.Errorf("one that would begin another batch goes to %d, want it rejected", p)
	}
	if p := as(record(b), true); p < 0 {
		t.Errorf("a record of another flight goes to %d", p)
	}
	r = record(a)
	if p := as(r, false); p != rejected || !Rejected(r) {
		t.Errorf("one behind what was rejected goes to %d, want it rejected too", p)
	}
	a.End()
	if p := as(record(a), true); p != first {
		t.Errorf("when all are back the next one goes to %d, want %d", p, first)
	}
	keys[b] = keys[a] // in the same partition
	b.End()
	if p := as(record(b), true); p != first {
		t.Errorf("a record of another flight goes to %d, want %d", p, first)
	}
	r = record(a)
	if p := as(r, false); p != rejected || !Rejected(r) {
		t.Errorf("one that would join the batch of another flight goes to %d, want it rejected", p)
	}
	if p := as(record(b), false); p != first {
		t.Errorf("the next one of that flight goes to %d, want %d", p, first)
	}
	a.End()
	if p := as(record(a), false); p != first {
		t.Errorf("with none outstanding a flight joins no batch of another one: %d, want %d", p, first)
	}
}

// Records that no request contains can be recalled, also if their flight began before another one's
// record was written.
func TestFlight_IsRecalledUnlessItsRecordsWereWritten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := new(kfake.VirtualNetwork) // without a broker
		p, err := New(Config{
			Brokers: []string{"127.0.0.1:9092"}, Kafka: []kgo.Opt{kgo.Dialer(net.DialContext)}, MaxRecordBytes: 1 << 20, MaxRecords: 10, Logger: relaytest.Logger(t),
		}, ignore{})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		var flights [2]Flight
		for i := range flights {
			flights[i].Init(p)
			flights[i].Begin("OrderCreated")
		}
		for i := range flights {
			p.Send(&flights[i], &Slot{Record: kgo.Record{Topic: "OrderCreated"}}, sender(make(chan error, 1)))
			if i == 0 {
				raise(&p.client.written, &p.client.passed)
			}
		}
		for i, want := range []error{nil, ErrRecalled} {
			flights[i].Recall()
			if err := flights[i].Err(); !errors.Is(err, want) {
				t.Errorf("the error of flight %d is %v, want %v", i, err, want)
			}
		}
	})
}

// Records are not sent to a gated partition, however many partitions the topic has when
// they are compared and when they are sent.
func TestPartitionCounts_Gates(t *testing.T) {
	t.Parallel()
	c := topics.Partitions{Log: slog.New(slog.DiscardHandler)}
	c.Gate("OrderUpdated", 1, 3)
	c.Gate("OrderCreated", -1, 0)
	c.Gate("OrderCreated", -1, 3)
	in := func(key []byte, n int) int { return topics.KeyPartitioner.Partition(&kgo.Record{Key: key}, n) }
	later := partitioner(&c).ForTopic("OrderUpdated")
	var turns, kept int
	for i := range 200 {
		e := relaytest.Event(i, 1, "OrderUpdated")
		if got, want := c.Gated("OrderUpdated", e.Key()), in(e.Key(), 3) == 1; got != want {
			t.Fatalf("gated(%s) = %t, want %t", e.Key(), got, want)
		}
		if !c.Gated("OrderCreated", e.Key()) || c.Gated("OrderCancelled", e.Key()) {
			t.Fatal("gated() is false for a topic whose lookup failed, or true for another one")
		}
		f := new(Flight)
		f.Init(nil)
		p := later.Partition(&kgo.Record{Key: e.Key(), Context: f}, 7)
		if gone := in(e.Key(), 7) == 1; gone != (p == rejected) || gone != f.Rejecting() {
			t.Fatalf("a record of partition %d of 7 is sent to %d", in(e.Key(), 7), p)
		} else if gone {
			turns++
		}
		c.Saw("OrderUpdated", 3)
	}
	c.Saw("OrderUpdated", 7)
	for i := range 200 {
		e := relaytest.Event(i, 1, "OrderUpdated")
		want := in(e.Key(), 3) == 1 || in(e.Key(), 7) == 1
		if got := c.Gated("OrderUpdated", e.Key()); got != want {
			t.Fatalf("gated(%s) = %t after partitions were added, want %t", e.Key(), got, want)
		}
		if want && in(e.Key(), 7) != 1 {
			kept++
		}
	}
	if turns == 0 || kept == 0 {
		t.Errorf("%d keys moved to the gated partition and %d from it, want some", turns, kept)
	}
}
