package relay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/scylla-outbox/scylla-outbox/internal/logtest"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/dedup"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/publish"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/readback"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
	"github.com/scylla-outbox/scylla-outbox/test/seeds"
)

var modelTopics = []string{"OrderCreated", "OrderUpdated", "OrderCancelled"}

// crashing runs relays over a model and kills all but the last.
type crashing struct {
	*fixture
	rnd   *dice
	model *model
	store *relaytest.Checkpoints
}

func newCrashing(t *testing.T, seed uint64, change func(*Config), opts ...kfake.Opt) *crashing {
	rnd := rand.New(rand.NewPCG(seed, 2))
	c := &crashing{fixture: setup(t, change, opts...), model: newModel(rnd, 4, 60, 8), store: relaytest.NewCheckpoints()}
	c.rnd = &dice{rnd: rnd}
	c.store.Generation, c.store.First = c.model.generation, c.model.generation
	return c
}

// dice are random numbers for several goroutines.
type dice struct {
	mu  sync.Mutex
	rnd *rand.Rand
}

// IntN is rand.Rand's.
func (d *dice) IntN(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rnd.IntN(n)
}

// life runs a relay for a while and kills it.
func (c *crashing) life(d time.Duration) {
	w := &wire{dial: c.net.DialContext, delay: func() time.Duration { return 0 }}
	p := c.start(w)
	time.Sleep(d)
	p.stop()
	w.kill()
	p.publisher.Close()
	<-p.done
}

func (c *crashing) start(w *wire) *process {
	b := *c.fixture
	b.cfg.Kafka = append(b.cfg.Kafka[:len(b.cfg.Kafka):len(b.cfg.Kafka)], kgo.Dialer(w.DialContext))
	return start(&b, c.model, c.store, 20*time.Millisecond)
}

// last runs a relay until every event is published.
func (c *crashing) last() *process {
	p := start(c.fixture, c.model, c.store, 0)
	<-p.done
	for ctx, cancel := context.WithTimeout(c.t.Context(), time.Hour); ; {
		if p.publisher.Drain(ctx) == 0 || ctx.Err() != nil {
			cancel()
			break
		}
	}
	p.publisher.Close()
	p.stop()
	time.Sleep(time.Minute)
	return p
}

// check fails the test unless the topics contain every event in order, and returns how many events
// are there twice.
func (c *crashing) check() (repeated int) {
	c.t.Helper()
	first, repeated := firstSightings(c.consume(modelTopics...))
	relaytest.CheckOrder(c.t, first, c.model.events())
	relaytest.CheckTimes(c.t, first)
	return repeated
}

// What a killed relay had sent may arrive when the next one has begun.
func TestReadback_KnowsWhatWasUnderWay(t *testing.T) {
	t.Parallel()
	for seed := range seeds.Range(t, relaytest.Fewer(20)) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCrashing(t, seed, func(c *Config) { c.ReadBackQuiet = 600 * time.Millisecond })
				defer c.close()
				for range 6 {
					w := &wire{dial: c.net.DialContext, delay: func() time.Duration {
						return time.Duration(c.rnd.IntN(500)) * time.Millisecond
					}}
					p := c.start(w)
					time.Sleep(time.Duration(c.rnd.IntN(6000)) * time.Millisecond)
					w.kill()
					p.stop()
					go func() { p.publisher.Close() }()
				}
				c.last()
				if n := c.check(); n != 0 {
					t.Errorf("%d events are there twice", n)
				}
			})
		})
	}
}

// A relay that is killed again and again while it reads back, with a broker that
// comes and goes, neither publishes nor forgets anything.
func TestReadback_IsKilledItself(t *testing.T) {
	t.Parallel()
	for seed := range seeds.Range(t, relaytest.Fewer(10)) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCrashing(t, seed, nil)
				defer c.close()
				var calm atomic.Bool
				c.cluster.ControlKey(int16(kmsg.Fetch), func(kmsg.Request) (kmsg.Response, error, bool) {
					c.cluster.KeepControl()
					switch {
					case calm.Load():
					case c.rnd.IntN(3) == 0:
						return nil, errors.New("the connection is cut"), true
					case c.rnd.IntN(3) == 0:
						c.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Err: kerr.NotLeaderForPartition})
					}
					return nil, nil, false
				})
				c.life(3 * time.Second)
				for range 10 {
					c.life(time.Duration(c.rnd.IntN(2000)) * time.Millisecond)
				}
				c.last()
				calm.Store(true)
				if n := c.check(); n != 0 {
					t.Errorf("%d events are there twice", n)
				}
			})
		})
	}
}

// Without the right to read, everything past the checkpoint comes once more, with the id that it
// had, and the relay reports that once.
func TestReadback_WithoutTheRight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		topic := func(op kmsg.ACLOperation) kfake.ACL {
			return kfake.ACL{Resource: kmsg.ACLResourceTypeTopic, Name: "Order", Pattern: kmsg.ACLResourcePatternTypePrefixed, Operation: op, Allow: true}
		}
		var logged logtest.Buffer
		c := newCrashing(t, 1, func(c *Config) {
			c.Kafka = append(c.Kafka, kgo.SASL(plain.Auth{User: "relay", Pass: "r"}.AsMechanism()))
			c.Logger = slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelWarn}))
		}, kfake.EnableSASL(), kfake.EnableACLs(), kfake.Superuser("PLAIN", "admin", "a"),
			kfake.User("PLAIN", "relay", "r", topic(kmsg.ACLOperationWrite), topic(kmsg.ACLOperationCreate),
				topic(kmsg.ACLOperationDescribe), topic(kmsg.ACLOperationDescribeConfigs),
				kfake.ACL{Resource: kmsg.ACLResourceTypeCluster, Name: "kafka-cluster", Operation: kmsg.ACLOperationIdempotentWrite, Allow: true}))
		defer c.close()
		c.store.Freeze(true)
		c.life(2 * time.Second)
		c.store.Freeze(false)
		logged.Reset()
		p := c.last()
		if n := strings.Count(logged.String(), "may not be read back"); n != 1 || !strings.Contains(logged.String(), "[OrderCancelled OrderCreated OrderUpdated]") {
			t.Errorf("said %d times that topics may not be read, want once, naming them:\n%s", n, logged.String())
		}
		ms := p.readback.Metrics
		if n := level(ms.Partitions.WithLabelValues("denied")); n != 9 {
			t.Errorf("outbox_relay_readback_partitions{result=denied} = %v, want 9", n)
		}
		c.cfg.Kafka = []kgo.Opt{kgo.Dialer(c.net.DialContext), kgo.SASL(plain.Auth{User: "admin", Pass: "a"}.AsMechanism())}
		if n := c.check(); n == 0 {
			t.Error("nothing is there twice: the test did not crash where it should")
		}
	})
}

// A topic that could not be read at a start is published to again there; once it can be
// read, no start repeats anything.
func TestReadback_AfterTheShardIsGranted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCrashing(t, 1, nil)
		defer c.close()
		var denied atomic.Bool
		c.cluster.ControlKey(int16(kmsg.ListOffsets), func(req kmsg.Request) (kmsg.Response, error, bool) {
			c.cluster.KeepControl()
			if !denied.Load() {
				return nil, nil, false
			}
			resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
			for _, topic := range req.(*kmsg.ListOffsetsRequest).Topics {
				rt := kmsg.NewListOffsetsResponseTopic()
				rt.Topic = topic.Topic
				for _, p := range topic.Partitions {
					rp := kmsg.NewListOffsetsResponseTopicPartition()
					rp.Partition, rp.ErrorCode = p.Partition, kerr.TopicAuthorizationFailed.Code
					rt.Partitions = append(rt.Partitions, rp)
				}
				resp.Topics = append(resp.Topics, rt)
			}
			return resp, nil, true
		})
		c.store.Freeze(true) // no checkpoint passes anything
		c.life(2 * time.Second)
		denied.Store(true)
		c.life(2 * time.Second)
		denied.Store(false)
		_, repeated := firstSightings(c.consume(modelTopics...))
		if repeated == 0 {
			t.Error("nothing is there twice: the start was not denied")
		}
		c.life(2 * time.Second)
		c.store.Freeze(false)
		c.last()
		if n := c.check(); n != repeated {
			t.Errorf("%d events are there twice after the grant, want the %d of before", n, repeated)
		}
	})
}

// While the broker is away nothing is published, and the relay reports the cause.
func TestReadback_WaitsForTheBroker(t *testing.T) {
	t.Parallel()
	relaytest.Long(t)
	synctest.Test(t, func(t *testing.T) {
		c := newCrashing(t, 1, nil)
		defer c.close()
		c.life(2 * time.Second)
		var away atomic.Bool
		away.Store(true)
		c.cluster.Control(func(kmsg.Request) (kmsg.Response, error, bool) {
			c.cluster.KeepControl()
			return nil, errors.New("the connection is cut"), away.Load()
		})
		w := &wire{dial: c.net.DialContext, delay: func() time.Duration { return 0 }}
		p := c.start(w)
		time.Sleep(time.Hour)
		if running, err := p.readback.State(); !running || err == nil {
			t.Errorf("state() = %t, %v, want it running, and an error", running, err)
		}
		away.Store(false)
		time.Sleep(time.Minute)
		if running, err := p.readback.State(); running || err != nil {
			t.Errorf("state() = %t, %v after the broker came back", running, err)
		}
		p.kill()
		c.last()
		if n := c.check(); n != 0 {
			t.Errorf("%d events are there twice", n)
		}
	})
}

// One partition that nobody leads does not keep the others from going on, and nothing is
// published to it.
func TestReadback_GatesAPartitionWithoutALeader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		// A pause between attempts does not prolong the patience.
		c := newCrashing(t, 1, func(c *Config) { c.RetryMin, c.RetryMax = readback.Patience, readback.Patience })
		defer c.close()
		c.store.Freeze(true)
		c.life(2 * time.Second)
		c.store.Freeze(false)
		gone := c.cluster.Fault(kfake.Fault{
			Keys:  []kmsg.Key{kmsg.Fetch},
			Topic: "OrderUpdated", Partitions: []int32{1}, Err: kerr.NotLeaderForPartition, Count: -1,
		})
		began := time.Now()
		p := c.start(&wire{dial: c.net.DialContext, delay: func() time.Duration { return 0 }})
		for running := true; running; running, _ = p.readback.State() {
			time.Sleep(100 * time.Millisecond)
		}
		if took := time.Since(began); took < readback.Patience || took > readback.Patience+time.Second {
			t.Errorf("went on after %s, want little more than %s", took, readback.Patience)
		}
		if n := level(p.readback.Metrics.Partitions.WithLabelValues("unread")); n != 1 {
			t.Errorf("outbox_relay_readback_partitions{result=unread} = %v, want 1", n)
		}
		gone.Remove()
		time.Sleep(10 * time.Second)
		p.kill()
		c.last()
		if n := c.check(); n != 0 {
			t.Errorf("%d events are there twice", n)
		}
	})
}

// A topic whose timestamps are the broker's is read back like any other.
func TestReadback_OfTopicsWithBrokerTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCrashing(t, 1, nil, kfake.BrokerConfigs(map[string]string{"log.message.timestamp.type": "LogAppendTime"}))
		defer c.close()
		for range 5 {
			c.life(time.Second)
		}
		c.last()
		if n := c.check(); n != 0 {
			t.Errorf("%d events are there twice", n)
		}
	})
}

// Topics are read back for as much as may be remembered, the newest part.
func TestReadback_RemembersTheNewestPart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCrashing(t, 1, func(c *Config) { c.DedupMemory = 100 * dedup.BytesPerEvent })
		defer c.close()
		c.store.Freeze(true)
		c.life(4 * time.Second)
		c.store.Freeze(false)
		before := len(c.consume(modelTopics...))
		p := c.last()
		n := int(level(p.readback.Metrics.Events))
		if n == 0 || n > 100 || before <= 100 {
			t.Errorf("%d of %d events are remembered, want at most 100", n, before)
		}
		c.check()
	})
}

// The scanner reads what a producer writes, in every codec, between records
// that are no events, and passes over control batches. It runs in real time:
// the zstd decoder ends in a finalizer.
func TestBatchScanner_ReadsWhatProducersWrite(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	defer b.close()
	all := relaytest.Events(20, 5, "OrderCreated")
	codecs := []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()}
	for i, codec := range codecs {
		cfg := b.cfg
		cfg.Kafka = append(cfg.Kafka[:len(cfg.Kafka):len(cfg.Kafka)], kgo.ProducerBatchCompression(codec))
		p, err := publish.New(cfg.publish(), b.metrics.Metrics, func(err error) { t.Error(err) })
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range all[i*20 : i*20+20] {
			e.Payload = bytes.Repeat(e.Payload, 20)
			if err := p.Submit(t.Context(), cdclog.StoredEvent{Event: e}, publish.BySweep, publish.Settlement{}); err != nil {
				t.Fatal(err)
			}
		}
		p.Drain(t.Context())
		p.Close()
		strangers(t, b, "OrderCreated")
	}
	got := make(map[gocql.UUID]readback.Event)
	var mu sync.Mutex
	topics := &readback.Topics{
		Client: b.kafka(), Admin: b.admin(), Source: b.cfg.Source,
		Parts: make(map[string]map[int32]*readback.Partition), Denied: make(map[string]error),
		Take: func(es []readback.Event) {
			mu.Lock()
			defer mu.Unlock()
			for _, e := range es {
				got[e.ID] = e
			}
		},
	}
	for _, step := range []func() error{
		func() error { return topics.Locate(t.Context(), []string{"OrderCreated", "None"}, time.Unix(0, 0)) },
		func() error { return topics.FindEnds(t.Context()) },
		func() error { return topics.Read(t.Context()) },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	for _, e := range all {
		if g := got[e.ID.UUID()]; g.Aggregate != e.AggregateID.UUID() || g.Sequence != e.Sequence || !g.Ours {
			t.Errorf("event %s: got %+v", e.ID, g)
		}
	}
	if len(got) != len(all) || len(topics.Denied) > 0 {
		t.Errorf("%d events, want %d; denied: %v", len(got), len(all), topics.Denied)
	}
}

// strangers puts records into a topic that are no events, one in a transaction.
func strangers(t *testing.T, b *fixture, topic string) {
	t.Helper()
	cl, err := kgo.NewClient(append(b.cfg.Kafka, kgo.SeedBrokers(b.cfg.Brokers...), kgo.TransactionalID("stranger"))...)
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if err := cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	for _, r := range []*kgo.Record{
		{Topic: topic},
		{Topic: topic, Key: []byte("k"), Value: []byte("v"), Headers: []kgo.RecordHeader{{Key: "ce_id"}, {Key: "", Value: nil}}},
		{Topic: topic, Headers: []kgo.RecordHeader{{Key: "ce_id", Value: []byte(strings.Repeat("z", 36))}}},
		{Topic: topic, Headers: []kgo.RecordHeader{{Key: "ce_aggregatesequence", Value: []byte("many")}}},
	} {
		if err := cl.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	if err := cl.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
}

// level is the value of a gauge.
func level(g prometheus.Gauge) float64 {
	var m dto.Metric
	if err := g.Write(&m); err != nil {
		panic(err)
	}
	return m.GetGauge().GetValue()
}
