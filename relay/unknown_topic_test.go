package relay

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/earlier"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// denyTopic makes brokers, all without nodes, answer that they do not know a topic.
func denyTopic(cluster *kfake.Cluster, topic string, nodes ...int32) *kfake.FaultHandle {
	return cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: topic, Nodes: nodes, Err: kerr.UnknownTopicOrPartition, Count: -1})
}

// A broker that does not know the topic of a published event proves nothing. An event is
// unpublished once all brokers agree for seconds that its topic does not exist.
func TestProofs_UnknownTopic(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		nodes   []int32 // that do not know it
		deleted bool
		want    earlier.Fate // once the answer is certain
	}{
		{name: "to one broker of three", nodes: []int32{1}, want: earlier.Published},
		{name: "to all for a while", want: earlier.Published},
		{name: "because it is deleted", deleted: true, want: earlier.Unpublished},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := setup(t, nil, kfake.NumBrokers(3), kfake.Ports(9092, 9093, 9094))
				defer b.close()
				row := cdclog.StoredEvent{Event: relaytest.Event(1, 1, "OrderUpdated"), Written: time.Now().UnixMicro()}
				b.submit(row.Event, nil)
				b.drain(time.Minute)
				time.Sleep(time.Hour)
				d, end := b.later(t)
				defer end()
				away := denyTopic(b.cluster, "OrderUpdated", tt.nodes...)
				if tt.deleted {
					away.Remove()
					if _, err := b.admin().DeleteTopics(t.Context(), "OrderUpdated"); err != nil {
						t.Fatal(err)
					}
				}
				began := time.Now()
				got, err := d.Prove(t.Context(), &row, false)
				if len(tt.nodes) == 0 && err == nil {
					t.Errorf("Prove() = %v after %s, want an error until the brokers agree for seconds", got, time.Since(began))
				}
				if !tt.deleted && len(tt.nodes) == 0 {
					away.Remove()
				}
				for ; err != nil && time.Since(began) < time.Minute; time.Sleep(time.Second) {
					got, err = d.Prove(t.Context(), &row, false)
				}
				if got != tt.want || err != nil {
					t.Errorf("Prove() = %v, %v after %s, want %v", got, err, time.Since(began), tt.want)
				}
			})
		})
	}
}

// A start at which the brokers do not know the topics of the relay for some seconds
// publishes nothing twice, whether their number is one or three.
func TestReadback_BrokersLearnTopicsLate(t *testing.T) {
	t.Parallel()
	for _, unknown := range []time.Duration{400 * time.Millisecond, 4 * time.Second} {
		for _, brokers := range []int{1, 3} {
			t.Run(fmt.Sprintf("%s brokers=%d", unknown, brokers), func(t *testing.T) {
				t.Parallel()
				inBubble(t, func(t *testing.T) {
					w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) { c.ConfidenceWindow = 2 * time.Minute })
					if brokers > 1 {
						w.cluster.Close()
						w.cluster = relaytest.StartBroker(t, w.net, kfake.NumBrokers(brokers), kfake.Ports(9092, 9093, 9094))
					}
					defer w.close()
					const topic = "OrderCreated"
					_, stop := w.run()
					all := relaytest.Events(50, 2, topic)
					for _, e := range all {
						w.write(e)
					}
					time.Sleep(30 * time.Second)
					if err := stop(); err != nil {
						t.Fatal(err)
					}
					away := denyTopic(w.cluster, topic)
					r, stop := w.run()
					time.Sleep(unknown)
					away.Remove()
					time.Sleep(5 * time.Minute)
					if err := stop(); err != nil {
						t.Fatal(err)
					}
					if n := len(w.consume(topic)); n != len(all) {
						t.Errorf("%d records of %d events; problems %v", n, len(all), r.Status().Problems)
					}
				})
			})
		}
	}
}

// A topic of the relay that is deleted delays a start by seconds, and not for ever.
func TestReadback_TopicIsDeleted(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, nil)
		defer w.close()
		_, stop := w.run()
		w.write(relaytest.Event(1, 1, "OrderCreated"))
		w.write(relaytest.Event(2, 1, "OrderUpdated"))
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if _, err := w.admin().DeleteTopics(t.Context(), "OrderCreated"); err != nil {
			t.Fatal(err)
		}
		_, stop = w.run()
		began := time.Now()
		w.write(relaytest.Event(3, 1, "OrderUpdated"))
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		got := w.consume("OrderUpdated")
		if len(got) != 2 || got[1].At.Sub(began) > 15*time.Second {
			t.Errorf("OrderUpdated has %+v, want the second event within seconds after %s", got, began)
		}
	})
}

// emptyPartition deletes all records of one partition, as retention does with a partition
// that received nothing for as long as the topic retains records.
func (b *fixture) emptyPartition(t *testing.T, topic string, part int32) {
	t.Helper()
	ends, err := b.admin().ListEndOffsets(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	var upTo kadm.Offsets
	end, _ := ends.Lookup(topic, part)
	if upTo.AddOffset(topic, part, end.Offset, -1); end.Offset == 0 {
		t.Fatalf("partition %d has no records", part)
	}
	if _, err := b.admin().DeleteRecords(t.Context(), upTo); err != nil {
		t.Fatal(err)
	}
}

// A row that becomes visible late, after a restart, is published with the next event of its
// aggregate where the partition of its key retains everything since it was written. What
// retention has deleted from other partitions does not matter.
func TestLate_OtherPartitionIsEmptied(t *testing.T) {
	t.Parallel()
	for _, emptied := range []string{"none", "other", "own"} {
		t.Run(emptied, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				w := newWorld(t, scyllafake.Config{Tokens: 4}, nil)
				defer w.close()
				const topic = "OrderCreated"
				late := relaytest.Event(0, 4, topic)
				part := func(e outbox.Event) int32 {
					return int32(kgo.StickyKeyPartitioner(nil).ForTopic(topic).Partition(&kgo.Record{Key: e.Key()}, int(w.cfg.Partitions)))
				}
				other := 1
				for part(relaytest.Event(other, 1, topic)) == part(late) {
					other++
				}
				_, stop := w.run()
				w.write(relaytest.Event(other, 1, topic)) // the only event of its partition
				time.Sleep(time.Minute)
				for seq := range int64(3) {
					w.write(relaytest.Event(0, seq+1, topic))
				}
				time.Sleep(30 * time.Minute)
				decided := time.Now() // seq 4 is decided and invisible
				time.Sleep(30 * time.Minute)
				if err := stop(); err != nil {
					t.Fatal(err)
				}
				switch emptied {
				case "other":
					w.emptyPartition(t, topic, part(relaytest.Event(other, 1, topic)))
				case "own":
					w.emptyPartition(t, topic, part(late))
				}
				_, stop = w.run()
				time.Sleep(time.Minute)
				w.writeAt(late, decided) // it becomes visible with its old time
				w.write(relaytest.Event(0, 5, topic))
				time.Sleep(5 * time.Minute)
				if err := stop(); err != nil {
					t.Fatal(err)
				}
				found := false
				for _, d := range w.consume(topic) {
					found = found || d.Event.ID == late.ID
				}
				if found != (emptied != "own") {
					t.Errorf("the late event is in its topic: %t", found)
				}
			})
		})
	}
}
