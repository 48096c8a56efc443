package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/internal/filter"
	"github.com/scylla-outbox/scylla-outbox/internal/jsonform"
	"github.com/scylla-outbox/scylla-outbox/internal/kafkarecord"
	"github.com/scylla-outbox/scylla-outbox/internal/registry"
	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/internal/deadletter"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/internal/queue"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/internal/turn"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/store"
)

// group is a running subscription.
type group struct {
	e           *Engine
	name        string
	incarnation string // also the consumer group
	log         *slog.Logger
	filter      *filter.Expression // nil selects all
	transform   *filter.Transform  // nil changes nothing
	metrics     *groupMetrics
	work        context.Context // ends when the group has ended
	quit        context.CancelFunc
	stopping    chan struct{} // closed by stop
	stop        func()
	done        chan struct{} // closed when run returns
	session     session
	replayer    deadletter.Replayer
	pusher      *pusher // nil for pull delivery

	resource atomic.Pointer[store.Resource]
	client   *kgo.Client
	adm      *kadm.Client
	keys     *queue.Keys // of all partitions

	dirty  chan struct{} // has a token when a commit is needed
	timer  chan struct{} // has a token when the next deadline is earlier
	target atomic.Int64  // the next deadline, in nanoseconds

	commit  turn.Turn // held by the commit that is running
	cancels atomic.Pointer[context.CancelFunc]
	mu      struct {
		sync.Mutex
		partitions map[topicPartition]*partition
		order      []*partition // the same ones, sorted
		first      int          // where the next request begins
		fetched    map[topicPartition]committed
		counts     map[string]topicCount
		poll       context.CancelFunc // ends the poll that is running
		poked      bool               // the next poll ends immediately
		problem    string
		blocking   map[gocql.UUID]blocking // the open dead letters that were read last
		skips      []string                // ranges that were not delivered and are not acknowledged
	}
	waiting waiting
}

func newGroup(e *Engine, r store.Resource) *group {
	g := &group{
		e: e, name: r.Name, incarnation: r.Incarnation(), log: e.cfg.Logger.With("subscription", r.Name), metrics: e.metrics.of(r.Name),
		keys: queue.NewKeys(), commit: turn.New(), done: make(chan struct{}), stopping: make(chan struct{}), dirty: make(chan struct{}, 1), timer: make(chan struct{}, 1),
	}
	g.replayer = deadletter.Replayer{Table: r.DeadLetterTable(), Owner: g.incarnation, Store: e.cfg.DeadLetters, Messages: g}
	g.stop = sync.OnceFunc(func() { close(g.stopping) })
	g.work, g.quit = context.WithCancel(context.Background())
	g.mu.partitions = make(map[topicPartition]*partition)
	g.mu.fetched = make(map[topicPartition]committed)
	g.mu.counts = make(map[string]topicCount)
	g.resource.Store(&r)
	return g
}

func (g *group) hasEnded() bool {
	select {
	case <-g.done:
		return true
	default:
		return false
	}
}

func (g *group) isStopping() bool {
	select {
	case <-g.stopping:
		return true
	default:
		return false
	}
}

// update applies a changed subscription; false if it needs another client.
func (g *group) update(r store.Resource) bool {
	old := g.resource.Load()
	if r.Incarnation() != g.incarnation || !slices.Equal(r.Topics, old.Topics) || !slices.Equal(r.Types, old.Types) || r.Filter != old.Filter || r.Transform != old.Transform ||
		r.Ordering != old.Ordering || r.Start != old.Start || !samePush(r.Push, old.Push) {
		return false
	}
	g.resource.Store(&r)
	if r.Version == old.Version {
		return true
	}
	for _, p := range g.ownedPartitions() {
		g.refresh(p)
	}
	if old.Paused && !r.Paused {
		g.wake()
	}
	return true
}

// refresh applies the subscription to an open partition. A partition that is loading calls
// it when it is open.
func (g *group) refresh(p *partition) {
	r := g.resource.Load()
	seek, ok := r.FindSeek(p.topic, p.number)
	behind := false
	p.withQueue(func(q *queue.Queue) {
		q.SetConfig(g.queueConfig())
		behind = ok && q.Counts().Origin.Seek < seek.Version
	})
	if behind {
		g.reload(p)
	}
}

func (g *group) queueConfig() queue.Config {
	r := g.resource.Load()
	return queue.Config{
		Ordered: r.Ordering != subscriptions.OrderingNone, Strict: r.Ordering == subscriptions.OrderingStrict, MaxReceive: r.MaxReceive, MaxExtension: r.MaxExtension,
		Backoff: func(n int) time.Duration { return retry.BackoffBy(r.BackoffMultiplier, r.Backoff, r.MaxBackoff, n) },
	}
}

// run reads and serves until stop is called.
func (g *group) run(ctx context.Context) {
	defer close(g.done)
	defer g.quit()
	defer g.metrics.remove()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := g.open(); err != nil {
		g.log.Error("this process does not run the subscription", "err", err)
		g.recordFailure(err)
		g.report(ctx)
		<-g.stopping
		return
	}
	var parts sync.WaitGroup
	parts.Go(func() { g.committer(ctx) })
	parts.Go(func() { g.clock(ctx) })
	parts.Go(func() { g.reporter(ctx) })
	parts.Go(func() { g.replays(ctx) })
	if g.pusher != nil {
		parts.Go(func() { g.pusher.run(ctx) })
	}
	polled := make(chan struct{})
	go func() { defer close(polled); g.read(ctx) }()
	<-g.stopping
	g.waiting.close()
	all := g.ownedPartitions()
	g.drain(all)
	cancel()
	g.kick()
	<-polled
	parts.Wait()
	g.forget(all)
	g.pusher.end()
	g.client.CloseAllowingRebalance()
}

// open makes the Kafka client.
func (g *group) open() (err error) {
	r := g.resource.Load()
	if strings.TrimSpace(r.Filter) != "" {
		if g.filter, err = filter.Compile(r.Filter); err != nil {
			return fmt.Errorf("filter: %w", err)
		}
	}
	if strings.TrimSpace(r.Transform) != "" {
		if g.transform, err = filter.CompileTransform(r.Transform); err != nil {
			return fmt.Errorf("transform: %w", err)
		}
	}
	if r.Push != nil {
		plugin, err := g.e.cfg.Push.Plugin(r.Push)
		if err != nil {
			return err
		}
		g.pusher = newPusher(g, plugin)
	}
	topics, patterns := r.TopicRegexps()
	opts := []kgo.Opt{
		kgo.ConsumerGroup(g.incarnation), kgo.ConsumeTopics(topics...), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(),
		kgo.SessionTimeout(sessionTimeout), kgo.RebalanceTimeout(rebalanceTimeout), kgo.MetadataMaxAge(metadataAge), kgo.FetchMaxBytes(fetchBytes), kgo.FetchMaxPartitionBytes(fetchBytes / 4),
		kgo.FetchMaxWait(fetchWait),
		kgo.OnPartitionsAssigned(g.addPartitions), kgo.OnOffsetsFetched(g.offsetsFetched), kgo.AdjustFetchOffsetsFn(g.starts),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, lost map[string][]int32) { g.endPartitions(lost) }),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, lost map[string][]int32) { g.lost(lost) }),
		kgo.WithHooks(&g.session),
	}
	if r.Ordering != subscriptions.OrderingNone {
		opts = append(opts, kgo.Balancers(newKeyBalancer(g.log), kgo.CooperativeStickyBalancer())) // the second one for members with ordering none
	}
	if patterns {
		opts = append(opts, kgo.ConsumeRegex(), kgo.ConsumeExcludeTopics("^_"))
	}
	ready := make(chan struct{})
	g.session.ready = ready // callbacks wait until g.client is set
	defer close(ready)
	if g.client, err = kgo.NewClient(append(opts, g.e.cfg.Kafka...)...); err != nil {
		return fmt.Errorf("kafka client: %w", err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.adm = kadm.NewClient(g.client) // requests look at it from now on
	return nil
}

// newMessage is the age up to which a message waits for a schema that the registry does not have
// yet: a replica of it may lag, and an answer is cached for some seconds.
const newMessage = 5 * time.Second

// newSchemaError is the error of a new message with an unknown schema. A retry may succeed.
type newSchemaError struct{ error }

// Is implements the interface of errors.Is.
func (newSchemaError) Is(target error) bool { return target == registry.ErrUnavailable }

// decode decodes a record. The error wraps registry.ErrUnavailable if its schema cannot be read
// now; other payloads that cannot be decoded stay as they are.
func (g *group) decode(ctx context.Context, rec *kgo.Record) (kafkarecord.Event, error) {
	e := kafkarecord.DecodeWith(rec, jsonform.Valid)
	if g.e.cfg.Schemas == nil {
		return e, nil
	}
	return g.decodeBySchema(ctx, e, rec.Timestamp)
}

// decodeBySchema is a function of its own because its event escapes to the heap.
func (g *group) decodeBySchema(ctx context.Context, e kafkarecord.Event, at time.Time) (kafkarecord.Event, error) {
	err := g.e.cfg.Schemas.Decode(ctx, &e)
	if age := time.Since(at); errors.Is(err, registry.ErrUnknown) && age >= 0 && age < newMessage {
		return e, newSchemaError{err}
	}
	if !errors.Is(err, registry.ErrUnavailable) {
		err = nil
	}
	return e, err
}

// selects reports whether the subscription selects a record. An error means that the
// filter could not be evaluated; one that wraps registry.ErrUnavailable, that filter, transform or
// plugin need a schema which cannot be read now.
func (g *group) selects(ctx context.Context, rec *kgo.Record) (bool, error) {
	r := g.resource.Load()
	// The position passes control records, and by them the aborted records before them.
	if rec.Attrs.IsControl() || !r.SelectsType(header(rec, outbox.HeaderType)) {
		return false, nil
	}
	if g.filter != nil || g.e.cfg.Schemas != nil && (g.transform != nil || g.pusher.chooses()) {
		e, err := g.decode(ctx, rec)
		if err != nil {
			return true, err
		}
		if ok, err := g.holds(&e); err != nil || !ok {
			return err != nil, err
		}
	}
	return g.pusher.accepts(ctx, rec), nil
}

// holds reports whether an event satisfies the filter, if there is one.
func (g *group) holds(e *kafkarecord.Event) (bool, error) {
	if g.filter == nil {
		return true, nil
	}
	ok, err := g.filter.Holds(e)
	if err != nil {
		return false, fmt.Errorf("filter: %w", err)
	}
	return ok, nil
}

// event returns what a consumer receives of a record. An error means that the transform failed;
// one that wraps registry.ErrUnavailable, that it may succeed later.
func (g *group) event(ctx context.Context, rec *kgo.Record) (kafkarecord.Event, error) {
	e, err := g.decode(ctx, rec)
	if g.transform == nil {
		return e, nil
	}
	if err != nil { // selects had read the schema, which was evicted since
		return e, err
	}
	e, err = g.transform.Apply(e)
	if err != nil {
		return e, fmt.Errorf("transform: %w", err)
	}
	return e, nil
}

// newQueueRecord returns a record for the queue. Its key is that of the record, which the partition
// depends on: the aggregate id of an event without a partition key of its own.
func newQueueRecord(rec *kgo.Record) queue.Record {
	out := queue.Record{Record: rec, Key: string(rec.Key)}
	if out.Key == "" {
		out.Key = header(rec, outbox.HeaderSubject)
	}
	if own := header(rec, subscriptions.HeaderMaxReceive); own != "" {
		if n, err := strconv.Atoi(own); err == nil && n >= 1 {
			out.MaxReceive = min(n, subscriptions.MaxMaxReceive)
		}
	}
	return out
}

func header(rec *kgo.Record, key string) string {
	for i := range rec.Headers {
		if rec.Headers[i].Key == key {
			return string(rec.Headers[i].Value)
		}
	}
	return ""
}

// ownedPartitions returns the partitions, sorted by topic and number.
func (g *group) ownedPartitions() []*partition {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.order
}

// setLocked replaces the partition of a place, with nil none.
func (g *group) setLocked(tp topicPartition, p *partition) {
	if p == nil {
		delete(g.mu.partitions, tp)
	} else {
		g.mu.partitions[tp] = p
	}
	order := make([]*partition, 0, len(g.mu.partitions))
	for _, p := range g.mu.partitions {
		order = append(order, p)
	}
	slices.SortFunc(order, func(a, b *partition) int {
		if c := strings.Compare(a.topic, b.topic); c != 0 {
			return c
		}
		return int(a.number - b.number)
	})
	g.mu.order = order // readers keep the former one
}

func (g *group) recordFailure(err error) {
	g.mu.Lock()
	g.mu.problem = err.Error()
	g.mu.Unlock()
}

// kick ends the poll, so that it pauses, resumes and resets partitions.
func (g *group) kick() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.poked = true
	if g.mu.poll != nil {
		g.mu.poll()
	}
}

// needCommit lets the committer commit now.
func (g *group) needCommit() {
	select {
	case g.dirty <- struct{}{}:
	default:
	}
}

// alarm lets the clock run at the given time, if that is earlier than its next one.
func (g *group) alarm(at time.Time) {
	if !at.IsZero() && at.UnixNano() < g.target.Load() {
		select {
		case g.timer <- struct{}{}:
		default:
		}
	}
}

// clock ends leases and delays in time, and once a second commits what moved without an
// acknowledgement.
func (g *group) clock(ctx context.Context) {
	t := time.NewTimer(0)
	defer t.Stop()
	var lazy time.Time
	for {
		next := time.Now().Add(time.Second)
		g.target.Store(next.UnixNano())
		for _, p := range g.ownedPartitions() {
			after, ok := p.apply(func(q *queue.Queue) {
				now := time.Now()
				g.metrics.expired.Add(float64(q.Expire(now)))
				for _, at := range []time.Time{q.Unblock(now, p.mu.stopped), q.Next()} {
					if !at.IsZero() && at.Before(next) {
						next = at
					}
				}
				if changed, _ := q.Dirty(); changed && now.Sub(lazy) >= time.Second {
					g.needCommit()
				}
			})
			if ok {
				after.start(p)
			}
		}
		if time.Since(lazy) >= time.Second {
			lazy = time.Now()
		}
		g.target.Store(next.UnixNano())
		t.Reset(max(time.Until(next), time.Millisecond))
		select {
		case <-t.C:
		case <-g.timer:
		case <-ctx.Done():
			return
		}
	}
}

// reporter writes the state of this instance.
func (g *group) reporter(ctx context.Context) {
	for {
		g.report(ctx)
		g.readEnds(ctx)
		g.readSkips(ctx)
		g.unblock(ctx)
		if retry.Wait(ctx, reportInterval) != nil {
			return
		}
	}
}

func (g *group) report(ctx context.Context) {
	g.mu.Lock()
	i := subscriptions.InstanceStatus{Instance: g.e.cfg.Instance, Address: g.e.cfg.Address, At: time.Now().UTC(), Partitions: len(g.mu.partitions), LastError: g.mu.problem}
	g.mu.Unlock()
	i.Breaker = g.pusher.breakerStatus()
	ctx, cancel := context.WithTimeout(ctx, reportInterval)
	defer cancel()
	if err := g.e.cfg.Store.Report(ctx, g.name, i); err != nil && ctx.Err() == nil {
		g.log.Debug("failed to report this instance", "err", err)
	}
}
