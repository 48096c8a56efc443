package backfill

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/gocql/gocql"
	"golang.org/x/sync/errgroup"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/internal/trace"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/earlier"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/publish"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/readback"
)

// repairPoll is the minimum interval between polls for requests.
const repairPoll = 5 * time.Second

// repairsAtOnce is the maximum number of aggregates that are repaired concurrently: their
// proofs share the reads of topics.
const repairsAtOnce = 100

// Repairer publishes events that are proven to be missing from their topics, on request
// (Repairs).
//
// It sets a request to taken before it passes the event on, and to published when the
// broker has acknowledged it. A request that is taken when a relay starts has an unknown
// outcome: the repairer answers unknown, and another verification shows the outcome. So
// no event is published twice.
//
// A request for an event in the dedup index contradicts the index: the event was
// published after its topic was verified, or the topic has lost it. The repairer answers
// the first such request with unknown. A request made after that answer comes from a
// later verification of the topic, so the topic is right. An event that the sweep reader
// or a scan has not reached waits for them, because they keep the order of its
// aggregate. So does an event after one that the sweep reader has not published yet. If
// the index does not contain the event afterwards, the answer is unknown too; and to the
// first request for a row of this run's scan, whose events the index never contains: the
// scan may have published it after its topic was verified.
//
// The rows of earlier events of the aggregate may also have become visible behind the sweep
// reader. Events that are proven not to be published are published first, requested or not.
type Repairer struct {
	log       *slog.Logger
	requests  *Repairs
	publisher *publish.Publisher
	lookup    cdclog.Lookup
	earlier   earlier.Finder
	back      *readback.Reader
	own       *cdclog.Portion
	every     time.Duration // between polls

	mu        sync.Mutex
	published []gocql.UUID              // unanswered requests with acknowledged events
	taken     map[gocql.UUID]gocql.UUID // the event of a request
	waiting   map[gocql.UUID]string     // the stored detail of a request
	polls     int
	seen      map[gocql.UUID]int // the first poll with a request
	doubted   map[gocql.UUID]int // the last poll in which a requested event counted as published
}

// NewRepairer returns a repairer of the aggregates of own.
func NewRepairer(cfg *Config, own *cdclog.Portion, find cdclog.Lookup, p *publish.Publisher, back *readback.Reader) *Repairer {
	requests := NewRepairs(cfg.Session, cfg.Keyspace, cfg.Name, cfg.TableKeyspace+"."+cfg.Table)
	requests.Fence = cfg.Fence
	return &Repairer{
		log: cfg.Logger, requests: requests, publisher: p, lookup: find, earlier: earlier.Finder{Evidence: p, Lookup: find},
		back: back, own: own, every: max(repairPoll, cfg.ReplayPoll), taken: make(map[gocql.UUID]gocql.UUID), waiting: make(map[gocql.UUID]string),
		seen: make(map[gocql.UUID]int), doubted: make(map[gocql.UUID]int),
	}
}

// Run answers requests until ctx ends.
func (r *Repairer) Run(ctx context.Context) error {
	failing := false
	for retry.Wait(ctx, r.every) == nil {
		err := r.poll(ctx)
		if err != nil && !failing && ctx.Err() == nil {
			r.log.Warn("cannot repair events; retrying", "err", err)
		}
		failing = err != nil
	}
	return context.Cause(ctx)
}

func (r *Repairer) poll(ctx context.Context) error {
	if err := r.answerPublished(ctx); err != nil {
		return err
	}
	all, err := r.requests.All(ctx)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(q Repair) bool { return q.State.Final() || !r.own.HasAggregate(q.Aggregate) })
	r.note(all)
	if len(all) == 0 {
		return nil
	}
	passed, err := r.back.Mark(ctx) // the sweep reader has read all streams up to it
	if err != nil {
		return err
	}
	slices.SortFunc(all, func(a, b Repair) int {
		return cmp.Or(cmp.Compare(a.Aggregate.String(), b.Aggregate.String()), cmp.Compare(a.Sequence, b.Sequence))
	})
	var g errgroup.Group
	g.SetLimit(repairsAtOnce)
	for len(all) > 0 {
		n := 1
		for n < len(all) && all[n].Aggregate == all[0].Aggregate {
			n++
		}
		of := all[:n]
		all = all[n:]
		g.Go(func() error {
			for i := range of {
				if err := r.repair(ctx, &of[i], passed); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// isBeforeScan, IsBeforeSweep and IsBehindEarlier are reasons why a request waits: the
// event may be published without the request.
const (
	isBeforeScan    = "the scan of the outbox table has not reached it"
	IsBeforeSweep   = "the relay has not reached it in the CDC log"
	IsBehindEarlier = "the relay has not reached an earlier event of its aggregate in the CDC log"
)

// IsDeadLetter is the reason why a request waits: the replay of its dead letter
// publishes the event, or an operator discards it.
const IsDeadLetter = "it is a dead letter: settle that"

// IsWithheld is the reason why no request publishes the event.
const IsWithheld = "its dead letter was settled without publishing it"

// answerPublished answers the requests whose events are acknowledged.
func (r *Repairer) answerPublished(ctx context.Context) error {
	r.mu.Lock()
	ids := slices.Clone(r.published)
	r.mu.Unlock()
	for _, id := range ids {
		r.mu.Lock()
		event := r.taken[id]
		r.mu.Unlock()
		state, detail := RepairPublished, ""
		withheld, err := withheld(ctx, r.publisher, event)
		switch {
		case err != nil:
			return err
		case r.publisher.IsDeadLetter(event):
			state, detail = RepairAsked, IsDeadLetter
		case withheld:
			state, detail = RepairUnknown, IsWithheld
		}
		if _, err := r.requests.Answer(ctx, id, RepairTaken, state, detail); err != nil {
			return err
		}
		r.mu.Lock()
		r.published = r.published[1:]
		delete(r.taken, id)
		r.mu.Unlock()
	}
	return nil
}

func (r *Repairer) repair(ctx context.Context, q *Repair, passed time.Time) error {
	if q.State == RepairTaken {
		r.mu.Lock()
		_, mine := r.taken[q.ID]
		r.mu.Unlock()
		if mine {
			return nil
		}
		return r.answer(ctx, q, RepairUnknown, "the relay ended while it published the event: verify again")
	}
	row, found, err := r.lookup.One(ctx, &outbox.Event{AggregateID: q.Aggregate}, q.Sequence)
	switch {
	case err != nil:
		return err
	case !found || row.ID.UUID() != q.EventID:
		return r.answer(ctx, q, RepairGone, "the outbox has no such event")
	case row.Err != nil:
		return r.answer(ctx, q, RepairUnreadable, row.Err.Error())
	}
	o := r.publisher.OlderRows()
	if o != nil && o.Behind(q.Aggregate) {
		return r.wait(ctx, q, isBeforeScan)
	}
	if !time.UnixMicro(row.Written).Before(passed) {
		return r.wait(ctx, q, IsBeforeSweep)
	}
	if behind, err := r.behindEarlier(ctx, q, passed); err != nil {
		return err
	} else if behind {
		return r.wait(ctx, q, IsBehindEarlier)
	}
	if r.publisher.IsDeadLetter(q.EventID) {
		return r.wait(ctx, q, IsDeadLetter)
	}
	if withheld, err := withheld(ctx, r.publisher, q.EventID); err != nil {
		return err
	} else if withheld {
		return r.answer(ctx, q, RepairUnknown, IsWithheld)
	}
	indexed, inTopic := r.publisher.Indexed(q.EventID)
	if indexed {
		switch {
		case inTopic && r.waited(q.ID):
			return r.answer(ctx, q, RepairPublished, "") // since the request
		case r.doubt(q):
			return r.answer(ctx, q, RepairUnknown, "this relay has published the event: verify again")
		}
		r.log.Warn("topic has lost a published event", "event_id", row.ID, "aggregate_id", row.AggregateID, "sequence", row.Sequence)
		r.publisher.Forget(q.EventID)
	} else if q.Detail == isBeforeScan || q.Detail == IsBeforeSweep || q.Detail == IsBehindEarlier || o.Old(row.Written) && r.doubt(q) {
		// The scan or the sweep reader may have published it, and the index does not keep all events.
		return r.answer(ctx, q, RepairUnknown, "the relay has read past it since the request: verify again")
	}
	release, err := r.publisher.Claim(ctx, q.Aggregate.UUID())
	if err != nil {
		return err
	}
	defer release()
	if err := r.publishEarlier(ctx, q, passed); err != nil {
		return err
	}
	r.mu.Lock()
	r.taken[q.ID] = q.EventID
	delete(r.waiting, q.ID)
	r.mu.Unlock()
	if taken, err := r.requests.Take(ctx, q.ID); err != nil || !taken {
		r.mu.Lock()
		delete(r.taken, q.ID) // after an error the state may still be taken; the answer is then unknown
		r.mu.Unlock()
		return err
	}
	return r.publish(ctx, &row, indexed, publish.OnSettled(func() { r.settle(q.ID) }))
}

// publish publishes an event that is missing from its topic; again reports that the relay has
// published it.
func (r *Repairer) publish(ctx context.Context, row *cdclog.StoredEvent, again bool, settled publish.Settlement) error {
	r.log.Info("publishing event missing from its topic", "event_id", row.ID, "aggregate_id", row.AggregateID, "sequence", row.Sequence, trace.Attrs(row.Headers))
	return r.publisher.SubmitMissing(ctx, *row, again, settled)
}

// publishEarlier publishes the events of the aggregate that precede that of the request and
// are proven not to be published. The caller has claimed the aggregate.
func (r *Repairer) publishEarlier(ctx context.Context, q *Repair, passed time.Time) error {
	return r.earlier.Unpublished(ctx, &outbox.Event{AggregateID: q.Aggregate}, q.Sequence, passed.UnixMicro(), func(f cdclog.StoredEvent) error {
		return r.publish(ctx, &f, false, publish.Settlement{})
	})
}

// errEarlier ends a lookup at an event that must be published first.
var errEarlier = errors.New("an earlier event is not published")

// behindEarlier reports whether the sweep reader has not published yet an event of the
// aggregate with a smaller number than that of the request.
func (r *Repairer) behindEarlier(ctx context.Context, q *Repair, passed time.Time) (bool, error) {
	err := r.lookup(ctx, &outbox.Event{AggregateID: q.Aggregate}, 1, q.Sequence, func(f cdclog.StoredEvent) error {
		if r.publisher.Fate(&f, passed.UnixMicro()-1, math.MaxInt64).Missed() {
			return errEarlier
		}
		return nil
	})
	if errors.Is(err, errEarlier) {
		return true, nil
	}
	return false, err
}

// note counts a poll, and records which requests are new in it.
func (r *Repairer) note(all []Repair) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.polls++
	seen := make(map[gocql.UUID]int, len(all))
	for i := range all {
		seen[all[i].ID] = r.polls
		if first, ok := r.seen[all[i].ID]; ok {
			seen[all[i].ID] = first
		}
	}
	r.seen = seen
}

// maxDoubted limits the contradicted events kept in memory.
const maxDoubted = 10_000

// doubt reports whether the relay's knowledge that it may have published the event takes
// precedence over the request, and records the contradiction. It does unless an earlier
// request was answered with unknown.
func (r *Repairer) doubt(q *Repair) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if before, ok := r.doubted[q.EventID]; ok && r.seen[q.ID] > before {
		delete(r.doubted, q.EventID)
		return false
	}
	if len(r.doubted) >= maxDoubted {
		// A random one: if more events are requested in the same order again and again, some
		// are found each time.
		for id := range r.doubted {
			delete(r.doubted, id)
			break
		}
	}
	r.doubted[q.EventID] = r.polls
	return true
}

// waited reports whether the request waited for the relay to publish its event.
func (r *Repairer) waited(id gocql.UUID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.waiting[id]
	return ok
}

// settle records that the event of a request is acknowledged.
func (r *Repairer) settle(id gocql.UUID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.published = append(r.published, id)
}

// wait stores, once, why a request waits.
func (r *Repairer) wait(ctx context.Context, q *Repair, why string) error {
	r.mu.Lock()
	said := r.waiting[q.ID] == why
	r.waiting[q.ID] = why
	r.mu.Unlock()
	if said {
		return nil
	}
	return r.answer(ctx, q, RepairAsked, why)
}

// answer answers a request; one that was changed since it was read is unchanged.
func (r *Repairer) answer(ctx context.Context, q *Repair, state RepairState, detail string) error {
	_, err := r.requests.Answer(ctx, q.ID, q.State, state, detail)
	return err
}

// withheld reports whether an operator settled the dead letter of the event without
// publishing it. The dedup index also contains events that were replayed long ago.
func withheld(ctx context.Context, p *publish.Publisher, id gocql.UUID) (bool, error) {
	l, err := p.DeadLetter(ctx, id)
	if l == nil || l.Status.Open() {
		return false, err
	}
	switch l.Outcome.Kind {
	case dlq.OutcomeReplayed, dlq.OutcomeFound, dlq.OutcomeUnblocked:
		return false, nil
	}
	return true, nil
}
