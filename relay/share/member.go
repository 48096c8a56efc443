package share

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/internal/retry"
)

// Work runs on a shard from the moment this instance owns it. When ctx ends it finishes
// work in progress within Config.StopTimeout and returns; if h.Check returns an error it
// returns immediately.
//
// After an error, or a return before ctx ends, the member restarts it with a delay. An
// error that is Fatal stops the member.
type Work func(ctx context.Context, h *Hold) error

// Member is one of the instances that share the shards. Its methods are safe for
// concurrent use; Run is called once.
type Member struct {
	cfg     Config
	log     *slog.Logger
	metrics *metrics
	lease   lease

	// Set by Run.
	divided string
	base    context.Context // parent of the functions' contexts; outlives Run's context
	work    Work
	fail    context.CancelCauseFunc
	client  *kgo.Client
	beat    chan struct{} // requests an immediate heartbeat
	// steady is the last generation in which a heartbeat found no rebalance. Only heartbeat
	// uses it.
	steady memberGeneration

	wg sync.WaitGroup // functions that have not returned

	mu       sync.Mutex
	assigned map[int]bool  // shards assigned by the group
	holds    map[int]*Hold // functions that have not returned
	stopping bool
	err      error // last error of the group or the broker
	errSince time.Time
}

// New validates the configuration and returns a Member that is not running.
func New(cfg Config) (*Member, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	m := &Member{
		cfg: cfg, log: cfg.Logger, beat: make(chan struct{}, 1),
		lease:    lease{session: cfg.SessionTimeout, rebalance: cfg.RebalanceTimeout, margin: cfg.margin()},
		assigned: make(map[int]bool), holds: make(map[int]*Hold),
	}
	m.metrics = newMetrics(cfg.Registerer, m)
	return m, nil
}

// Run works on assigned shards until ctx ends, through any outage of the broker. divided
// identifies the source that is divided into the shards, such as a database: a member of
// another one would take shards whose work it does not see, so the broker rejects it. At the
// end Run ends the functions, waits for them, leaves the group, so that other instances take
// over immediately, and returns nil.
//
// It returns an error that retries cannot resolve: the number of shards, or divided, differs from that of
// the other instances, the broker refuses the member, or a function returned an error that is Fatal.
func (m *Member) Run(ctx context.Context, divided string, work Work) error {
	tail, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	m.divided = divided
	m.work, m.fail, m.base = work, fail, context.WithoutCancel(ctx)

	// Ending the client's context ends requests that would be retried while the broker is
	// unreachable.
	life, kill := context.WithCancel(context.WithoutCancel(ctx))
	defer kill()
	client, err := m.newClient(life)
	if err != nil {
		return err
	}
	m.client = client
	defer client.Close()
	defer kill()
	if err := m.prepare(tail); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	client.AddConsumeTopics(m.cfg.topic())

	var loops sync.WaitGroup
	still, end := context.WithCancel(life)
	loops.Go(func() { m.heartbeats(still) })
	loops.Go(func() { m.watch(still) })
	loops.Go(func() { m.poll(still) })
	loops.Go(func() { m.removeEnded(still) })
	<-tail.Done()

	m.stop()
	leave, cancel := context.WithTimeout(life, m.cfg.patience())
	if err := client.LeaveGroupContext(leave); err != nil {
		m.log.Warn("failed to leave the group; other instances take over after the session timeout", "session_timeout", m.cfg.SessionTimeout, "err", err)
	}
	cancel()
	end()
	loops.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return context.Cause(tail)
}

// newClient returns the client of the group. It joins when a topic is added.
func (m *Member) newClient(ctx context.Context) (*kgo.Client, error) {
	c := &m.cfg
	// The options that the lease depends on come last: c.Kafka cannot override them.
	id := clientPrefix
	if c.process != (process{}) {
		id = c.process.clientID()
	}
	client, err := kgo.NewClient(append(slices.Clone(c.Kafka),
		kgo.ClientID(id),
		kgo.WithContext(ctx),
		kgo.SeedBrokers(c.Brokers...),
		kgo.ConsumerGroup(c.Name),
		kgo.Balancers(balancer{kgo.CooperativeStickyBalancer(), c.Shards, m.divided}),
		kgo.SessionTimeout(c.SessionTimeout),
		kgo.HeartbeatInterval(c.heartbeat()),
		kgo.RebalanceTimeout(c.RebalanceTimeout),
		kgo.RequestTimeoutOverhead(max(c.patience(), 100*time.Millisecond)),
		kgo.AlwaysRetryEOF(),
		kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(m.onAssigned),
		kgo.OnPartitionsRevoked(m.onRevoked),
		kgo.OnPartitionsLost(m.onLost),
		kgo.WithHooks(groupErrors{m}),
	)...)
	if err != nil {
		return nil, fmt.Errorf("kafka client: %w", err)
	}
	client.PauseFetchTopics(c.topic()) // always empty
	return client, nil
}

// prepare creates the control topic and retries while the broker is unreachable.
func (m *Member) prepare(ctx context.Context) error {
	admin := kadm.NewClient(m.client)
	for attempt := 1; ; attempt++ {
		err := m.ensureTopic(ctx, admin)
		if err == nil {
			return nil
		}
		if count, ok := errors.AsType[*CountError](err); ok {
			return count
		}
		if said := m.cfg.explain(err); said != nil {
			return said
		}
		if ctx.Err() != nil {
			return context.Cause(ctx) // not the broker's fault
		}
		m.note(err)
		wait := retry.Backoff(100*time.Millisecond, m.cfg.RestartDelay, attempt)
		if !errors.Is(err, kerr.TopicAlreadyExists) { // otherwise another instance created it
			m.log.Warn("control topic not ready; retrying", "topic", m.cfg.topic(), "wait", wait, "err", err)
		}
		if err := retry.Wait(ctx, wait); err != nil {
			return err
		}
	}
}

// settle starts the functions of assigned shards while the lease lasts. Called locked.
func (m *Member) settle() {
	if m.stopping || m.lease.over() {
		return
	}
	for _, shard := range slices.Sorted(maps.Keys(m.assigned)) {
		if m.holds[shard] == nil {
			m.start(shard)
		}
	}
}

// start runs the function of a shard. Called locked.
func (m *Member) start(shard int) {
	ctx, cancel := context.WithCancelCause(m.base)
	h := &Hold{shard: shard, since: time.Now(), lease: &m.lease, cancel: cancel, done: make(chan struct{})}
	m.holds[shard] = h
	m.metrics.owned[shard].Set(1)
	m.log.Info("shard acquired", "shard", shard)
	m.wg.Go(func() {
		m.hold(ctx, h)
		cancel(nil)
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.holds, shard)
		m.metrics.owned[shard].Set(0)
		m.log.Info("shard released", "shard", shard, "cause", context.Cause(ctx), "held", time.Since(h.since))
		close(h.done)
		m.settle() // it may have been assigned again
	})
}

// stop ends all functions and waits for them.
func (m *Member) stop() {
	m.mu.Lock()
	m.stopping = true
	m.mu.Unlock()
	holds := m.all()
	for _, h := range holds {
		h.cancel(ErrStopping)
	}
	m.await(holds)
}

// await waits for functions whose contexts have ended. Functions that do not return in time
// lose their shards.
func (m *Member) await(holds []*Hold) {
	late := time.NewTimer(m.cfg.RebalanceTimeout - m.cfg.margin())
	defer late.Stop()
	for _, h := range holds {
		select {
		case <-h.done:
			continue
		case <-late.C:
		}
		for _, h := range holds {
			select {
			case <-h.done:
				continue
			default:
			}
			if h.lose(fmt.Errorf("%w: its work did not end in time", ErrLost)) {
				m.metrics.lost.Inc()
			}
			m.log.Error("work on shard did not end in time; releasing it to other instances", "shard", h.shard, "waited", m.cfg.RebalanceTimeout-m.cfg.margin())
		}
		return
	}
}

// all returns the holds whose functions have not returned.
func (m *Member) all() []*Hold {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Values(m.holds))
}

// note records the last error of the group or the broker, nil after a success.
func (m *Member) note(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case err == nil:
		m.errSince = time.Time{}
	case m.err == nil:
		m.errSince = time.Now()
	}
	m.err = err
}
