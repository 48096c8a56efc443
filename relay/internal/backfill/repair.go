package backfill

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/internal/trace"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/publish"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/readback"
)

// repairPoll is how often a relay looks for requests.
const repairPoll = 5 * time.Second

// repairer publishes events that a check has proven to be missing from their
// topics, on request (Repairs).
//
// A request is answered with taken before its event is handed on, and with
// published when the broker has it. One that is taken when a relay starts may be
// out or not; it is answered with unknown, and another check tells. So no event
// is published twice.
//
// A request for an event that the dedup index has contradicts it: either the event was
// published after its topic was checked, or the topic has lost it. The first such
// request is answered with unknown; one that is made after that answer comes from a
// later check of the topic, and the topic is right. An event that the sweep or a scan
// has not reached waits for them: they keep its aggregate's order. So does one that follows
// an event which the sweep has still to publish. If the index does not have the event
// afterwards, the request is answered with unknown too.
type repairer struct {
	log       *slog.Logger
	requests  *Repairs
	publisher *publish.Publisher
	lookup    cdclog.Lookup
	// passed is until when the sweep is known to have read all streams.
	passed func(context.Context) (time.Time, error)
	own    *cdclog.Portion

	mu        sync.Mutex
	published []gocql.UUID              // requests whose events are acknowledged and that are not answered yet
	taken     map[gocql.UUID]gocql.UUID // the event of a request
	waiting   map[gocql.UUID]string     // the detail that a request has
	polls     int
	seen      map[gocql.UUID]int // the poll that first had a request
	doubted   map[gocql.UUID]int // the last poll in which the dedup index had an event asked for
}

// NewRepairer returns what answers the requests about aggregates of own.
func NewRepairer(cfg *Config, own *cdclog.Portion, find cdclog.Lookup, p *publish.Publisher, back *readback.Reader) *repairer {
	requests := NewRepairs(cfg.Session, cfg.Keyspace, cfg.Name, cfg.TableKeyspace+"."+cfg.Table)
	requests.Fence = cfg.Fence
	return &repairer{
		log: cfg.Logger, requests: requests, publisher: p, lookup: find,
		passed: back.Mark, own: own, taken: make(map[gocql.UUID]gocql.UUID), waiting: make(map[gocql.UUID]string),
		seen: make(map[gocql.UUID]int), doubted: make(map[gocql.UUID]int),
	}
}

// Run answers requests until ctx ends.
func (r *repairer) Run(ctx context.Context) error {
	failing := false
	for retry.Wait(ctx, repairPoll) == nil {
		err := r.poll(ctx)
		if err != nil && !failing && ctx.Err() == nil {
			r.log.Warn("cannot look for events to repair; trying again", "err", err)
		}
		failing = err != nil
	}
	return context.Cause(ctx)
}

func (r *repairer) poll(ctx context.Context) error {
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
	passed, err := r.passed(ctx)
	if err != nil {
		return err
	}
	slices.SortFunc(all, func(a, b Repair) int {
		return cmp.Or(slices.Compare(a.Aggregate[:], b.Aggregate[:]), cmp.Compare(a.Sequence, b.Sequence))
	})
	for i := range all {
		if err := r.repair(ctx, &all[i], passed); err != nil {
			return err
		}
	}
	return nil
}

// isBeforeScan, isBeforeSweep and isBehindEarlier are why a request waits: the event may
// be published without it.
const (
	isBeforeScan    = "the scan of the outbox table has not reached it"
	isBeforeSweep   = "the relay has not reached it in the CDC log"
	IsBehindEarlier = "the relay has not reached an earlier event of its aggregate in the CDC log"
)

// IsDeadLetter is why a request waits: the event goes out with the replay of its
// dead letter, or not.
const IsDeadLetter = "it is a dead letter: settle that"

// IsWithheld is why an event is not published, whoever asks for it.
const IsWithheld = "its dead letter was settled without publishing it"

// answerPublished answers the requests whose events are acknowledged.
func (r *repairer) answerPublished(ctx context.Context) error {
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

func (r *repairer) repair(ctx context.Context, q *Repair, passed time.Time) error {
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
	case !found || row.ID != q.EventID:
		return r.answer(ctx, q, RepairGone, "the outbox has no such event")
	case row.Err != nil:
		return r.answer(ctx, q, RepairUnreadable, row.Err.Error())
	}
	if o := r.publisher.OlderOf(); o != nil && o.Behind(q.Aggregate) {
		return r.wait(ctx, q, isBeforeScan)
	}
	if !time.UnixMicro(row.Written).Before(passed) {
		return r.wait(ctx, q, isBeforeSweep)
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
	if indexed, inTopic := r.publisher.Indexed(q.EventID); indexed {
		switch {
		case inTopic && r.waited(q.ID):
			return r.answer(ctx, q, RepairPublished, "") // since it was asked for
		case r.doubt(q):
			return r.answer(ctx, q, RepairUnknown, "this relay has published the event: verify again")
		}
		r.log.Warn("topic has lost a published event", "event_id", row.ID, "aggregate_id", row.AggregateID, "seq", row.Sequence)
		r.publisher.Forget(q.EventID)
	} else if q.Detail == isBeforeScan || q.Detail == isBeforeSweep || q.Detail == IsBehindEarlier {
		// The scan or the sweep may have published it since, and the index forgets.
		return r.answer(ctx, q, RepairUnknown, "the relay has read past it since the request: verify again")
	}
	release, err := r.publisher.Claim(ctx, q.Aggregate)
	if err != nil {
		return err
	}
	defer release()
	r.mu.Lock()
	r.taken[q.ID] = q.EventID
	delete(r.waiting, q.ID)
	r.mu.Unlock()
	if taken, err := r.requests.Take(ctx, q.ID); err != nil || !taken {
		r.mu.Lock()
		delete(r.taken, q.ID) // after an error it may say taken nevertheless, and is unknown then
		r.mu.Unlock()
		return err
	}
	r.log.Info("publishing an event that was found missing from its topic", "event_id", row.ID, "aggregate_id", row.AggregateID, "seq", row.Sequence, trace.Attrs(row.Headers))
	_, err = r.publisher.Offer(ctx, &publish.Offer{
		Event: row.Event, Written: row.Written, By: publish.ByKey, Owner: true, Anyway: true, Missing: true, Settled: func() { r.settle(q.ID) },
	})
	return err
}

// errEarlier ends a lookup at an event that is to be published first.
var errEarlier = errors.New("an earlier event is not published")

// behindEarlier returns whether the sweep has still to publish an event of the aggregate
// with a smaller number than that of the request.
func (r *repairer) behindEarlier(ctx context.Context, q *Repair, passed time.Time) (bool, error) {
	next, _ := r.publisher.Expect(q.Aggregate)
	if next >= q.Sequence {
		return false, nil
	}
	err := r.lookup(ctx, &outbox.Event{AggregateID: q.Aggregate}, max(next, 1), q.Sequence, func(f cdclog.StoredEvent) error {
		if r.publisher.Fate(&f, passed.UnixMicro()-1, 0) == publish.FateUnpublished {
			return errEarlier
		}
		return nil
	})
	if errors.Is(err, errEarlier) {
		return true, nil
	}
	return false, err
}

// note counts a poll, and notes which requests are new in it.
func (r *repairer) note(all []Repair) {
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

// maxDoubted bounds the events that are remembered as contradicted.
const maxDoubted = 10_000

// doubt returns whether the dedup index counts more than the request, and notes that
// they contradict each other: it does unless an earlier request was answered so.
func (r *repairer) doubt(q *Repair) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if before, ok := r.doubted[q.EventID]; ok && r.seen[q.ID] > before {
		delete(r.doubted, q.EventID)
		return false
	}
	if len(r.doubted) >= maxDoubted {
		clear(r.doubted)
	}
	r.doubted[q.EventID] = r.polls
	return true
}

// waited returns whether the request waited for the relay to publish its event.
func (r *repairer) waited(id gocql.UUID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.waiting[id]
	return ok
}

// settle notes that the event of a request is acknowledged.
func (r *repairer) settle(id gocql.UUID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.published = append(r.published, id)
}

// wait says, once, why a request waits.
func (r *repairer) wait(ctx context.Context, q *Repair, why string) error {
	r.mu.Lock()
	said := r.waiting[q.ID] == why
	r.waiting[q.ID] = why
	r.mu.Unlock()
	if said {
		return nil
	}
	return r.answer(ctx, q, RepairAsked, why)
}

// answer answers a request as it was read; one that somebody changed since is left.
func (r *repairer) answer(ctx context.Context, q *Repair, state RepairState, detail string) error {
	_, err := r.requests.Answer(ctx, q.ID, q.State, state, detail)
	return err
}

// withheld returns whether an operator settled the event's dead letter without
// publishing it. The dedup index also contains events that were replayed long ago.
func withheld(ctx context.Context, p *publish.Publisher, id gocql.UUID) (bool, error) {
	l, err := p.DeadLetter(ctx, id)
	if l == nil || l.Status.Open() {
		return false, err
	}
	switch l.Outcome.Kind {
	case dlq.OutcomeReplayed, dlq.OutcomeFound, dlq.OutcomeReleased:
		return false, nil
	}
	return true, nil
}
