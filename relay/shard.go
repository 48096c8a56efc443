package relay

import (
	"fmt"
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/scylla-outbox/scylla-outbox/relay/internal/capture"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/dedup"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/readback"
)

// Shard is one of Count equal parts of an outbox table; the zero value is the whole
// table. See cdclog.Shard.
type Shard = cdclog.Shard

// MaxShards bounds Shard.Count.
const MaxShards = cdclog.MaxShards

// shardName returns the name under which the relay stores its own state.
func (c *Config) shardName() string { return c.Shard.Name(c.Name) }

// leastQueries is the least that a shard needs of TailMaxQueriesPerSecond.
const leastQueries = 50

// onlyShare divides the limits of the relay by the number of shards, down to the
// least value that a relay needs to make progress. The limits of a process are divided by
// the Process, if there is one.
func (c *Config) onlyShare() {
	n := c.Shard.Count
	if n < 2 {
		return
	}
	part := func(v *int, least int) {
		if *v > least {
			*v = max(*v/n, least)
		}
	}
	part(&c.MaxInFlightRecords, 100)
	part(&c.SpillLimit, 100)
	part(&c.ReplayConcurrency, 4)
	part(&c.BackfillRowsPerSecond, 100)
	if least := int64(c.MaxRecordBytes); c.MaxInFlightBytes > least {
		c.MaxInFlightBytes = max(c.MaxInFlightBytes/int64(n), least)
	}
	perSecond := func(v *float64, least float64) {
		if *v > least {
			*v = max(*v/float64(n), least)
		}
	}
	perSecond(&c.ReplayRate, 1)
	if c.Process != nil {
		return
	}
	part(&c.MaxAggregates, dedup.LeastAggregates)
	if least := int64(dedup.LeastEvents * dedup.BytesPerEvent); c.DedupMemory > least {
		c.DedupMemory = max(c.DedupMemory/int64(n), least)
	}
	perSecond(&c.TailMaxQueriesPerSecond, leastQueries)
}

// Process contains the parts that the relays of one table have in common that run in one
// process, each for a shard. While they run, they share DedupMemory, MaxAggregates and
// TailMaxQueriesPerSecond, which are the same for all of them. Relays which start together
// read the topics back once. It is safe for concurrent use; the zero value is ready.
type Process struct {
	backs readback.Group
	pool  dedup.Pool

	mu   sync.Mutex
	tail *rate.Limiter // nil until a relay is made
}

// announce returns the ticket of a relay that has started; nil without a process.
func (p *Process) announce() *readback.Ticket {
	if p == nil {
		return nil
	}
	return p.backs.Announce()
}

// placement is a relay's place in its process, or in one of its own.
type placement struct {
	process *Process
	share   *dedup.Share
	tail    *rate.Limiter // one for all shards: the idle ones leave it to the others
	queries float64       // Config.TailMaxQueriesPerSecond
	turns   *capture.Turns
}

// place returns the place of the relay. New calls it first.
func (c *Config) place() *placement {
	if c.placed != nil {
		return c.placed
	}
	p := c.Process
	if p == nil {
		p = new(Process)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.tail == nil {
		p.tail = capture.NewTailLimiter(c.TailMaxQueriesPerSecond)
	}
	share := p.pool.Share(int(max(c.DedupMemory/dedup.BytesPerEvent, 1)), c.MaxAggregates)
	c.placed = &placement{p, share, p.tail, c.TailMaxQueriesPerSecond, capture.NewTurns()}
	return c.placed
}

// join divides the limits among the relays of the process and this one.
func (x *placement) join() { x.change(x.share.Join) }

// leave gives the shares of the relay to the others.
func (x *placement) leave() { x.change(x.share.Leave) }

func (x *placement) change(by func()) {
	x.process.mu.Lock()
	defer x.process.mu.Unlock()
	by()
	if x.queries > leastQueries {
		x.tail.SetLimit(rate.Limit(max(x.queries, float64(leastQueries*x.process.pool.Shards()))))
	}
}

// shardMetrics registers a shard's metrics with the label shard, its index from 0, when its relay runs, and
// unregisters them when the relay ends: the process may own the shard again later. A
// relay that never runs registers nothing.
type shardMetrics struct {
	prometheus.Registerer
	all  []prometheus.Collector
	runs bool // later metrics, such as the metrics of hints, are registered immediately
}

func newShardMetrics(reg prometheus.Registerer, s Shard) *shardMetrics {
	return &shardMetrics{Registerer: prometheus.WrapRegistererWith(prometheus.Labels{"shard": strconv.Itoa(s.Index)}, reg)}
}

// Register records c, to be registered when the relay runs, or registers it if the
// relay runs already.
func (m *shardMetrics) Register(c prometheus.Collector) error {
	if m.runs {
		if err := m.Registerer.Register(c); err != nil {
			return err
		}
	}
	m.all = append(m.all, c)
	return nil
}

// MustRegister is Register; it panics with the first error.
func (m *shardMetrics) MustRegister(cs ...prometheus.Collector) {
	for _, c := range cs {
		if err := m.Register(c); err != nil {
			panic(err)
		}
	}
}

// register registers all recorded metrics, or none if one fails.
func (m *shardMetrics) register() error {
	for i, c := range m.all {
		if err := m.Registerer.Register(c); err != nil {
			m.all = m.all[:i]
			m.unregister()
			return fmt.Errorf("register the metrics of the shard, which another relay of this process may carry: %w", err)
		}
	}
	m.runs = true
	return nil
}

// unregister unregisters all metrics.
func (m *shardMetrics) unregister() {
	for _, c := range m.all {
		m.Unregister(c)
	}
	m.all, m.runs = nil, false
}
