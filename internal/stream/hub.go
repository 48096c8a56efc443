package stream

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/trace"
)

// Errors of a subscription.
var (
	// ErrSlow: the client read too slowly. It can resume at its position.
	ErrSlow = errors.New("too slow: events arrived faster than they were read")
	// ErrClosed: the hub is stopping. The client can resume at its position.
	ErrClosed = errors.New("the server is stopping")
	// ErrAnew: a topic was deleted while its missed events were read. The client can
	// resume at its position.
	ErrAnew = errors.New("a topic was deleted or recreated")
	// ErrGone: missed events were removed from a topic before they were read. The client
	// can resume at its position and receives the gaps.
	ErrGone = errors.New("missed events are no longer in the topic")
	// ErrFull: the limit of subscriptions is reached, or the caller has half of them.
	ErrFull = errors.New("too many subscriptions")
)

// Hub reads the subscribed topics and distributes their events. It is safe for concurrent
// use.
type Hub struct {
	cfg     Config
	decoder decoder
	metrics *metrics
	spans   *trace.Messages // nil without spans
	client  *kgo.Client
	adm     *kadm.Client

	sockets *access.Places // connections
	places  *access.Places // subscriptions

	joining chan struct{} // holds one element while topics start or one ends

	mu      sync.Mutex
	topics  map[string]*topic
	all     map[*Subscription]struct{} // subscriptions to all topics
	listed  map[string]struct{}        // the allowed topics at the last refresh
	closed  bool
	started chan struct{} // closed at the first subscription
	begun   bool
	ended   chan struct{} // closed when the hub stops
}

// topic is a subscribed topic.
type topic struct {
	next map[int32]int64 // the next offset to distribute, by partition
	subs map[*Subscription]struct{}
	refs int // current and starting subscriptions
}

// New returns a Hub that is not connected yet.
func New(cfg Config) (*Hub, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	m, err := newMetrics(cfg.Registerer)
	if err != nil {
		return nil, err
	}
	cfg.Kafka = append(slices.Clone(cfg.Kafka), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	client, err := kgo.NewClient(cfg.Kafka...)
	if err != nil {
		return nil, fmt.Errorf("kafka client: %w", err)
	}
	return &Hub{
		cfg: cfg, decoder: decoder{schemas: cfg.Schemas}, spans: trace.NewMessages(cfg.Tracer), sockets: access.NewPlaces(cfg.MaxSubscriptions), places: access.NewPlaces(cfg.MaxSubscriptions), metrics: m, client: client, adm: kadm.NewClient(client), topics: make(map[string]*topic), all: make(map[*Subscription]struct{}),
		joining: make(chan struct{}, 1), started: make(chan struct{}), ended: make(chan struct{}),
	}, nil
}

// Run reads until ctx ends, then ends all subscriptions and returns nil.
func (h *Hub) Run(ctx context.Context) error {
	var all sync.WaitGroup
	all.Go(func() { h.refresh(ctx) })
	select {
	case <-h.started:
		for ctx.Err() == nil {
			h.take(h.client.PollRecords(ctx, max(1, h.cfg.Buffer/4)))
			h.breathe(ctx)
		}
	case <-ctx.Done():
	}
	all.Wait()
	h.mu.Lock()
	h.closed = true
	close(h.ended)
	h.mu.Unlock()
	h.client.Close()
	return nil
}

func (h *Hub) take(fetches kgo.Fetches) {
	gone := make(map[string]struct{})
	fetches.EachError(func(topic string, partition int32, err error) {
		switch {
		case errors.Is(err, kerr.UnknownTopicID):
			gone[topic] = struct{}{}
		case !errors.Is(err, context.Canceled) && !errors.Is(err, kgo.ErrClientClosed):
			h.cfg.Logger.Warn("failed to read topic, retrying", "topic", topic, "partition", partition, "err", err)
		}
	})
	for it := fetches.RecordIter(); !it.Done(); {
		h.hand(it.Next())
	}
	for name := range gone {
		h.anew(name)
	}
}

// anew removes a deleted topic, which the client would otherwise request forever. If the
// topic is recreated, refresh finds its partitions and reads them from their start, and
// the subscriptions drop their offsets.
func (h *Hub) anew(name string) {
	select {
	case h.joining <- struct{}{}:
	default:
		return // reported again
	}
	defer func() { <-h.joining }()
	h.client.PurgeTopicsFromConsuming(name)
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.topics[name]
	if t == nil || len(t.next) == 0 {
		return
	}
	h.cfg.Logger.Warn("topic deleted; if recreated, it is read from its start", "topic", name)
	t.next = make(map[int32]int64)
	for sub := range t.subs {
		h.give(t, sub, &shared{anew: name})
	}
}

// hand passes a record to the subscriptions of its topic without blocking.
func (h *Hub) hand(r *kgo.Record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.topics[r.Topic]
	if t == nil || r.Offset < t.next[r.Partition] {
		return // read before the topic was left and subscribed again
	}
	t.next[r.Partition] = r.Offset + 1
	h.metrics.read.Inc()
	s := newShared(r)
	for sub := range t.subs {
		h.give(t, sub, s)
	}
}

// give adds s to the buffer of a subscription, or ends the subscription if the buffer is
// full. The lock must be held.
func (h *Hub) give(t *topic, sub *Subscription, s *shared) {
	if sub.slow { // by another of its topics
		delete(t.subs, sub)
		return
	}
	select {
	case sub.live <- s:
	default:
		delete(t.subs, sub)
		sub.slow = true
		close(sub.dropped)
		h.metrics.dropped.Inc()
	}
}

// maxBreath bounds how long a burst waits for its subscriptions. A client that stays slow
// is disconnected after a few of these.
const maxBreath = 5 * time.Millisecond

// breathe waits until subscriptions have read part of a burst, which would otherwise
// overflow even the fastest.
func (h *Hub) breathe(ctx context.Context) {
	for end := time.Now().Add(maxBreath); h.isCrowded() && time.Now().Before(end) && ctx.Err() == nil; {
		time.Sleep(maxBreath / 10)
	}
}

// isCrowded reports whether the buffer of a subscription is more than half full.
func (h *Hub) isCrowded() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range h.topics {
		for sub := range t.subs {
			if len(sub.live) > h.cfg.Buffer/2 {
				return true
			}
		}
	}
	return false
}

// refresh searches for new partitions of subscribed topics, and for new topics while a
// subscription follows all.
func (h *Hub) refresh(ctx context.Context) {
	tick := time.NewTicker(h.cfg.Refresh)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if err := h.begin(ctx, h.subscribedTopics(), false); err != nil && ctx.Err() == nil {
			h.cfg.Logger.Warn("failed to refresh partitions, retrying", "err", err)
		}
		if err := h.discover(ctx); err != nil && ctx.Err() == nil {
			h.cfg.Logger.Warn("failed to refresh topics, retrying", "err", err)
		}
	}
}

func (h *Hub) subscribedTopics() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Keys(h.topics))
}

// discover notifies the subscriptions that follow all topics of a new topic.
func (h *Hub) discover(ctx context.Context) error {
	h.mu.Lock()
	nobody := len(h.all) == 0
	h.mu.Unlock()
	if nobody {
		return nil
	}
	topics, err := h.list(ctx)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	before, more := h.listed, false
	h.listed = make(map[string]struct{}, len(topics))
	for name := range topics {
		_, known := before[name]
		more = more || !known
		h.listed[name] = struct{}{}
	}
	if !more {
		return nil
	}
	for sub := range h.all {
		select {
		case sub.grown <- struct{}{}:
		default: // not notified yet
		}
	}
	return nil
}

// list returns the allowed topics with their numbers of partitions.
func (h *Hub) list(ctx context.Context) (map[string]int, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	details, err := h.adm.ListTopics(ctx)
	if err != nil {
		return nil, fmt.Errorf("list topics: %w", err)
	}
	out := make(map[string]int)
	for _, name := range h.cfg.Topics.FilterAllowed(ctx, details.Names()) {
		if d := details[name]; d.Err == nil {
			out[name] = len(d.Partitions)
		}
	}
	return out, nil
}

// askTimeout bounds a request to the broker.
const askTimeout = 10 * time.Second

// begin starts to read the partitions that are not read yet: from their end for a new
// subscription of a topic, from their start for new partitions. join adds a reference to
// each topic, which end removes; without it, topics that are not subscribed are skipped.
// After an error no reference was added.
func (h *Hub) begin(ctx context.Context, names []string, join bool) error {
	// The timeout includes the wait for other callers, or their timeouts would add up
	// while the broker is unreachable.
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	select {
	case h.joining <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("wait for other requests to the broker: %w", context.Cause(ctx))
	}
	defer func() { <-h.joining }()
	var known, fresh []string
	h.mu.Lock()
	for _, name := range names {
		if h.topics[name] != nil {
			known = append(known, name)
		} else {
			fresh = append(fresh, name)
		}
	}
	h.mu.Unlock()
	ask, list := known, h.adm.ListStartOffsets
	if join {
		ask, list = fresh, h.adm.ListEndOffsets
	}
	offsets, err := h.offsets(ctx, list, ask)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return ErrClosed
	}
	if join {
		for _, name := range names {
			if h.topics[name] == nil {
				h.topics[name] = &topic{next: make(map[int32]int64), subs: make(map[*Subscription]struct{})}
			}
			h.topics[name].refs++
		}
	}
	more := map[string]map[int32]kgo.Offset{}
	for _, name := range ask {
		t := h.topics[name]
		for partition, o := range offsets[name] {
			if _, known := t.next[partition]; !known && o.Err == nil {
				t.next[partition] = o.Offset
				if more[name] == nil {
					more[name] = map[int32]kgo.Offset{}
				}
				more[name][partition] = kgo.NewOffset().At(o.Offset)
			}
		}
	}
	if len(more) > 0 {
		h.client.AddConsumePartitions(more)
		if !h.begun {
			h.begun = true
			close(h.started)
		}
	}
	return nil
}

// offsets lists the start or end offsets of topics. A topic that does not exist has none.
func (h *Hub) offsets(ctx context.Context, list func(context.Context, ...string) (kadm.ListedOffsets, error), names []string) (kadm.ListedOffsets, error) {
	if len(names) == 0 {
		return nil, nil // no topics would mean all
	}
	offsets, err := list(ctx, names...)
	if err == nil {
		offsets.Each(func(o kadm.ListedOffset) {
			if o.Err != nil && !errors.Is(o.Err, kerr.UnknownTopicOrPartition) && err == nil {
				err = fmt.Errorf("topic %s: %w", o.Topic, o.Err)
			}
		})
	}
	if err != nil && !errors.Is(err, kerr.UnknownTopicOrPartition) {
		return nil, fmt.Errorf("list offsets: %w", err)
	}
	return offsets, nil
}

// end removes a reference; the last one stops the reading.
func (h *Hub) end(name string) {
	h.joining <- struct{}{}
	defer func() { <-h.joining }()
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.topics[name]
	if t.refs--; t.refs > 0 || h.closed {
		return
	}
	var partitions []int32
	for p := range t.next {
		partitions = append(partitions, p)
	}
	delete(h.topics, name)
	h.client.RemoveConsumePartitions(map[string][]int32{name: partitions})
}
