package readback

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/relay/failure"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/checkpoint"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/dedup"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/publish"
)

const (
	// readBackSettle bounds the wait for a quiet period, in multiples of
	// Config.ReadBackQuiet, while another producer publishes with the same source.
	readBackSettle = 20
	// Patience is how long a start waits for unreadable partitions after the last
	// successful read of another one, before it publishes to the others
	// (unread.go). While no partition is readable the wait is unbounded: a
	// starting cluster responds long before its partitions have leaders.
	Patience = 5 * time.Second
)

// Reader reads the topics back when the relay starts. Events that an earlier relay
// published after the last checkpoint enter the dedup index and are not published
// again.
//
// Run returns before anything is published. A killed relay may still have produce
// requests in flight: in its host's buffers, at the broker, or written by the leader of
// a partition and not yet by its replicas. Reader waits for the last kind, because it
// reads to the log end and not to the high watermark. A broker processes the requests
// of one connection in order, each after the previous one is replicated. The next
// request is therefore written as soon as the previous one is visible, and reading ends
// only when no event of this relay's source has arrived for ReadBackQuiet after all
// were visible. Slower requests, on a partitioned network or with a stalled broker, are
// published twice, with the same event id. That delay is unbounded: Kafka fences only
// producers with transactions.
type Reader struct {
	cfg       *Config
	log       *slog.Logger
	Metrics   *Metrics
	Store     checkpoint.Store
	source    cdclog.Generations
	publisher *publish.Publisher
	// AlsoSince, if not zero and before the mark, is the time from which to read: a
	// dead letter was being replayed then.
	AlsoSince time.Time

	// Position is the oldest position of all streams; zero if this relay never ran.
	Position time.Time
	// Floor is the earliest time from which the sweep reader reads all streams.
	Floor time.Time
	// Scanned is the end of the time range of a backfill; zero without one.
	Scanned time.Time
	// Own is the relay's part of the table; nil is all.
	Own *cdclog.Portion
	// Epoch is the current epoch of the table.
	Epoch int64
	// Ticket, if not nil, shares the reading with other shards of the process.
	Ticket *Ticket
	// gating reports that unreadable partitions are given up after Patience: nothing
	// is published to them before the next start.
	gating bool
	// Sink, if not nil, receives events instead of found, and bounds their number.
	Sink func(*Event)

	mu      sync.Mutex
	saved   map[string]bool // topics that the store has
	running bool
	waiting error // the error of the last failed attempt
	unread  unreadPartitions
	unknown *unknownTopics
	clock   clockOffset // of the records that the start read
	found   dedup.Found
	ours    bool    // an event of this relay was found since came was last called
	leader  *Reader // the reader that reads for this one
}

// New returns a reader of the topics that p publishes to, for one start.
func New(cfg *Config, m *Metrics, store checkpoint.Store, source cdclog.Generations, p *publish.Publisher) *Reader {
	r := &Reader{
		cfg: cfg, log: cfg.Logger, Metrics: m, Store: store, source: source, publisher: p,
		saved:   make(map[string]bool),
		unknown: newUnknownTopics(),
		found:   dedup.NewFound(),
	}
	p.SetTopicNames(r)
	return r
}

// Remember saves the topic. It is called before the first event is published to it.
func (r *Reader) Remember(ctx context.Context, topic string) error {
	if r.isSaved(topic) {
		return nil
	}
	if err := r.Store.SaveTopic(ctx, topic); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.saved[topic] = true
	return nil
}

// Run reads the topics back. It retries while the database or the broker is
// unavailable. It returns a Fatal error or the cause of the end of ctx.
func (r *Reader) Run(ctx context.Context) error {
	defer r.Ticket.Withdraw()
	began := time.Now()
	r.Begin(true)
	defer r.Begin(false)
	var mark time.Time
	var topics []string
	if err := r.Retry(ctx, func() (err error) {
		if topics, err = r.Store.Topics(ctx); err == nil {
			mark, err = r.Mark(ctx)
		}
		return err
	}); err != nil {
		return err
	}
	r.Position = mark
	r.publisher.Passed(mark)
	r.mu.Lock()
	for _, t := range topics {
		r.saved[t] = true
	}
	r.mu.Unlock()
	r.publisher.ExpectTopics(topics)
	topics = slices.Compact(slices.Sorted(slices.Values(slices.AppendSeq(topics, maps.Values(r.cfg.Topics)))))
	if !mark.IsZero() {
		mark = checkpoint.Later(mark, r.Floor) // a backfill covers older events and reads back separately
	}
	if !r.AlsoSince.IsZero() && (mark.IsZero() || r.AlsoSince.Before(mark)) {
		mark = r.AlsoSince
	}
	switch {
	case r.cfg.ReadBackMargin < 0:
		r.log.Warn("topics are not read back; events published after the last checkpoint are published again")
		return nil
	case mark.IsZero() || len(topics) == 0:
		return nil
	}
	t, since, err := r.readCovering(ctx, topics, mark)
	if err != nil {
		return err
	}
	r.gate(t, since)
	r.report(t, mark, time.Since(began))
	// In the times of the writers: events that were created since then have their records after since.
	since = since.Add(r.RecordClockBehind())
	r.publisher.Seed(&r.found, since, r.cfg.Clock.Now().Add(r.cfg.ReadBackMargin))
	r.found, r.ours = dedup.Found{}, false
	return nil
}

// readCovering reads the topics back since the mark minus the margin, and further if the
// records show that the clock that dates them is behind by more than that.
func (r *Reader) readCovering(ctx context.Context, topics []string, mark time.Time) (t *Topics, since time.Time, err error) {
	r.gating = true
	defer func() { r.gating = false }()
	for margin := r.cfg.ReadBackMargin; ; {
		since = mark.Add(-margin)
		if t, err = r.readAll(ctx, topics, since); err != nil {
			return t, since, err
		}
		r.setClock(t.clock)
		covered := margin
		if margin = t.clock.covering(covered, r.cfg.ReadBackMargin); margin <= covered {
			return t, since, nil
		}
		r.log.Warn("the clock that dates records is behind those of the writers; reading the topics further back", "behind", t.clock.behind(), "margin", covered)
		r.found, r.ours = dedup.NewFound(), false
	}
}

// setClock records how the clock that dates records differs from the clocks of the writers.
func (r *Reader) setClock(clock clockOffset) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clock = clock
	r.Metrics.offset.Set(clock.least.Seconds())
}

// RecordClockBehind returns by how much the clock that dates records is behind the clocks
// of the writers, by the records that the start read; 0 if it is not.
func (r *Reader) RecordClockBehind() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.clock.behind()
}

// Margin returns the difference between record times and write times that is to be covered.
func (r *Reader) Margin() time.Duration { return r.RecordClockBehind() + r.cfg.ReadBackMargin }

// readAll reads the topics back since the given time, shared with other shards if any.
func (r *Reader) readAll(ctx context.Context, topics []string, since time.Time) (t *Topics, err error) {
	if r.Ticket != nil {
		w := &backReader{r: r, topics: topics, since: since}
		if err := r.Ticket.read(ctx, w); err != nil {
			return nil, err
		}
		if !w.alone {
			r.found, r.ours = w.found, w.ours
			return w.t, nil
		}
	}
	t = r.NewTopics()
	err = r.Read(ctx, t, topics, since)
	return t, err
}

// count returns the number of events for the dedup index. It excludes events of
// backfills and of other shards, which may be the majority.
func (r *Reader) count(ctx context.Context, topics []string, since time.Time) (n int, err error) {
	r.Sink = func(e *Event) {
		if !e.scanned {
			n++
		}
	}
	defer func() { r.Sink = nil }()
	err = r.Read(ctx, r.NewTopics(), topics, since)
	return n, err
}

// NewTopics returns Topics without partitions.
func (r *Reader) NewTopics() *Topics {
	client, admin := r.publisher.Kafka()
	return &Topics{
		Client: client, Admin: admin, Source: r.cfg.Source, owns: []*cdclog.Portion{r.Own},
		Parts: make(map[string]map[int32]*Partition), Denied: make(map[string]error), Take: r.take,
		unknown: r.unknown, expects: r.isSaved, cfg: r.cfg,
	}
}

// isSaved reports whether the store has the topic: a relay has published to it.
func (r *Reader) isSaved(topic string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.saved[topic]
}

// Most returns the maximum number of events, which changes with the shards of the process;
// the rest of the dedup index is for the tail reader.
func (r *Reader) Most() int { return r.cfg.Share.ReadBack() }

// Read reads the topics to their ends until no new event of this source arrives.
func (r *Reader) Read(ctx context.Context, t *Topics, topics []string, since time.Time) error {
	var trimmed bool
	var quiet, settle, patience time.Time
	read := 0 // partitions that were read to their ends, of the partitions that are pending after them
	defer r.await(nil)
	for attempt := 1; ; attempt++ {
		var pending []*Partition
		done := 0
		err := t.Locate(ctx, topics, since)
		if err == nil {
			err = t.FindEnds(ctx)
		}
		if err == nil {
			if !trimmed {
				trimmed = true
				if err := r.trim(ctx, t, topics, since); err != nil {
					return err
				}
			}
			err = t.Read(ctx)
			t.each(func(p *Partition) {
				if !p.done() {
					pending = append(pending, p)
				} else if p.err == nil {
					done++
				}
			})
			if done > read {
				read, patience = done, time.Time{}
			}
			r.await(pending)
		}
		now := time.Now()
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case r.gating && len(pending) > 0 && !patience.IsZero() && now.Sub(patience) >= Patience:
			for _, p := range pending {
				p.err = errors.Join(errUnread, p.lastErr)
			}
			continue
		case err != nil || len(pending) > 0:
			if err == nil {
				err = unread(pending)
			}
			if failure.Classify(err) == failure.Fatal && !isDenied(err) {
				return fmt.Errorf("read topics back: %w", err)
			}
			switch {
			case len(pending) == 0 || read == 0:
				patience = time.Time{}
			case patience.IsZero(): // others are readable: the broker is available
				patience = now
			}
			most := r.cfg.RetryMax
			if r.gating && !patience.IsZero() { // the start resumes when its patience ends
				most = min(most, Patience-now.Sub(patience))
			}
			if err := r.pause(ctx, attempt, most, err); err != nil {
				return err
			}
			continue
		}
		attempt, patience = 1, time.Time{}
		r.stuck(nil)
		if settle.IsZero() {
			settle = now
		}
		came := r.Came()
		if !quiet.IsZero() && !came {
			return nil
		}
		if now.Sub(settle) > readBackSettle*r.cfg.ReadBackQuiet {
			r.log.Warn("another process publishes with this relay's source during the read-back; its events may be published twice",
				"source", r.cfg.Source, "waited", now.Sub(settle))
			return nil
		}
		quiet = now
		if err := retry.Wait(ctx, r.cfg.ReadBackQuiet); err != nil {
			return err
		}
	}
}

// await reports the pending partitions in the metrics, with partitions that the start gave up.
func (r *Reader) await(pending []*Partition) {
	parts := r.UnreadPartitions().Parts
	for _, p := range pending {
		parts = append(parts[:len(parts):len(parts)], publish.Partition{Topic: p.topic, Part: p.partition})
	}
	r.Metrics.awaits(parts)
}

var errUnread = errors.New("the partition could not be read")

// unread returns an error with the reason why partitions are not read yet and up to ten
// of their names.
func unread(parts []*Partition) error {
	slices.SortFunc(parts, func(a, b *Partition) int {
		return cmp.Or(cmp.Compare(a.topic, b.topic), cmp.Compare(a.partition, b.partition))
	})
	why := errNotReplicated
	var names []string
	for _, p := range parts {
		name := fmt.Sprintf("%s/%d", p.topic, p.partition)
		if p.partition < 0 {
			name = p.topic // its partitions are not known
		}
		if len(names) < 10 {
			names = append(names, name)
		}
		if p.lastErr != nil {
			why = p.lastErr
		}
	}
	return fmt.Errorf("waiting for %d partitions (%s): %w", len(parts), strings.Join(names, " "), why)
}

var errNotReplicated = errors.New("not replicated up to its end")

// trim skips the oldest records if there are more than Most.
func (r *Reader) trim(ctx context.Context, t *Topics, topics []string, since time.Time) error {
	if r.Sink != nil {
		return nil
	}
	var total int64
	t.each(func(p *Partition) { total += max(p.end-max(p.next, p.from), 0) })
	most := int64(r.Most())
	defer func() { r.cfg.Share.Hold(int(min(total, most))) }() // before they are found: other shards may begin
	if total <= most {
		return nil
	}
	if !r.Own.All() || !r.Scanned.Before(since) {
		n, err := r.count(ctx, topics, since)
		if err != nil {
			return err
		}
		if total = int64(n); total <= most {
			return nil
		}
	}
	r.log.Warn("more events were published since the last checkpoint than the dedup index holds; the oldest may be published twice",
		"records", total, "remembered", most)
	t.each(func(p *Partition) {
		if n := p.end - max(p.next, p.from); n > 0 {
			p.next = p.end - int64(float64(n)*float64(most)/float64(total))
		}
	})
	return nil
}

// Retry calls f until it succeeds, fails for good, or ctx ends.
func (r *Reader) Retry(ctx context.Context, f func() error) error {
	for attempt := 1; ; attempt++ {
		err := f()
		switch {
		case err == nil:
			r.stuck(nil)
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case failure.Classify(err) == failure.Fatal:
			return err
		}
		if err := r.pause(ctx, attempt, r.cfg.RetryMax, err); err != nil {
			return err
		}
	}
}

// pause waits before the next attempt, at most for most.
func (r *Reader) pause(ctx context.Context, attempt int, most time.Duration, err error) error {
	wait := min(most, retry.Required(r.cfg.RetryMin, r.cfg.RetryMax, attempt))
	if attempt == 3 { // the broker may be starting during the first attempts
		r.log.Warn("cannot read the topics back; nothing is published before that", "err", err)
	}
	r.stuck(err)
	return retry.Wait(ctx, wait)
}

func (r *Reader) Begin(running bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running, r.waiting = running, nil
}

func (r *Reader) stuck(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting = err
}

// State reports whether the topics are being read back, and the last error.
func (r *Reader) State() (running bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.leader != nil && r.leader != r {
		_, err = r.leader.State()
		return r.running, err
	}
	return r.running, r.waiting
}

// follow sets the reader that reads for this one; nil is none.
func (r *Reader) follow(leader *Reader) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leader = leader
}

// take records events that are in a topic. It is safe for concurrent use.
func (r *Reader) take(events []Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range events {
		r.ours = r.ours || events[i].Ours
		if r.Sink != nil {
			r.Sink(&events[i])
		} else {
			events[i].addTo(&r.found, r.Epoch)
		}
	}
}

// Came reports whether an event of this relay's source has arrived since the last call.
func (r *Reader) Came() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	came := r.ours
	r.ours = false
	return came
}

// report logs the result and sets the metrics.
func (r *Reader) report(t *Topics, mark time.Time, took time.Duration) {
	counts := map[string]int{"read": 0, "denied": 0, "unread": 0, "corrupt": 0}
	var corrupt error
	noIDs := false
	t.each(func(p *Partition) {
		noIDs = noIDs || p.begun && p.topicID == [16]byte{}
		switch {
		case p.corrupt != nil:
			counts["corrupt"]++
			corrupt = fmt.Errorf("partition %d of topic %s: %w", p.partition, p.topic, p.corrupt)
		case p.err == nil:
			counts["read"]++
		case isDenied(p.err):
			counts["denied"]++
		case errors.Is(p.err, errUnread):
			counts["unread"]++
		default:
			counts["corrupt"]++
			corrupt = fmt.Errorf("partition %d of topic %s: %w", p.partition, p.topic, p.err)
		}
	})
	for result, n := range counts {
		r.Metrics.Partitions.WithLabelValues(result).Set(float64(n))
	}
	r.Metrics.Events.Set(float64(r.found.Size()))
	r.Metrics.seconds.Set(took.Seconds())
	if denied := slices.Sorted(maps.Keys(t.Denied)); len(denied) > 0 {
		r.log.Warn("topics may not be read back; what was published to them after the last checkpoint is published again, with the same event ids",
			"topics", denied, "grant", "READ on the topics")
	}
	if noIDs {
		r.log.Warn("the broker gives topics no ids, so a topic that is deleted and created again is not recognized; use Redpanda 25.3 or newer, or Kafka 2.8 or newer")
	}
	if corrupt != nil {
		r.log.Warn("partitions have batches that cannot be decoded; events in them are published again, with the same event ids, unless another producer wrote them",
			"partitions", counts["corrupt"], "such_as", corrupt)
	}
	if counts["unread"] > 0 {
		r.log.Warn("partitions cannot be read back yet; their events wait until they can, and dead letters are not replayed",
			"count", counts["unread"], "partitions", r.unread.Names())
	}
	r.log.Info("topics read back", "events", r.found.Size(), "since", mark.UTC(), "partitions", counts["read"], "took", took)
}
