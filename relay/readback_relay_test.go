package relay

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
	"github.com/scylla-outbox/scylla-outbox/test/seeds"
	testworld "github.com/scylla-outbox/scylla-outbox/test/world"
)

// A whole relay with its tail, on topics that only a template names, is killed
// at random moments during a load. Nothing is lost, nothing is there twice.
func TestRelay_CrashesRepeatNothing(t *testing.T) {
	t.Parallel()
	relaytest.Long(t)
	for seed := range seeds.Range(t, uint64(len(testworld.BrokerVersions))) {
		broker := &testworld.BrokerVersions[seed%uint64(len(testworld.BrokerVersions))]
		t.Run(fmt.Sprint("seed=", seed, "/", broker.Name), func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				rnd := rand.New(rand.NewPCG(seed, 4))
				w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) {
					c.ConfidenceWindow = 20 * time.Second
					c.IdleCheckpoint = 5 * time.Second
				}, broker.Options()...)
				defer w.close()
				topics := []string{"OrderCreated", "OrderUpdated"}
				all := relaytest.Events(30, 10, topics...)
				var writing sync.WaitGroup
				writing.Go(func() {
					for _, e := range all {
						w.write(e)
						time.Sleep(200 * time.Millisecond)
					}
				})
				for range 12 {
					w.crashAfter(time.Duration(rnd.IntN(8000)) * time.Millisecond)
				}
				_, stop := w.run()
				writing.Wait()
				time.Sleep(time.Minute)
				if err := stop(); err != nil {
					t.Errorf("Run() error = %v", err)
				}
				got := w.consume(topics...)
				relaytest.CheckOrder(t, got, all)
				relaytest.CheckTimes(t, got)
			})
		})
	}
}

// Redpanda before the fix of May 2025 answers a query of a time with the beginning of the
// compressed batch that has the record: earlier than asked. A relay that is killed then reads back
// more, and nothing is lost or there twice.
func TestRelay_EarlyAnswersToTimesRepeatNothing(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) { c.ConfidenceWindow = 20 * time.Second }, testworld.WithoutTopicIDs().Options()...)
		defer w.close()
		early := 0
		w.cluster.ControlKey(kmsg.ListOffsets.Int16(), func(req kmsg.Request) (kmsg.Response, error, bool) {
			w.cluster.KeepControl()
			for _, topic := range req.(*kmsg.ListOffsetsRequest).Topics {
				for i := range topic.Partitions {
					if at := &topic.Partitions[i].Timestamp; *at > 0 {
						*at = max(*at-3000, 0)
						early++
					}
				}
			}
			return nil, nil, false
		})
		all := relaytest.Events(10, 6, "OrderCreated", "OrderUpdated")
		var writing sync.WaitGroup
		writing.Go(func() {
			for _, e := range all {
				w.write(e)
				time.Sleep(200 * time.Millisecond)
			}
		})
		for range 3 {
			w.crashAfter(4 * time.Second)
		}
		_, stop := w.run()
		writing.Wait()
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Errorf("Run() error = %v", err)
		}
		if early == 0 {
			t.Error("no time was asked for")
		}
		relaytest.CheckOrder(t, w.consume("OrderCreated", "OrderUpdated"), all)
	})
}

// crashAfter runs a relay and kills it: from one moment on it reaches nobody.
func (w *world) crashAfter(d time.Duration) {
	w.t.Helper()
	wire := &wire{dial: w.dialKafka, delay: func() time.Duration { return 0 }}
	cfg := w.cfg
	cfg.Kafka = append(slices.Clone(cfg.Kafka), kgo.Dialer(wire.DialContext))
	cfg.DrainTimeout = time.Millisecond
	cfg.Session, cfg.Registerer = w.connect("outbox"), nil
	r, err := New(cfg)
	if err != nil {
		w.t.Fatalf("New() error = %v", err)
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	time.Sleep(d)
	wire.kill()
	cfg.Session.Close() // nothing is saved
	cancel()
	<-done
}
