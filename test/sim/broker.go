package sim

import (
	"context"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	testworld "github.com/scylla-outbox/scylla-outbox/test/world"
)

// brokerAddr is the address of the first broker.
const brokerAddr = "127.0.0.1:9092"

// partitions is the number of partitions of each topic.
const partitions = 3

// kafka is the broker.
type kafka struct {
	cluster *kfake.Cluster
	virtual kfake.VirtualNetwork
	version *testworld.BrokerVersion
	brokers int
	unread  bool // read access to a topic was denied at some time

	mu       sync.Mutex
	thaw     chan struct{}          // closed to resume a frozen broker; nil while not frozen
	held     chan struct{}          // closed to resume held requests; nil while none are held
	produced func()                 // called for each produce request before its execution
	slow     func() time.Duration   // delay of the next produce request; nil for none
	waiting  int                    // number of delayed produce requests
	refuses  bool                   // produce requests were answered with errors at some time
	delayed  []delayedRequest       // produce requests
	created  []string               // topics that may have been created and of which the tap does not know
	executed func(created []string) // called at the time of each produce request, with the topics created before it
}

// delayedRequest is a produce request that the broker executed later than it received it.
type delayedRequest struct {
	received, executed time.Time
	producers          []int64 // ids of the producers of its batches
}

// wrote reports whether the request may have written a record, up to a second before its time.
func (d delayedRequest) wrote(r *record) bool {
	return slices.Contains(d.producers, r.producer) && !r.at.Before(d.executed) && r.at.Sub(d.executed) < time.Second
}

// producersOf returns the ids of the producers of a request's batches.
func producersOf(req *kmsg.ProduceRequest) (ids []int64) {
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			var b kmsg.RecordBatch
			if b.ReadFrom(p.Records) == nil && !slices.Contains(ids, b.ProducerID) {
				ids = append(ids, b.ProducerID)
			}
		}
	}
	return ids
}

// givenUpAfter is the time for which a client waits for the answer to a produce request.
const givenUpAfter = 20 * time.Second

// startKafka starts the brokers, as one of the versions that the product is tested with: the
// seed determines which.
func startKafka(t *testing.T, seed uint64, brokers int, brokerTime bool, topics ...string) *kafka {
	t.Helper()
	k := &kafka{version: &testworld.BrokerVersions[seed%uint64(len(testworld.BrokerVersions))], brokers: brokers}
	opts := slices.Clone(k.version.Options())
	if brokerTime {
		opts = append(opts, kfake.BrokerConfigs(map[string]string{"log.message.timestamp.type": "LogAppendTime"}))
	}
	cluster, err := kfake.NewCluster(append(opts, kfake.NumBrokers(brokers), kfake.Ports(9092, 9093, 9094), kfake.ListenFn(k.virtual.Listen),
		kfake.SeedTopics(partitions, topics...))...)
	if err != nil {
		t.Fatalf("start the broker: %v", err)
	}
	k.cluster = cluster
	cluster.Control(func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		k.before(req)
		return nil, nil, false
	})
	return k
}

// before runs before each request, never concurrently.
func (k *kafka) before(req kmsg.Request) {
	received := time.Now()
	k.mu.Lock()
	thaw, held, produced := k.thaw, k.held, k.produced
	produce, publishes := req.(*kmsg.ProduceRequest)
	var delay time.Duration
	if publishes && k.slow != nil {
		if delay = k.slow(); delay > 0 {
			k.waiting++
		}
	}
	k.mu.Unlock()
	// Only the tap fetches; it must observe when a record was stored.
	if _, ok := req.(*kmsg.FetchRequest); !ok && (thaw != nil || held != nil) {
		k.cluster.SleepControl(func() {
			for _, gate := range []chan struct{}{thaw, held} {
				if gate != nil {
					<-gate
				}
			}
		})
	}
	if delay > 0 {
		k.cluster.SleepControl(func() { time.Sleep(delay) })
		k.mu.Lock()
		k.waiting--
		k.mu.Unlock()
	}
	if publishes && produced != nil {
		produced()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if r, ok := req.(*kmsg.CreateTopicsRequest); ok {
		for _, t := range r.Topics {
			k.created = append(k.created, t.Topic)
		}
	}
	if now := time.Now(); publishes && now.After(received) {
		k.delayed = append(k.delayed, delayedRequest{received, now, producersOf(produce)})
	}
	if publishes {
		go k.executed(k.created)
		k.created = nil
	}
}

// freeze stops the broker like SIGSTOP: connections stay open without answers.
func (k *kafka) freeze() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.thaw == nil {
		k.thaw = make(chan struct{})
	}
}

// unfreeze undoes freeze.
func (k *kafka) unfreeze() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.thaw != nil {
		close(k.thaw)
		k.thaw = nil
	}
}

// hold delays all requests but fetches until release is called: nothing is added to a topic.
func (k *kafka) hold() (release func()) {
	gate := make(chan struct{})
	k.mu.Lock()
	k.held = gate
	k.mu.Unlock()
	return func() {
		k.mu.Lock()
		k.held = nil
		k.mu.Unlock()
		close(gate)
	}
}

// slowProduces delays each produce request by the result of f; nil disables it.
func (k *kafka) slowProduces(f func() time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.slow = f
}

// holdsBack reports whether a sent request may be executed much later.
func (k *kafka) holdsBack() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.thaw != nil || k.waiting > 0
}

// refuse makes produce requests for a topic ("" for any) fail with probability p and one
// of the errors until stop is called.
func (k *kafka) refuse(topic string, p float64, rnd *rand.Rand, errs ...*kerr.Error) (stop func()) {
	k.refuses = true
	return k.cluster.Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Count: -1, Err: errs[rnd.IntN(len(errs))],
		When: func(kmsg.Request) bool { return rnd.Float64() < p },
	}).Remove
}

// leaderless removes the leaders of partitions until stop is called: of one topic, "" for
// all, and of these partitions, nil for all. If named is set, metadata answers contain no
// leader either; otherwise a client receives the error from the broker that it considers
// the leader.
func (k *kafka) leaderless(topic string, partitions []int32, named bool) (stop func()) {
	f := kfake.Fault{
		Keys: []kmsg.Key{kmsg.Produce, kmsg.Fetch, kmsg.ListOffsets, kmsg.OffsetForLeaderEpoch}, Topic: topic, Partitions: partitions, Count: -1,
		Err: kerr.NotLeaderForPartition, When: notTaps,
	}
	both := []kfake.Fault{f}
	if named {
		f.Keys, f.Err = []kmsg.Key{kmsg.Metadata}, kerr.LeaderNotAvailable
		both = append(both, f)
	}
	return k.cluster.Fault(both...).Remove
}

// deny denies writes to a topic until stop is called; with read also reads and
// descriptions.
func (k *kafka) deny(topic string, read bool) (stop func()) {
	f := kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Count: -1, Err: kerr.TopicAuthorizationFailed, When: notTaps}
	if read {
		k.unread = true
		f.Keys = append(f.Keys, kmsg.Metadata, kmsg.Fetch, kmsg.ListOffsets, kmsg.OffsetForLeaderEpoch)
	}
	return k.cluster.Fault(f).Remove
}

// refuseNew refuses the creation of a topic until stop is called.
func (k *kafka) refuseNew(topic string, err *kerr.Error) (stop func()) {
	return k.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.CreateTopics}, Topic: topic, Count: -1, Err: err}).Remove
}

// notTaps reports whether a request is not the tap's, which must observe when a record
// was stored.
func notTaps(req kmsg.Request) bool {
	switch r := req.(type) {
	case *kmsg.FetchRequest:
		return r.MaxWaitMillis != int32(tapWait.Milliseconds())
	case *kmsg.MetadataRequest:
		return !r.AllowAutoTopicCreation
	}
	return true
}

// onProduce calls f before each produce request is executed; nil disables it.
func (k *kafka) onProduce(f func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.produced = f
}

// options returns the options that connect a client to the broker over the network. Clients
// do not report their state to the broker, which they else do all the time.
func (k *kafka) options(n *network, client string) []kgo.Opt {
	return []kgo.Opt{kgo.DisableClientMetrics(), kgo.Dialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := n.dial(ctx, client, broker, func(ctx context.Context) (net.Conn, error) {
			return k.virtual.DialContext(ctx, network, addr)
		})
		if err != nil {
			return nil, err
		}
		return c, nil
	})}
}

// ends returns the end offsets by topic and partition.
func (k *kafka) ends(topics []string) map[partition]int64 {
	out := make(map[partition]int64)
	for _, topic := range topics {
		for _, p := range k.cluster.PartitionInfos(topic) {
			out[partition{topic: topic, number: p.Partition}] = p.HighWatermark
		}
	}
	return out
}
