package publish

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// A fenced publisher hands nothing to the producer, and Drain does not wait for it.
func TestPublisher_PublishesNothingBehindTheFence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := new(relaytest.Fence)
		b := setup(t, func(c *Config) { c.Fence = f })
		defer b.close()
		b.submit(relaytest.Event(1, 1, "a"), nil)
		b.drain(10 * time.Second)
		f.Closed.Store(true)
		b.submit(relaytest.Event(1, 2, "a"), nil)
		begin := time.Now()
		if left := b.publisher.Drain(t.Context()); left != 1 || time.Since(begin) > time.Second {
			t.Errorf("drain() = %d after %s, want 1 at once", left, time.Since(begin))
		}
		time.Sleep(time.Minute)
		if got := b.consume("a"); len(got) != 1 {
			t.Errorf("%d events are out, want the one of before", len(got))
		}
	})
}

// A fenced publisher does not write records that the producer already has: the process
// may have been paused in between.
func TestPublisher_WritesNothingBehindTheFence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := new(relaytest.Fence)
		var slow atomic.Bool
		woken := make(chan struct{})
		b := setup(t, func(c *Config) {
			c.Fence = f
			dial := network(c)
			c.Kafka = []kgo.Opt{kgo.Dialer(func(ctx context.Context, network, host string) (net.Conn, error) {
				if slow.Load() {
					<-woken
				}
				return dial(ctx, network, host)
			})}
		})
		defer b.close()
		if err := b.publisher.EnsureTopic(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		slow.Store(true) // records use a separate connection
		b.submit(relaytest.Event(1, 1, "a"), nil)
		time.Sleep(time.Second)
		f.Closed.Store(true)
		close(woken)
		time.Sleep(time.Minute)
		slow.Store(false)
		if got := b.consume("a"); len(got) != 0 {
			t.Errorf("%d events are out, want none", len(got))
		}
	})
}

// network returns the dial function of the configured Kafka client.
func network(c *Config) func(context.Context, string, string) (net.Conn, error) {
	probe, err := kgo.NewClient(c.Kafka...)
	if err != nil {
		panic(err)
	}
	defer probe.Close()
	return probe.OptValue(kgo.Dialer).(func(context.Context, string, string) (net.Conn, error))
}
