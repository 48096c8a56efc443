package relay

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/earlier"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/publish"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/readback"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// later is a publisher that starts after b's, with the proofs that it needs.
func (b *fixture) later(t *testing.T) (d *readback.Proofs, end func()) {
	t.Helper()
	p, err := publish.New(b.cfg.publish(), publish.NewMetrics(prometheus.NewRegistry()), func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	store := relaytest.NewCheckpoints()
	for _, topic := range []string{"OrderUpdated", "old"} {
		if err := store.SaveTopic(t.Context(), topic); err != nil {
			t.Fatal(err)
		}
	}
	d = readback.NewProofs(b.cfg.readback(), p, store, readback.NewProofMetrics(prometheus.NewRegistry()))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = d.Run(ctx) }()
	return d, func() { cancel(); <-done; p.Close() }
}

// After a start the first event of each aggregate asks whether the one before it is
// published. That costs little, and nothing is read twice for events of one time.
func TestProofs_ManyAggregatesAfterAStart(t *testing.T) {
	t.Parallel()
	many := 10_000
	if testing.Short() {
		many = 500
	}
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, nil)
		defer b.close()
		var rows []cdclog.StoredEvent
		for i := range many {
			e := cdclog.StoredEvent{Event: relaytest.Event(i, 1, "OrderUpdated"), Written: time.Now().UnixMicro()}
			rows = append(rows, e)
			b.submit(e.Event, nil)
			time.Sleep(10 * time.Millisecond)
		}
		b.drain(time.Minute)
		time.Sleep(time.Hour)
		d, end := b.later(t)
		defer end()
		var wg sync.WaitGroup
		for i := range rows {
			wg.Go(func() {
				if fate, err := d.Prove(t.Context(), &rows[i], false); fate != earlier.Published || err != nil {
					t.Errorf("prove(%d) = %v, %v", i, fate, err)
				}
			})
		}
		wg.Wait()
		if reads := relaytest.Count(d.Reads); reads > float64(max(many/20, 100)) { // of few proofs, few share a request
			t.Errorf("%d proofs cost %v requests", many, reads)
		} else {
			t.Logf("%d proofs cost %v requests", many, reads)
		}
	})
}

// deleteRecords deletes all records of a topic, as its retention does.
func (b *fixture) deleteRecords(t *testing.T, topic string) {
	t.Helper()
	b.deleteFirst(t, topic, math.MaxInt64)
}

// deleteFirst deletes the first n records of each partition of a topic.
func (b *fixture) deleteFirst(t *testing.T, topic string, n int64) {
	t.Helper()
	ends, err := b.admin().ListEndOffsets(t.Context(), topic)
	if err != nil {
		t.Error(err)
	}
	var upTo kadm.Offsets
	ends.Each(func(o kadm.ListedOffset) { upTo.AddOffset(o.Topic, o.Partition, min(n, o.Offset), -1) })
	if _, err := b.admin().DeleteRecords(t.Context(), upTo); err != nil {
		t.Error(err)
	}
}

// produceOld appends a record, dated 1995, to each partition of its topic.
func (b *fixture) produceOld(t *testing.T, topic string, headers ...kgo.RecordHeader) {
	t.Helper()
	cl, err := kgo.NewClient(append(slices.Clone(b.cfg.Kafka), kgo.SeedBrokers(b.cfg.Brokers...), kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	for part := range int32(b.cfg.Partitions) {
		r := &kgo.Record{Topic: topic, Partition: part, Headers: headers, Timestamp: time.Date(1995, 1, 1, 0, 0, 0, 0, time.UTC)}
		if err := cl.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Error(err)
		}
	}
}

func TestProofs(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		// publish publishes the row's event; delay is how much later than it was written.
		publish bool
		delay   time.Duration
		key     string // of its record, if it is not the aggregate's id
		before  string // the topic that the relay published to at first, if it is not OrderUpdated
		prepare func(t *testing.T, b *fixture)
		want    earlier.Fate
		result  readback.ProofResult
	}{
		{name: "published at once", publish: true, want: earlier.Published, result: readback.ProofPublished},
		{name: "published at once with a record key of its own", publish: true, key: "customer-7", want: earlier.Published, result: readback.ProofPublished},
		{name: "published to a topic that it had before", publish: true, before: "old", want: earlier.Published, result: readback.ProofPublished},
		{name: "retention has deleted it from the topic that it had before", publish: true, before: "old", want: earlier.Unpublished, result: readback.ProofUnpublished, prepare: func(t *testing.T, b *fixture) {
			b.deleteRecords(t, "old")
		}},
		{name: "the topic that it had before is deleted", publish: true, before: "old", want: earlier.Unpublished, result: readback.ProofUnpublished, prepare: func(t *testing.T, b *fixture) {
			if _, err := b.admin().DeleteTopics(t.Context(), "old"); err != nil {
				t.Error(err)
			}
		}},
		{name: "the topic that it had before may not be read", publish: true, before: "old", want: earlier.Unpublished, result: readback.ProofUnpublished, prepare: func(_ *testing.T, b *fixture) {
			b.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: "old", Err: kerr.TopicAuthorizationFailed, Count: -1})
		}},
		{name: "never published, and its topic had another name before", before: "old", want: earlier.Unpublished, result: readback.ProofUnpublished},
		{name: "published hours later", publish: true, delay: 3 * time.Hour, want: earlier.Published, result: readback.ProofPublished},
		{name: "never published", want: earlier.Unpublished, result: readback.ProofUnpublished},
		{name: "the topic has more partitions now", publish: true, want: earlier.Published, result: readback.ProofPublished, prepare: func(t *testing.T, b *fixture) {
			if _, err := b.admin().CreatePartitions(t.Context(), 5, "OrderUpdated"); err != nil {
				t.Error(err)
			}
		}},
		{name: "retention has deleted it", publish: true, want: earlier.Published, result: readback.ProofPublished, prepare: func(t *testing.T, b *fixture) {
			b.deleteRecords(t, "OrderUpdated")
		}},
		{name: "retention has deleted it, and the first record left is of another producer, and old", publish: true, want: earlier.Published, result: readback.ProofPublished, prepare: func(t *testing.T, b *fixture) {
			b.deleteRecords(t, "OrderUpdated")
			b.produceOld(t, "OrderUpdated")
		}},
		{name: "retention has deleted it, and the first record left is dated by a clock that was reset", publish: true, want: earlier.Published, result: readback.ProofPublished, prepare: func(t *testing.T, b *fixture) {
			own := b.consume("OrderUpdated")[0]
			b.deleteRecords(t, "OrderUpdated")
			b.produceOld(t, "OrderUpdated", own.RecordHeaders...)
		}},
		{name: "never published, and retention has deleted older records", want: earlier.Unpublished, result: readback.ProofUnpublished, prepare: func(t *testing.T, b *fixture) {
			b.deleteFirst(t, "OrderUpdated", 1)
		}},
		{name: "the topic may not be read", want: earlier.Doubtful, result: readback.ProofUnproven, prepare: func(_ *testing.T, b *fixture) {
			b.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: "OrderUpdated", Err: kerr.TopicAuthorizationFailed, Count: -1})
		}},
		{name: "the records of the topic that it had before may not be read", publish: true, before: "old", want: earlier.Unpublished, result: readback.ProofUnpublished, prepare: func(_ *testing.T, b *fixture) {
			b.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Topic: "old", Err: kerr.TopicAuthorizationFailed, Count: -1})
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := setup(t, nil)
				defer b.close()
				typ := "OrderUpdated"
				if tt.before != "" {
					typ = tt.before // the type is the topic
				}
				send := func(from int) {
					for i := range 20 {
						b.submit(relaytest.Event(from+i, 1, typ), nil)
					}
					b.drain(time.Minute)
				}
				send(100)
				time.Sleep(time.Hour)
				row := cdclog.StoredEvent{Event: relaytest.Event(1, 1, typ), Written: time.Now().UnixMicro()}
				if tt.key != "" {
					row.Headers = map[string]string{outbox.HeaderPartitionKey: tt.key}
				}
				time.Sleep(tt.delay)
				send(200)
				if tt.publish {
					b.submit(row.Event, nil)
				}
				send(300)
				time.Sleep(time.Hour)
				if tt.before != "" {
					row.Type, typ = "OrderUpdated", "OrderUpdated"
					send(400)
					time.Sleep(time.Hour)
				}
				if tt.prepare != nil {
					tt.prepare(t, b)
				}
				d, end := b.later(t)
				defer end()
				if got, err := d.Prove(t.Context(), &row, false); got != tt.want || err != nil {
					t.Errorf("prove() = %v, %v, want %v", got, err, tt.want)
				}
				if n := relaytest.Count(d.Results.WithLabelValues(string(tt.result))); n != 1 {
					t.Errorf("counted %v times as %s", n, tt.result)
				}
				quick, err := d.Prove(t.Context(), &row, true)
				if tt.publish && tt.delay == 0 && tt.prepare == nil && tt.before == "" {
					if quick != earlier.Published || err != nil {
						t.Errorf("a quick proof of an event that was published at once: %v, %v", quick, err)
					}
					return
				}
				if tt.result == readback.ProofUnpublished && !errors.Is(err, publish.ErrLeft) {
					t.Errorf("a quick proof of an unpublished event: %v, want it left to the sweep", err)
				}
			})
		})
	}
}

// A quick proof finds an event that was published at once, also after it found many that
// were published late, as after an outage of the broker.
func TestProofs_QuickAfterLateEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, nil)
		defer b.close()
		var rows [2]cdclog.StoredEvent // late, prompt
		for i := range rows {
			rows[i] = cdclog.StoredEvent{Event: relaytest.Event(i, 1, "OrderUpdated"), Written: time.Now().UnixMicro()}
			time.Sleep(time.Duration(1-i) * 3 * time.Minute)
			b.submit(rows[i].Event, nil)
			b.drain(time.Minute)
		}
		time.Sleep(time.Hour)
		d, end := b.later(t)
		defer end()
		for i := range 21 {
			if published, err := d.Prove(t.Context(), &rows[i/20], true); published != earlier.Published || err != nil {
				t.Errorf("proof %d = %v, %v, want it published", i, published, err)
			}
		}
	})
}

// While a partition cannot be read nothing follows about its events.
func TestProofs_WaitForTheBroker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, nil)
		defer b.close()
		row := cdclog.StoredEvent{Event: relaytest.Event(1, 1, "OrderUpdated"), Written: time.Now().UnixMicro()}
		b.submit(row.Event, nil)
		b.drain(time.Minute)
		d, end := b.later(t)
		defer end()
		away := b.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets, kmsg.Fetch}, Err: kerr.NotLeaderForPartition, Count: -1})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		if published, err := d.Prove(ctx, &row, false); err == nil {
			t.Errorf("prove() = %v while the topic cannot be read, want an error", published)
		}
		away.Remove()
		if published, err := d.Prove(t.Context(), &row, false); published != earlier.Published || err != nil {
			t.Errorf("prove() = %v, %v, want it published", published, err)
		}
	})
}
