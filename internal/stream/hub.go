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
)

// Errors of a subscription.
var (
	// ErrSlow: the watcher read too slowly and was dropped. It can come back with
	// its position.
	ErrSlow = errors.New("too slow: events came faster than they were read")
	// ErrClosed: the hub is stopping. The watcher can come back with its position.
	ErrClosed = errors.New("the server is stopping")
	// ErrAnew: a topic was deleted while the watcher read what it had missed of it. It
	// can come back with its position.
	ErrAnew = errors.New("a topic was deleted or made anew")
	// ErrGone: what the watcher had missed went out of a topic before it was read. It
	// can come back with its position, and is told what is gone.
	ErrGone = errors.New("events that were missed are no longer in the topic")
	// ErrFull: there are as many subscriptions as there may be, or the caller has half
	// of them.
	ErrFull = errors.New("too many watchers")
)

// Hub reads watched topics and hands their events out. It is safe for
// concurrent use.
type Hub struct {
	cfg     Config
	metrics *metrics
	client  *kgo.Client
	adm     *kadm.Client

	sockets *access.Places // connections, whatever they watch
	places  *access.Places // subscriptions

	joining chan struct{} // holds one while topics begin, or one ends

	mu      sync.Mutex
	topics  map[string]*topic
	all     map[*Subscription]struct{} // those that follow whatever may be watched
	listed  map[string]struct{}        // what may be watched, as of the last look
	closed  bool
	started chan struct{} // closed when there is something to read
	begun   bool
	ended   chan struct{} // closed when the hub stops
}

// topic is one that is watched.
type topic struct {
	next map[int32]int64 // of each partition, the offset that is handed out next
	subs map[*Subscription]struct{}
	refs int // subscriptions that watch it, or are about to
}

// New returns a Hub. It connects to nothing yet.
func New(cfg Config) (*Hub, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	m, err := newMetrics(cfg.Registerer)
	if err != nil {
		return nil, err
	}
	client, err := kgo.NewClient(cfg.Kafka...)
	if err != nil {
		return nil, fmt.Errorf("kafka client: %w", err)
	}
	return &Hub{
		cfg: cfg, sockets: access.NewPlaces(cfg.MaxSubscriptions), places: access.NewPlaces(cfg.MaxSubscriptions), metrics: m, client: client, adm: kadm.NewClient(client), topics: make(map[string]*topic), all: make(map[*Subscription]struct{}),
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
			h.cfg.Logger.Warn("cannot read a watched topic; trying again", "topic", topic, "partition", partition, "err", err)
		}
	})
	for it := fetches.RecordIter(); !it.Done(); {
		h.hand(it.Next())
	}
	for name := range gone {
		h.anew(name)
	}
}

// anew forgets a topic that was deleted. The client would ask for the one that it
// knew for ever; if there is one of that name again, refresh finds its partitions
// and reads them from their start, and the watchers let go of their offsets.
func (h *Hub) anew(name string) {
	select {
	case h.joining <- struct{}{}:
	default:
		return // it is told again
	}
	defer func() { <-h.joining }()
	h.client.PurgeTopicsFromConsuming(name)
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.topics[name]
	if t == nil || len(t.next) == 0 {
		return
	}
	h.cfg.Logger.Warn("a watched topic was deleted; if it is made anew, it is read from its start", "topic", name)
	t.next = make(map[int32]int64)
	for sub := range t.subs {
		h.give(t, sub, &shared{anew: name})
	}
}

// hand gives a record to those who watch its topic. It waits for nobody.
func (h *Hub) hand(r *kgo.Record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.topics[r.Topic]
	if t == nil || r.Offset < t.next[r.Partition] {
		return // read before the topic was left and watched again
	}
	t.next[r.Partition] = r.Offset + 1
	h.metrics.read.Inc()
	s := newShared(r)
	for sub := range t.subs {
		h.give(t, sub, s)
	}
}

// give puts s into a watcher's buffer, or ends its watching if that is full.
// Called locked.
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

// maxBreath bounds what a burst waits for its watchers. One that is slow for long
// is dropped after a few of these.
const maxBreath = 5 * time.Millisecond

// breathe lets watchers take what they have before more of a burst comes: what
// was read at once would be too much for the quickest.
func (h *Hub) breathe(ctx context.Context) {
	for end := time.Now().Add(maxBreath); h.crowded() && time.Now().Before(end) && ctx.Err() == nil; {
		time.Sleep(maxBreath / 10)
	}
}

// crowded says that a watcher's buffer is more than half full.
func (h *Hub) crowded() bool {
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

// refresh looks for partitions that came after their topic was first watched, and
// for topics, as long as anybody follows all.
func (h *Hub) refresh(ctx context.Context) {
	tick := time.NewTicker(h.cfg.Refresh)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if err := h.begin(ctx, h.watched(), false); err != nil && ctx.Err() == nil {
			h.cfg.Logger.Warn("cannot look for new partitions of watched topics; trying again", "err", err)
		}
		if err := h.discover(ctx); err != nil && ctx.Err() == nil {
			h.cfg.Logger.Warn("cannot look for new topics; trying again", "err", err)
		}
	}
}

func (h *Hub) watched() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Keys(h.topics))
}

// discover tells those who follow all topics of one that was not there before.
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
		default: // it has not looked yet
		}
	}
	return nil
}

// list returns the topics that may be watched, and how many partitions each has.
func (h *Hub) list(ctx context.Context) (map[string]int, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	details, err := h.adm.ListTopics(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask what topics there are: %w", err)
	}
	out := make(map[string]int)
	for name, d := range details {
		if d.Err == nil && h.cfg.allowed(name) {
			out[name] = len(d.Partitions)
		}
	}
	return out, nil
}

// askTimeout bounds a question to the broker.
const askTimeout = 10 * time.Second

// begin reads the topics' partitions that are not read yet: from their end if a
// topic was not watched, from their start if they are new. join adds a reference
// to each topic, which end takes away again; without it, topics that are not
// watched are left alone. After an error nothing was joined.
func (h *Hub) begin(ctx context.Context, names []string, join bool) error {
	// With the wait for its turn, or each would add its own where the broker is silent.
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	select {
	case h.joining <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("wait for others who ask the broker: %w", context.Cause(ctx))
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

// offsets asks where topics begin or end. One that is not there has none.
func (h *Hub) offsets(ctx context.Context, list func(context.Context, ...string) (kadm.ListedOffsets, error), names []string) (kadm.ListedOffsets, error) {
	if len(names) == 0 {
		return nil, nil // none would mean all
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
		return nil, fmt.Errorf("ask where topics are: %w", err)
	}
	return offsets, nil
}

// end takes a reference away; the last one ends the reading.
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
