//go:build fault

package fault

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/test/harness"
)

// The embedded broker has appended a record and is killed before its answer
// arrives. The producer sends the record again, and it is in the topic once.
func TestFault_BrokerKilledBeforeItsAnswer(t *testing.T) {
	addr := harness.FreeAddrs(t, 1)[0]
	broker := harness.Start(t, "fake", "fake", "--data-dir", t.TempDir(), "--cql-addr", "", "--kafka-addr", addr)
	harness.Reachable(t, addr)
	const topic = "OrderCreated"
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	seeds := kgo.SeedBrokers(addr)
	var deaf atomic.Bool // the producer hears no answer
	producer, err := kgo.NewClient(seeds, kgo.DefaultProduceTopic(topic),
		kgo.Dialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, network, addr)
			return &answers{Conn: c, deaf: &deaf}, err
		}))
	if err != nil {
		t.Fatal(err)
	}
	defer producer.Close()
	watcher, err := kgo.NewClient(seeds)
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Close()
	admin := kadm.NewClient(watcher)
	if _, err := admin.CreateTopic(ctx, 3, 1, nil, topic); err != nil {
		t.Fatal(err)
	}
	stored := func() (n int64) {
		t.Helper()
		ends, err := admin.ListEndOffsets(ctx, topic)
		if err = errors.Join(err, ends.Error()); err != nil {
			t.Fatal(err)
		}
		ends.Each(func(o kadm.ListedOffset) { n += o.Offset })
		return n
	}
	record := func() *kgo.Record { return &kgo.Record{Key: []byte("one"), Value: []byte("order")} }
	if err := producer.ProduceSync(ctx, record()).FirstErr(); err != nil {
		t.Fatal(err)
	}
	for want := int64(2); want <= 4; want++ {
		deaf.Store(true)
		answered := make(chan error, 1)
		producer.Produce(ctx, record(), func(_ *kgo.Record, err error) { answered <- err })
		for stored() < want {
		}
		broker.Kill()
		deaf.Store(false)
		broker.Restart()
		if err := <-answered; err != nil {
			t.Fatalf("the record in flight: %v", err)
		}
		if n := stored(); n != want {
			t.Fatalf("%d records are stored, want %d", n, want)
		}
	}
}

// answers loses what comes while it is deaf.
type answers struct {
	net.Conn
	deaf *atomic.Bool
}

func (c *answers) Read(p []byte) (int, error) {
	for {
		n, err := c.Conn.Read(p)
		if err != nil || !c.deaf.Load() {
			return n, err
		}
	}
}
