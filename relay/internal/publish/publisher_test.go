package publish

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/failure"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/dedup"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
	"github.com/scylla-outbox/scylla-outbox/test/seeds"
)

func TestPublisher_KeepsEachAggregatesOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, nil)
		defer b.close()
		all := relaytest.Events(20, 50, "OrderUpdated")
		var settled atomic.Int64
		for _, e := range all {
			b.submit(e, func() { settled.Add(1) })
		}
		b.drain(time.Minute)
		relaytest.CheckOrder(t, b.consume("OrderUpdated"), all)
		if n := settled.Load(); n != int64(len(all)) {
			t.Errorf("settled %d events, want %d", n, len(all))
		}
	})
}

func TestPublisher_WritesCloudEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, func(c *Config) { c.Source = "/shop" })
		defer b.close()
		e := relaytest.Event(1, 1, "OrderCreated")
		e.Headers = map[string]string{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
		e.ContentType = "application/json"
		b.submit(e, nil)
		b.drain(time.Minute)
		got := b.consume("OrderCreated")
		if len(got) != 1 {
			t.Fatalf("got %d records, want 1", len(got))
		}
		if d := got[0].Event; d.ID != e.ID || d.AggregateID != e.AggregateID || d.Sequence != 1 || d.Type != e.Type ||
			d.AggregateType != "order" || string(d.Payload) != string(e.Payload) || d.Headers["traceparent"] != e.Headers["traceparent"] {
			t.Errorf("got %+v, want %+v", d, e)
		}
	})
}

// An event for another topic must not be sent before the one ahead of it is
// acknowledged, or the broker's time disagrees with the sequence.
func TestPublisher_WaitsBetweenTopics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, nil)
		defer b.close()
		created, cancelled := relaytest.Event(1, 1, "OrderCreated"), relaytest.Event(1, 2, "OrderCancelled")
		var order []string
		b.cluster.KeepControl()
		b.cluster.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
			b.cluster.KeepControl()
			for range req.(*kmsg.ProduceRequest).Topics {
				order = append(order, "produce")
			}
			b.cluster.SleepControl(func() { time.Sleep(time.Second) })
			return nil, nil, false
		})
		start := time.Now()
		var first, second time.Duration
		b.submit(created, func() { first = time.Since(start) })
		b.submit(cancelled, func() { second = time.Since(start) })
		b.drain(time.Minute)
		if len(order) != 2 {
			t.Fatalf("produce requests = %d, want 2, one for each topic", len(order))
		}
		if second-first < time.Second {
			t.Errorf("acknowledged after %s and %s: the second did not wait for the first", first, second)
		}
	})
}

func TestPublisher_OneEventIsPublishedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, nil)
		defer b.close()
		e := relaytest.Event(1, 1, "OrderCreated")
		fault := b.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotLeaderForPartition, Count: -1})
		var settled atomic.Int64
		b.submit(e, func() { settled.Add(1) })
		b.submit(e, func() { settled.Add(1) }) // while the first is in progress
		time.Sleep(time.Minute)
		if n := settled.Load(); n != 0 {
			t.Fatalf("settled %d before the broker acknowledged", n)
		}
		fault.Remove()
		b.drain(time.Minute)
		b.submit(e, func() { settled.Add(1) }) // long after
		if n := settled.Load(); n != 3 {
			t.Errorf("settled = %d, want 3: every row of the event is settled", n)
		}
		relaytest.CheckOrder(t, b.consume("OrderCreated"), []outbox.Event{e})
	})
}

// Repeated rows are recognized long after their ids were evicted from the dedup index.
func TestPublisher_RecognizesOldEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, func(c *Config) { c.Share = new(dedup.Pool).Share(40, 500_000) })
		defer b.close()
		all := relaytest.Events(2, 100, "OrderUpdated")
		for range 2 {
			for _, e := range all {
				b.submit(e, nil)
			}
			b.drain(time.Minute)
		}
		relaytest.CheckOrder(t, b.consume("OrderUpdated"), all)
	})
}

func TestPublisher_BoundsWhatIsInFlight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, func(c *Config) { c.MaxInFlightRecords = 10 })
		defer b.close()
		b.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicas, Count: -1})
		for i := range 10 {
			b.submit(relaytest.Event(i, 1, "OrderCreated"), nil)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		err := b.publisher.Submit(ctx, cdclog.StoredEvent{Event: relaytest.Event(11, 1, "OrderCreated")}, BySweep, Settlement{})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("submit() error = %v, want it to wait until the deadline", err)
		}
		if s := b.publisher.State(); s.Open != 10 {
			t.Errorf("in flight = %d, want 10", s.Open)
		}
	})
}

// A broker that refuses one record fails its whole batch. Only the aggregate of the
// refused event is held; once the broker accepts the event, it is published, and then
// the later events of the aggregate.
func TestPublisher_HoldsOnlyTheRefusedEvent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, func(c *Config) { c.Partitions = 1 }) // a request may have batches of several partitions
		defer b.close()
		bad := relaytest.Event(3, 2, "OrderUpdated")
		bad.Payload = make([]byte, 100_000)
		var heal atomic.Bool
		b.cluster.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
			b.cluster.KeepControl()
			preq := req.(*kmsg.ProduceRequest)
			large := false
			for _, t := range preq.Topics {
				for _, p := range t.Partitions {
					large = large || len(p.Records) > 10_000
				}
			}
			if !large || heal.Load() {
				return nil, nil, false
			}
			resp := preq.ResponseKind().(*kmsg.ProduceResponse)
			for _, t := range preq.Topics {
				rt := kmsg.NewProduceResponseTopic()
				rt.Topic, rt.TopicID = t.Topic, t.TopicID
				for _, p := range t.Partitions {
					rp := kmsg.NewProduceResponseTopicPartition()
					rp.Partition, rp.ErrorCode = p.Partition, kerr.MessageTooLarge.Code
					rt.Partitions = append(rt.Partitions, rp)
				}
				resp.Topics = append(resp.Topics, rt)
			}
			return resp, nil, true
		})
		all := relaytest.Events(20, 3, "OrderUpdated")
		for i := range all {
			if all[i].ID == bad.ID {
				bad.Payload = incompressible(100_000)
				all[i] = bad
			}
			b.submit(all[i], nil)
		}
		time.Sleep(10 * time.Minute)
		holds := b.publisher.Holds()
		if len(holds) != 1 || holds[0].EventID != bad.ID.UUID() || !errors.Is(holds[0].Err, kerr.MessageTooLarge) {
			t.Fatalf("holds() = %+v, want event %s alone, as too large", holds, bad.ID)
		}
		if s := b.publisher.State(); s.Open != 2 {
			t.Errorf("not acknowledged = %d, want 2: the held event and the next one", s.Open)
		}
		heal.Store(true)
		time.Sleep(2 * b.cfg.HoldRetry)
		if holds := b.publisher.Holds(); len(holds) != 0 {
			t.Errorf("holds() = %+v after the broker accepts it, want none", holds)
		}
		relaytest.CheckOrder(t, b.consume("OrderUpdated"), all)
	})
}

func TestPublisher_HoldsEventsWithoutATopic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, nil)
		defer b.close()
		b.submit(relaytest.Event(1, 1, "Order Created?"), nil)
		b.submit(relaytest.Event(2, 1, "OrderCreated"), nil)
		b.drain(time.Minute)
		holds := b.publisher.Holds()
		if len(holds) != 1 || failure.Classify(holds[0].Err) != failure.Permanent {
			t.Fatalf("holds() = %+v, want the event with the bad topic", holds)
		}
	})
}

func TestPublisher_ReportsWhatEndsTheRelay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, nil)
		defer b.close()
		b.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.ClusterAuthorizationFailed, Count: -1})
		settled := false
		b.submit(relaytest.Event(1, 1, "OrderCreated"), func() { settled = true })
		time.Sleep(time.Minute)
		synctest.Wait()
		select {
		case err := <-b.fatal:
			if failure.Classify(err) != failure.Fatal {
				t.Errorf("Classify(%v) = %v, want fatal", err, failure.Classify(err))
			}
		default:
			t.Error("fatal was not called")
		}
		if settled {
			t.Error("the event is settled")
		}
	})
}

func TestPublisher_WaitsForTheDeliveryTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, nil)
		defer b.close()
		start := time.Now()
		e := relaytest.Event(1, 1, "OrderCreated")
		e.DeliverAt = start.Add(9 * time.Second)
		far := relaytest.Event(2, 1, "OrderCreated") // by a clock that is an hour ahead
		far.DeliverAt = start.Add(time.Hour)
		b.submit(e, nil)
		b.submit(far, nil)
		b.drain(time.Minute)
		if took := time.Since(start); took > outbox.MaxDelay+time.Second {
			t.Errorf("the events were published after %s, want %s", took, outbox.MaxDelay)
		}
		after := make(map[gocql.UUID]time.Duration)
		for _, d := range b.consume("OrderCreated") {
			after[d.ID.UUID()] = d.At.Sub(start)
		}
		if len(after) != 2 || after[e.ID.UUID()] < 9*time.Second || after[far.ID.UUID()] < outbox.MaxDelay {
			t.Errorf("published after %v, want %s of 9s and %s of %s", after, e.ID, far.ID, outbox.MaxDelay)
		}
	})
}

// All events are published, each aggregate in order, whatever the broker does.
func TestPublisher_SurvivesFaults(t *testing.T) {
	t.Parallel()
	for seed := range seeds.Range(t, relaytest.Fewer(12)) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { testFaults(t, seed) })
		})
	}
}

// maxSleep is the maximum delay of a request by the broker, in seconds.
const maxSleep = 20

func testFaults(t *testing.T, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 0))
	slow := seed%2 == 0 // half of the runs have many small batches
	b := setup(t, func(c *Config) { c.MaxInFlightRecords = 50 + rnd.IntN(500) })
	defer b.close()
	var calm atomic.Bool
	errs := []*kerr.Error{
		kerr.NotLeaderForPartition, kerr.NotEnoughReplicas, kerr.NotEnoughReplicasAfterAppend,
		kerr.RequestTimedOut, kerr.UnknownTopicOrPartition, kerr.KafkaStorageError,
	}
	broker := rand.New(rand.NewPCG(seed, 1))
	b.cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		b.cluster.KeepControl()
		if calm.Load() {
			return nil, nil, false
		}
		switch broker.IntN(10) {
		case 0:
			return nil, errors.New("the connection is cut"), true
		case 1:
			d := time.Duration(broker.IntN(maxSleep)) * time.Second
			b.cluster.SleepControl(func() { time.Sleep(d) })
		case 2, 3:
			b.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: errs[broker.IntN(len(errs))]})
		}
		return nil, nil, false
	})
	all := relaytest.Events(30, 20, "OrderCreated", "OrderUpdated", "OrderUpdated")
	var settled atomic.Int64
	for _, e := range all {
		b.submit(e, func() { settled.Add(1) })
		switch rnd.IntN(20) {
		case 0:
			b.submit(e, nil) // a repeated row
		case 1, 2, 3:
			if !slow {
				break
			}
			time.Sleep(time.Duration(rnd.IntN(200)) * time.Millisecond)
		}
	}
	b.drain(6 * time.Hour)
	calm.Store(true)
	time.Sleep(maxSleep * time.Second)
	relaytest.CheckOrder(t, b.consume("OrderCreated", "OrderUpdated"), all)
	if n := settled.Load(); n != int64(len(all)) {
		t.Errorf("settled %d, want %d", n, len(all))
	}
}

func incompressible(n int) []byte {
	rnd := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rnd.Uint32())
	}
	return b
}

// Added partitions move keys. An aggregate with events in progress remains in its
// partition until they are acknowledged; its later events are published after that, in
// order by time.
func TestPublisher_KeepsOrderWhenPartitionsAreAdded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, func(c *Config) {
			c.Kafka = append(c.Kafka, kgo.MetadataMaxAge(time.Second), kgo.MetadataMinAge(100*time.Millisecond))
			c.AttemptTimeout = time.Minute // the breaker stays closed
		})
		defer b.close()
		all := relaytest.Events(10, 30, "OrderUpdated")
		b.submit(all[0], nil)
		b.drain(time.Minute)
		slow := b.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotLeaderForPartition, Count: -1})
		for i, e := range all[1:] {
			b.submit(e, nil)
			switch i {
			case 100:
				if _, err := b.publisher.producer.Catalog.Admin.CreatePartitions(t.Context(), 20, "OrderUpdated"); err != nil {
					t.Fatal(err)
				}
			case 200:
				time.Sleep(10 * time.Second) // the producer refreshes its metadata
			case 250:
				slow.Remove()
			}
		}
		b.drain(time.Minute)
		got := b.consume("OrderUpdated")
		relaytest.CheckTimes(t, got)
		first := map[gocql.UUID]relaytest.Delivered{} // in progress when the partitions were added
		for _, d := range got {
			if f, ok := first[d.AggregateID.UUID()]; !ok || d.Sequence < f.Sequence {
				first[d.AggregateID.UUID()] = d
			}
		}
		stayed := map[int32]bool{}
		for _, d := range first {
			stayed[d.Partition] = true
		}
		for _, e := range relaytest.Events(10, 31, "OrderUpdated")[300:] { // nothing in progress: the keys move
			b.submit(e, nil)
			all = append(all, e)
		}
		b.drain(time.Minute)
		if len(stayed) > 3 {
			t.Errorf("records in progress were written to %d partitions, want the old 3", len(stayed))
		}
		later := b.consume("OrderUpdated")
		relaytest.CheckTimes(t, later)
		now := map[int32]bool{}
		for _, d := range later {
			now[d.Partition] = true
		}
		if len(later) != len(all) || len(now) <= 3 {
			t.Errorf("%d of %d events on %d partitions, want all, including new partitions", len(later), len(all), len(now))
		}
	})
}

// An aggregate with an event in progress does not move to the new partition of its key,
// not even into a batch that waits there: that batch may be written first.
func TestPublisher_WhatIsUnderWayStaysWhenPartitionsAreAdded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, func(c *Config) {
			c.Kafka = append(c.Kafka, kgo.MetadataMaxAge(time.Second), kgo.MetadataMinAge(100*time.Millisecond))
			c.AttemptTimeout = time.Minute // the breaker stays closed
		})
		defer b.close()
		b.submit(relaytest.Event(0, 1, "OrderUpdated"), nil) // creates the topic
		b.drain(time.Minute)
		refuse := func(from, to int32) *kfake.FaultHandle {
			f := kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotLeaderForPartition, Count: -1}
			for p := from; p < to; p++ {
				f.Partitions = append(f.Partitions, p)
			}
			return b.cluster.Fault(f)
		}
		before, added := refuse(0, 3), refuse(3, 23)
		all := relaytest.Events(200, 2, "OrderUpdated")
		for _, e := range all[1:20] {
			b.submit(e, nil)
		}
		if _, err := b.publisher.producer.Catalog.Admin.CreatePartitions(t.Context(), 20, "OrderUpdated"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)    // the producer refreshes its metadata
		for i, e := range all[20:200] { // some are in batches behind refused ones
			b.submit(e, nil)
			if i == 90 {
				time.Sleep(10 * time.Millisecond)
			}
		}
		for _, e := range all[200:220] {
			b.submit(e, nil)
		}
		added.Remove()
		time.Sleep(5 * time.Second)
		for _, d := range b.consume("OrderUpdated") {
			if d.Sequence == 2 && d.AggregateID != all[0].AggregateID {
				t.Errorf("aggregate %s: seq 2 is on partition %d before seq 1 is published", d.AggregateID, d.Partition)
			}
		}
		before.Remove()
		b.drain(time.Minute)
		if got := b.consume("OrderUpdated"); len(got) != 220 {
			t.Errorf("%d records of 220 events", len(got))
		}
	})
}
