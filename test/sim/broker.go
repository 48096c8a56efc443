package sim

import (
	"context"
	"net"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// brokerAddr is where the one broker listens.
const brokerAddr = "127.0.0.1:9092"

// partitions is how many each topic has.
const partitions = 3

// kafka is the broker.
type kafka struct {
	cluster *kfake.Cluster
	virtual kfake.VirtualNetwork

	mu       sync.Mutex
	thaw     chan struct{} // closed to let a frozen broker go on; nil while it is not frozen
	produced func()        // called for each request that publishes, before it is carried out
}

func startKafka(t *testing.T, topics ...string) *kafka {
	t.Helper()
	k := &kafka{}
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(9092), kfake.ListenFn(k.virtual.Listen),
		kfake.SeedTopics(partitions, topics...))
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

// before runs ahead of each request, one at a time.
func (k *kafka) before(req kmsg.Request) {
	k.mu.Lock()
	thaw, produced := k.thaw, k.produced
	k.mu.Unlock()
	// The only one who fetches is the tap, who is to see when a record came in.
	if _, ok := req.(*kmsg.FetchRequest); !ok && thaw != nil {
		k.cluster.SleepControl(func() { <-thaw })
	}
	if _, ok := req.(*kmsg.ProduceRequest); ok && produced != nil {
		produced()
	}
}

// freeze stops the broker as SIGSTOP does: connections stay and nothing is answered.
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

// frozen says whether it is.
func (k *kafka) frozen() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.thaw != nil
}

// onProduce calls f before each request that publishes is carried out; nil ends that.
func (k *kafka) onProduce(f func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.produced = f
}

// dialer connects a client to the broker over the network.
func (k *kafka) dialer(n *network, client string) kgo.Opt {
	return kgo.Dialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := n.dial(ctx, client, broker, func(ctx context.Context) (net.Conn, error) {
			return k.virtual.DialContext(ctx, network, addr)
		})
		if err != nil {
			return nil, err
		}
		return c, nil
	})
}

// ends are the offsets behind the last records, by topic and partition.
func (k *kafka) ends(topics []string) map[partition]int64 {
	out := make(map[partition]int64)
	for _, topic := range topics {
		for _, p := range k.cluster.PartitionInfos(topic) {
			out[partition{topic, p.Partition}] = p.HighWatermark
		}
	}
	return out
}
