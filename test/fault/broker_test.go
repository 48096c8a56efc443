//go:build fault

package fault

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/scylla-outbox/scylla-outbox/test/harness"
)

// The embedded broker has appended a record and is killed before its response
// arrives. The producer retries the record, and it is in the topic once.
func TestFault_BrokerKilledBeforeItsAnswer(t *testing.T) {
	addr := harness.FreeAddrs(t, 1)[0]
	broker := harness.Start(t, "engines", "engines", "--data-dir", t.TempDir(), "--cql-addr", "", "--kafka-addr", addr)
	harness.Reachable(t, addr)
	const topic = "OrderCreated"
	ctx := t.Context()
	seeds := kgo.SeedBrokers(addr)
	var lose atomic.Bool
	producer, err := kgo.NewClient(seeds, kgo.DefaultProduceTopic(topic),
		kgo.Dialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, network, addr)
			return &answers{Conn: c, lose: &lose}, err
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
		lose.Store(true)
		answered := make(chan error, 1)
		producer.Produce(ctx, record(), func(_ *kgo.Record, err error) { answered <- err })
		harness.Until(t, "the record in flight", func() bool { return stored() == want })
		broker.Kill()
		select {
		case err := <-answered:
			t.Fatalf("the answer was not lost: %v", err)
		default:
		}
		lose.Store(false)
		broker.Restart()
		select {
		case err := <-answered:
			if err != nil {
				t.Fatalf("the record in flight: %v", err)
			}
		case <-time.After(harness.Patience):
			t.Fatal("the record in flight is not retried")
		}
		if n := stored(); n != want {
			t.Fatalf("%d records are stored, want %d", n, want)
		}
	}
}

// answers is a connection of a producer. While lose is set it drops all
// responses from the first record on, permanently. Earlier responses arrive, so
// that a new connection also reaches the record; and no response arrives late,
// after lose, because of a slow reader.
type answers struct {
	net.Conn
	lose *atomic.Bool
	deaf atomic.Bool
}

// Write is called with one whole request: its length in four bytes, its key in
// two.
func (c *answers) Write(p []byte) (int, error) {
	if c.lose.Load() && kmsg.Key(binary.BigEndian.Uint16(p[4:])) == kmsg.Produce {
		c.deaf.Store(true)
	}
	return c.Conn.Write(p)
}

func (c *answers) Read(p []byte) (int, error) {
	for {
		n, err := c.Conn.Read(p)
		if err != nil || !c.deaf.Load() {
			return n, err
		}
	}
}
