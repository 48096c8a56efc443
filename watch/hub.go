package watch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Errors of a subscription.
var (
	// ErrSlow: the watcher read too slowly and was dropped. It can come back with
	// its position.
	ErrSlow = errors.New("too slow: events came faster than they were read")
	// ErrClosed: the hub is stopping. The watcher can come back with its position.
	ErrClosed = errors.New("the server is stopping")
	// ErrFull: there are as many subscriptions as there may be.
	ErrFull = errors.New("too many watchers")
)

// Hub reads watched topics and hands their events out. It is safe for
// concurrent use.
type Hub struct {
	cfg     Config
	metrics *metrics
	client  *kgo.Client
	adm     *kadm.Client

	joining sync.Mutex // one topic begins, or ends, at a time

	mu      sync.Mutex
	topics  map[string]*topic
	count   int
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
		cfg: cfg, metrics: m, client: client, adm: kadm.NewClient(client), topics: make(map[string]*topic),
		started: make(chan struct{}), ended: make(chan struct{}),
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
	fetches.EachError(func(topic string, partition int32, err error) {
		if !errors.Is(err, context.Canceled) && !errors.Is(err, kgo.ErrClientClosed) {
			h.cfg.Logger.Warn("cannot read a watched topic; trying again", "topic", topic, "partition", partition, "err", err)
		}
	})
	for it := fetches.RecordIter(); !it.Done(); {
		h.hand(it.Next())
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
		if sub.slow { // by another of its topics
			delete(t.subs, sub)
			continue
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

// refresh looks for partitions that came after their topic was first watched.
func (h *Hub) refresh(ctx context.Context) {
	tick := time.NewTicker(h.cfg.Refresh)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		h.mu.Lock()
		var names []string
		for name := range h.topics {
			names = append(names, name)
		}
		h.mu.Unlock()
		for _, name := range names {
			if err := h.begin(ctx, name, false); err != nil && ctx.Err() == nil {
				h.cfg.Logger.Warn("cannot look for new partitions of a watched topic; trying again", "topic", name, "err", err)
			}
		}
	}
}

// begin reads the topic's partitions that are not read yet: from their end if
// the topic was not watched, from their start if they are new. join adds a
// reference, which end takes away again.
func (h *Hub) begin(ctx context.Context, name string, join bool) error {
	h.joining.Lock()
	defer h.joining.Unlock()
	h.mu.Lock()
	t := h.topics[name]
	if t != nil && join {
		t.refs++
	}
	h.mu.Unlock()
	switch {
	case t != nil && join:
		return nil
	case t == nil && !join:
		return nil // left meanwhile
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	list := h.adm.ListStartOffsets
	if t == nil {
		list = h.adm.ListEndOffsets
	}
	offsets, err := list(ctx, name)
	if err == nil {
		err = offsets.Error()
	}
	if err != nil && !errors.Is(err, kerr.UnknownTopicOrPartition) {
		return fmt.Errorf("ask where topic %s is: %w", name, err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return ErrClosed
	}
	if t == nil {
		t = &topic{next: make(map[int32]int64), subs: make(map[*Subscription]struct{}), refs: 1}
		h.topics[name] = t
	}
	more := map[int32]kgo.Offset{}
	for partition, o := range offsets[name] {
		if _, known := t.next[partition]; !known && o.Err == nil {
			t.next[partition] = o.Offset
			more[partition] = kgo.NewOffset().At(o.Offset)
		}
	}
	if len(more) > 0 {
		h.client.AddConsumePartitions(map[string]map[int32]kgo.Offset{name: more})
		if !h.begun {
			h.begun = true
			close(h.started)
		}
	}
	return nil
}

// end takes a reference away; the last one ends the reading.
func (h *Hub) end(name string) {
	h.joining.Lock()
	defer h.joining.Unlock()
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
