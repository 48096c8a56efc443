package producer

import (
	"testing"
	"testing/synctest"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// ignore is an Observer.
type ignore struct{}

func (ignore) Responded()             {}
func (ignore) ConnectionFailed(error) {}
func (ignore) DataLost(string, int32) {}
func (ignore) Recreated(string)       {}

// A search for a record finds that its topic was deleted, and creates it: it is another topic, so
// another client sends to it, also where topics have no ids.
func TestSearch_ATopicThatItCreatesHasAnotherClient(t *testing.T) {
	t.Parallel()
	world.EachBroker(t, func(t *testing.T, v *world.BrokerVersion) {
		synctest.Test(t, func(t *testing.T) {
			const topic = "OrderCreated"
			net := new(kfake.VirtualNetwork)
			broker := relaytest.StartBroker(t, net, v.Options()...)
			defer broker.Close()
			p, err := New(Config{
				Brokers: []string{"127.0.0.1:9092"}, Kafka: []kgo.Opt{kgo.Dialer(net.DialContext)}, Source: "scylla-outbox",
				MaxRecordBytes: 1 << 20, MaxRecords: 10, Partitions: 3, Replication: -1, Logger: relaytest.Logger(t),
			}, ignore{})
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			if err := p.Ensure(t.Context(), topic); err != nil {
				t.Fatal(err)
			}
			before := p.pick(topic)
			defer p.leave(before)
			if _, err := p.Catalog.Admin.DeleteTopics(t.Context(), topic); err != nil {
				t.Fatal(err)
			}
			found := make(chan error, 1)
			p.find(partition{topic, 0}, returned{&kgo.Record{Topic: topic}, before, kerr.UnknownTopicOrPartition, sender(found)})
			if err := <-found; err == nil {
				t.Fatal("the record was found in a topic that was deleted")
			}
			if err := p.Ensure(t.Context(), topic); err != nil {
				t.Fatal(err)
			}
			after := p.pick(topic)
			defer p.leave(after)
			if after == before {
				t.Error("the client of the former topic sends to the new one")
			}
		})
	})
}

// The last acknowledged record is one with an offset: a search would take the first record of the
// partition for it, read all of the partition, and report that it has lost records.
func TestSearch_RemembersNoAcknowledgementWithoutAnOffset(t *testing.T) {
	t.Parallel()
	var s search
	s.init()
	at := partition{"OrderCreated", 1}
	acknowledge := func(offset int64, id string) {
		s.acknowledged(&kgo.Record{Topic: at.topic, Partition: at.n, Offset: offset, Headers: []kgo.RecordHeader{{Key: outbox.HeaderID, Value: []byte(id)}}})
	}
	acknowledge(-1, "without an offset")
	if last := s.acked[at]; last != nil {
		t.Errorf("the last acknowledged record is %q at offset %d, want none", last.id, last.offset)
	}
	for _, r := range []struct {
		offset int64
		id     string
	}{{0, "first"}, {-1, "without an offset"}} {
		acknowledge(r.offset, r.id)
		if last := s.acked[at]; last == nil || last.offset != 0 || string(last.id) != "first" {
			t.Errorf("the last acknowledged record after %q is %+v, want the first one", r.id, last)
		}
	}
}

// sender receives the error of a record.
type sender chan<- error

func (s sender) Returned(_ *kgo.Record, err error) { s <- err }
