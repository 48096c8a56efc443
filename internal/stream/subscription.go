package stream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/trace"
	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// Filter selects events. At least one member is required.
type Filter struct {
	// Topics are at most MaxTopics topics. Empty means all allowed topics, including new
	// ones, and needs Types or Aggregate.
	Topics []string `json:"topics,omitempty" maxItems:"20"`
	// Types are event types; empty for all.
	Types []string `json:"event_type,omitempty"`
	// Aggregate is an aggregate's id; empty for all.
	Aggregate string `json:"aggregate_id,omitempty"`
}

// FilterError is the error of an invalid filter.
type FilterError struct{ Field, Problem string }

// Error returns the field and the problem.
func (e *FilterError) Error() string { return e.Field + " " + e.Problem }

func (f *Filter) matches(s *shared) bool {
	return (len(f.Types) == 0 || slices.Contains(f.Types, s.typ)) && (f.Aggregate == "" || f.Aggregate == s.about)
}

func (c *Config) check(ctx context.Context, f *Filter) error {
	if len(f.Topics) > MaxTopics {
		return &FilterError{"topics", fmt.Sprintf("must be at most %d; omit them to follow all by event_type or aggregate_id", MaxTopics)}
	}
	if len(f.Topics) == 0 && len(f.Types) == 0 && f.Aggregate == "" {
		return &FilterError{"topics", "required without event_type and aggregate_id"}
	}
	allowed := c.Topics.FilterAllowed(ctx, f.Topics)
	for i, t := range f.Topics {
		if !slices.Contains(allowed, t) {
			return &FilterError{"topics", fmt.Sprintf("must be allowed topics; number %d is not", i+1)}
		}
		if slices.Contains(f.Topics[:i], t) {
			return &FilterError{"topics", fmt.Sprintf("must be unique; number %d is a duplicate", i+1)}
		}
	}
	if len(f.Types) > 100 {
		return &FilterError{"event_type", "must be at most 100"}
	}
	return nil
}

// Gap contains missed events that are no longer in the topic: the offsets from From to
// before To.
type Gap struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	From      int64  `json:"from"`
	To        int64  `json:"to"`
}

// Subscription streams the events of a filter. Its methods must be called by one
// goroutine at a time, Close once.
type Subscription struct {
	hub    *Hub
	give   func() // returns its place
	filter Filter
	// Gaps are the missed events since the resume position.
	Gaps []Gap

	all   bool          // follows all allowed topics
	grown chan struct{} // receives after a new allowed topic

	live    chan *shared
	dropped chan struct{} // closed when it was too slow
	slow    bool          // the same, guarded by the hub's lock

	// The members below are used only by Next.
	at      Position
	behind  *kgo.Client // reads the events before live; nil after them
	until   Position    // start of live; nil while not attached
	waiting []*kgo.Record
	last    *kgo.Record // of the event that Next returned; nil without spans
	torn    bool        // detached from the hub, to be joined again at its position
}

// Subscribe starts a subscription at the position resume, and where resume has no offset
// at the current end of the topic. A topic that does not exist yet is read from its first
// event. Errors are a *FilterError, ErrFull, ErrClosed, or the ones of the broker.
//
// The subscription counts for the principal of ctx.
func (h *Hub) Subscribe(ctx context.Context, f Filter, resume Position) (*Subscription, error) {
	return h.subscribe(ctx, access.Holder(ctx, ""), f, resume)
}

// subscribe is Subscribe for a holder of places.
func (h *Hub) subscribe(ctx context.Context, holder string, f Filter, resume Position) (*Subscription, error) {
	if err := h.cfg.check(ctx, &f); err != nil {
		return nil, err
	}
	h.mu.Lock()
	closed := h.closed
	h.mu.Unlock()
	if closed {
		return nil, ErrClosed
	}
	give, ok := h.places.Take(holder)
	if !ok {
		return nil, ErrFull
	}
	s := &Subscription{hub: h, give: give, filter: f, live: make(chan *shared, h.cfg.Buffer), dropped: make(chan struct{}), at: Position{}}
	if len(f.Topics) == 0 {
		if err := s.follow(ctx); err != nil {
			s.leave(nil)
			return nil, err
		}
		resume = resume.ofAll(s.filter.Topics)
	}
	if err := h.begin(ctx, s.filter.Topics, true); err != nil {
		s.leave(nil)
		return nil, err
	}
	if err := s.resume(ctx, resume); err != nil {
		s.leave(s.filter.Topics)
		return nil, err
	}
	h.metrics.subscriptions.Inc()
	return s, nil
}

// resume prepares to read the events since a position.
func (s *Subscription) resume(ctx context.Context, from Position) error {
	starts, err := s.hub.offsets(ctx, s.hub.adm.ListStartOffsets, s.filter.Topics)
	if err != nil && len(from) > 0 {
		return err
	}
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	for _, name := range s.filter.Topics {
		for partition, next := range s.hub.topics[name].next {
			at, ok := from.at(name, partition)
			if ok {
				start, known := starts.Lookup(name, partition)
				switch {
				case known && start.Err == nil && at < start.Offset:
					s.Gaps = append(s.Gaps, Gap{name, partition, at, start.Offset})
					at = start.Offset
				case at > next: // the topic was recreated
					s.Gaps = append(s.Gaps, Gap{name, partition, at, at})
					at = next
				}
			} else if at = next; from[name] != nil {
				// A partition that was created in the meantime.
				if start, known := starts.Lookup(name, partition); known && start.Err == nil {
					at = start.Offset
				}
			}
			s.at.set(name, partition, at)
		}
	}
	if s.attach(0) {
		s.until = nil
		return nil
	}
	s.behind, err = s.hub.reader(s.at)
	return err
}

// reader reads topics from a position. If an offset is out of range, it returns an error
// instead of continuing elsewhere, which would skip events silently.
func (h *Hub) reader(from Position) (*kgo.Client, error) {
	offsets := map[string]map[int32]kgo.Offset{}
	for name, ps := range from {
		for p, at := range ps {
			if offsets[name] == nil {
				offsets[name] = map[int32]kgo.Offset{}
			}
			offsets[name][p] = kgo.NewOffset().At(at)
		}
	}
	client, err := kgo.NewClient(append(slices.Clone(h.cfg.Kafka), kgo.ConsumePartitions(offsets), kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.KeepControlRecords(), kgo.FetchMaxBytes(1<<20), kgo.FetchMaxPartitionBytes(256<<10))...)
	if err != nil {
		return nil, fmt.Errorf("kafka client: %w", err)
	}
	return client, nil
}

// attach starts the live events if at most so many events are missing, which are then
// still to be read. The hub must be locked.
func (s *Subscription) attach(missed int64) bool {
	var gap int64
	until := Position{}
	for _, name := range s.filter.Topics {
		for partition, next := range s.hub.topics[name].next {
			at, ok := s.at.at(name, partition)
			if !ok {
				at = next // it is new and not distributed yet
				s.at.set(name, partition, next)
			}
			until.set(name, partition, next)
			gap += max(0, next-at)
		}
	}
	if gap > missed {
		return false
	}
	for _, name := range s.filter.Topics {
		s.hub.topics[name].subs[s] = struct{}{}
	}
	s.until = until
	return true
}

// Close ends the subscription.
func (s *Subscription) Close() {
	s.detach()
	if s.behind != nil {
		s.behind.Close()
	}
	s.leave(s.filter.Topics)
	s.hub.metrics.subscriptions.Dec()
}

// detach ends the live events. It returns false if the subscription was too slow before.
func (s *Subscription) detach() bool {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	for _, name := range s.filter.Topics {
		if t := s.hub.topics[name]; t != nil {
			delete(t.subs, s)
		}
	}
	return !s.slow
}

func (s *Subscription) leave(topics []string) {
	for _, t := range topics {
		s.hub.end(t)
	}
	s.hub.mu.Lock()
	delete(s.hub.all, s)
	s.hub.mu.Unlock()
	s.give()
}

// Position returns the position after the last event that Next returned.
func (s *Subscription) Position() Position { return s.at.clone() }

// Next returns the next event of the filter as JSON. Errors are ErrSlow, ErrClosed,
// ErrAnew, ErrGone, a *FilterError if there are now more topics than can be followed, or
// that of ctx. After the error of ctx, Next may be called again.
func (s *Subscription) Next(ctx context.Context) ([]byte, error) {
	for {
		x, err := s.next(ctx)
		if err != nil {
			return nil, err
		}
		if x == nil {
			continue // it follows more topics
		}
		if x.anew != "" {
			s.at[x.anew] = map[int32]int64{}
			continue
		}
		r := x.record
		if at, ok := s.at.at(r.Topic, r.Partition); ok && r.Offset < at {
			continue
		}
		s.at.set(r.Topic, r.Partition, r.Offset+1)
		if s.filter.matches(x) {
			s.hub.metrics.sent.Inc()
			if s.hub.spans != nil {
				s.last = r
			}
			return x.JSON(&s.hub.decoder), nil
		}
	}
}

// sending begins the span of the event that Next returned. The caller ends it by end, once,
// with the error of the write.
func (s *Subscription) sending(transport string) (end func(error)) {
	r := s.last
	if r == nil {
		return func(error) {}
	}
	s.last = nil // it may be large, and the next event may be late
	x := &trace.Streamed{
		Transport: transport, Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Headers: make(map[string]string, len(r.Headers)),
	}
	for _, h := range r.Headers {
		x.Headers[h.Key] = string(h.Value)
	}
	x.ID = x.Headers[outbox.HeaderID]
	return s.hub.spans.Stream(x)
}

func (s *Subscription) next(ctx context.Context) (*shared, error) {
	select {
	case <-s.grown:
		if err := s.grow(ctx); err != nil {
			return nil, err
		}
	default:
	}
	if s.torn {
		if err := s.join(ctx); err != nil {
			return nil, err
		}
	}
	if s.behind != nil {
		if x, err := s.nextMissed(ctx); x != nil || err != nil {
			return x, err
		}
	}
	select { // events that were read before it became too slow still count
	case x := <-s.live:
		return x, nil
	default:
	}
	select {
	case x := <-s.live:
		return x, nil
	case <-s.grown:
		if err := s.grow(ctx); err != nil {
			return nil, err
		}
		return nil, nil
	case <-s.dropped:
		select {
		case x := <-s.live:
			return x, nil
		default:
			return nil, ErrSlow
		}
	case <-s.hub.ended:
		return nil, ErrClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// nextMissed returns the next event before the live events; nil after the last one.
func (s *Subscription) nextMissed(ctx context.Context) (*shared, error) {
	for {
		for len(s.waiting) > 0 {
			r := s.waiting[0]
			s.waiting = s.waiting[1:]
			until, ok := s.until.at(r.Topic, r.Partition)
			switch at, _ := s.at.at(r.Topic, r.Partition); {
			case s.until != nil && (!ok || r.Offset >= until):
				// No earlier record is left: not all offsets have a record.
				s.at.set(r.Topic, r.Partition, max(at, until))
			case r.Attrs.IsControl(): // the end of a transaction, which is not an event
				s.at.set(r.Topic, r.Partition, max(at, r.Offset+1))
			default:
				return newShared(r), nil
			}
		}
		if s.caughtUp() {
			s.behind.Close()
			s.behind, s.waiting = nil, nil
			return nil, nil
		}
		fetches := s.behind.PollRecords(ctx, 1000)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		select {
		case <-s.hub.ended:
			return nil, ErrClosed
		default:
		}
		var lost error
		fetches.EachError(func(_ string, _ int32, err error) {
			switch {
			case errors.Is(err, kerr.UnknownTopicID):
				lost = ErrAnew // its client would request the deleted topic forever
			case errors.Is(err, kerr.OffsetOutOfRange):
				lost = cmp.Or(lost, ErrGone)
			case !errors.Is(err, context.Canceled):
				s.hub.cfg.Logger.Warn("failed to read missed events, retrying", "err", err)
			}
		})
		if lost != nil {
			return nil, lost
		}
		s.waiting = fetches.Records()
	}
}

// caughtUp reports whether all events before the live events were read. It starts the
// live events once the missing ones leave half of their buffer free.
func (s *Subscription) caughtUp() bool {
	if s.until == nil {
		s.hub.mu.Lock()
		attached := !s.hub.closed && s.attach(int64(s.hub.cfg.Buffer/2))
		s.hub.mu.Unlock()
		if !attached {
			return false
		}
	}
	for name, ps := range s.until {
		for partition, until := range ps {
			if at, _ := s.at.at(name, partition); at < until {
				return false
			}
		}
	}
	return true
}
