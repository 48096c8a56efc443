package messages

import (
	"context"
	"errors"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/guard"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/schedule"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
)

// State is the state of a message.
type State string

// The states of a message.
const (
	// Received is the first entry of each history; no message stays in it.
	Received State = "received"
	// Scheduled: it waits for its time.
	Scheduled State = "scheduled"
	// Cancelled: it was cancelled in time and is never published.
	Cancelled State = "cancelled"
	// Processing: the message is due and is being written to the outbox.
	Processing State = "processing"
	// Queued: the message is in the outbox and not found in its topic yet.
	Queued State = "queued"
	// Completed: the message is in its topic.
	Completed State = "completed"
	// Retrying: a replay of its dead letter failed and will be retried.
	Retrying State = "retrying"
	// DLQPending: the message is a pending dead letter.
	DLQPending State = "dlq_pending"
	// DLQProcessing: its dead letter is being replayed.
	DLQProcessing State = "dlq_processing"
	// Resolved: the dead letter was published or resolved by an operator.
	Resolved State = "resolved"
	// Failed: the dead letter has no replays left.
	Failed State = "failed"
	// Archived: the dead letter is archived.
	Archived State = "archived"
)

// States are all states.
var States = []State{Received, Scheduled, Cancelled, Processing, Queued, Completed, Retrying, DLQPending, DLQProcessing, Resolved, Failed, Archived}

var ofSchedule = map[schedule.State]State{schedule.Waiting: Scheduled, schedule.Released: Processing, schedule.Cancelled: Cancelled}

// DeadLetter is the dead letter of a message.
type DeadLetter struct {
	// State is one of Retrying to Archived.
	State State
	// Since is the time of the first failure, At that of the last change.
	Since, At time.Time
	// Error is the reason, in one line.
	Error string
}

// DeadLetters finds the dead letter of an event. It returns false if there is
// none. It is safe for concurrent use.
type DeadLetters interface {
	DeadLetter(ctx context.Context, event gocql.UUID) (DeadLetter, bool, error)
}

// Place is the position of a record.
type Place struct {
	Topic     string
	Partition int32
	Offset    int64
	At        time.Time
	// Subscriptions are the states of the message in the subscriptions of its topic, nil if
	// they are unknown; Note is the reason, in a sentence.
	Subscriptions []subscriptions.Progress
	Note          string
}

// Finder finds the record of an event in a topic, among those with the key that
// are not older than since, and its states in subscriptions. It returns false if there is none. It is safe for
// concurrent use.
type Finder interface {
	Find(ctx context.Context, topic string, key []byte, event gocql.UUID, since time.Time) (Place, bool, error)
}

type (
	noDeadLetters struct{}
	noFinder      struct{}
)

func (noDeadLetters) DeadLetter(context.Context, gocql.UUID) (DeadLetter, bool, error) {
	return DeadLetter{}, false, nil
}

func (noFinder) Find(context.Context, string, []byte, gocql.UUID, time.Time) (Place, bool, error) {
	return Place{}, false, nil
}

// Step is one entry of the history of a message.
type Step struct {
	State  State     `json:"state"`
	At     time.Time `json:"at"`
	Detail string    `json:"detail,omitempty"`
}

// View is the state of a message.
type View struct {
	ID         gocql.UUID
	State      State
	Topic, Key string
	Client     string // the client that submitted it, while it is waiting
	CreatedAt  time.Time
	DeliverAt  time.Time // zero for immediate delivery
	History    []Step
	Record     *Place // where it is, once Completed
	// Note describes a part of the state that could not be read.
	Note string
}

// Get returns the state of a message while it is waiting and afterwards until
// its outbox rows expire. Errors are ErrNotFound, *OverloadedError or
// *UnavailableError.
func (s *Service) Get(ctx context.Context, id gocql.UUID) (View, error) {
	var v View
	var e stored
	found, waiting := false, false
	err := s.read(ctx, id, func(ctx context.Context) error {
		m, err := s.schedule.Read(ctx, id)
		if err == nil {
			v, found, waiting = ofScheduled(&m), true, true
			return nil
		}
		if !errors.Is(err, schedule.ErrNotFound) {
			return err
		}
		if e, found, err = s.store.event(ctx, id); err != nil || !found {
			return err
		}
		v, err = s.ofEvent(ctx, &e)
		return err
	})
	switch {
	case err != nil:
		return View{}, err
	case !found:
		return View{}, ErrNotFound
	case waiting || v.State != Queued:
		return v, nil
	}
	place, out, err := s.cfg.Finder.Find(ctx, e.Type, e.Key(), id, e.writtenAt)
	switch {
	case err != nil:
		s.cfg.Logger.WarnContext(ctx, "failed to find a message in its topic", "event_id", id, "topic", e.Type, "err", err)
		v.Note = "The topic is unreadable at the moment; the message may be published already."
	case out:
		v.Record, v.Note = &place, place.Note
		v.add(Completed, place.At, "")
	}
	return v, nil
}

// ofEvent returns the state of a message according to outbox and dead letters.
func (s *Service) ofEvent(ctx context.Context, e *stored) (View, error) {
	v := View{
		ID: e.ID.UUID(), State: Queued, Topic: e.Type, Key: e.Headers[outbox.HeaderPartitionKey], CreatedAt: e.CreatedAt, DeliverAt: e.DeliverAt,
		History: []Step{{State: Received, At: e.CreatedAt}},
	}
	if !e.DeliverAt.IsZero() {
		v.History = append(v.History, Step{Scheduled, e.CreatedAt, "for " + e.DeliverAt.UTC().Format(time.RFC3339Nano)})
	}
	v.add(Queued, e.writtenAt, "")
	deadLetter, dead, err := s.cfg.DeadLetters.DeadLetter(ctx, e.ID.UUID())
	if err != nil || !dead {
		return v, err
	}
	v.History = append(v.History, Step{DLQPending, deadLetter.Since, deadLetter.Error})
	if deadLetter.State != DLQPending {
		v.History = append(v.History, Step{deadLetter.State, deadLetter.At, ""})
	}
	v.State = deadLetter.State
	return v, nil
}

// read takes a place and calls f. A missing message is not an error.
func (s *Service) read(ctx context.Context, id gocql.UUID, f func(context.Context) error) error {
	_, leave, err := s.guard.Enter(ctx, 1)
	if err != nil {
		return err
	}
	defer leave()
	if err := s.try(ctx, f); err != nil {
		return s.unavailable(ctx, id, false, err)
	}
	return nil
}

func ofScheduled(m *schedule.Message) View {
	v := View{
		ID: m.ID, State: ofSchedule[m.State], Topic: m.Topic, Key: m.Key, Client: m.Client, CreatedAt: m.CreatedAt.UTC(), DeliverAt: m.DeliverAt.UTC(),
		History: []Step{{State: Received, At: m.CreatedAt.UTC()}, {Scheduled, m.CreatedAt.UTC(), "for " + m.DeliverAt.UTC().Format(time.RFC3339Nano)}},
	}
	switch {
	case v.State != Scheduled:
		v.add(v.State, m.ChangedAt.UTC(), "")
	case !m.ChangedAt.IsZero():
		// Its original time is not kept.
		v.History[1].Detail = "for later"
		v.add(Scheduled, m.ChangedAt.UTC(), "made due by hand: for "+m.DeliverAt.UTC().Format(time.RFC3339Nano))
	}
	return v
}

func (v *View) add(state State, at time.Time, detail string) {
	v.State = state
	v.History = append(v.History, Step{state, at, detail})
}

// Cancel cancels a message: after nil it is never published. Errors are
// ErrNotFound, ErrTooLate, *OverloadedError, or an *UnavailableError; if its
// Unknown is set, the message may be cancelled.
func (s *Service) Cancel(ctx context.Context, id gocql.UUID) error {
	_, leave, err := s.guard.Enter(ctx, 1)
	if err != nil {
		return err
	}
	defer leave()
	return s.cancel(ctx, id)
}

// cancel is Cancel without taking a place at the database.
func (s *Service) cancel(ctx context.Context, id gocql.UUID) error {
	ctx, cancel := s.detach(ctx)
	defer cancel()
	sent := false
	for wait := newPause(ctx, s.cfg.AttemptTimeout); ; {
		var verdict error
		err := s.try(ctx, func(ctx context.Context) (err error) {
			verdict, err = s.cancelOnce(ctx, id)
			return err
		})
		if err == nil {
			return verdict
		}
		open := errors.Is(err, guard.ErrOpen)
		sent = sent || !open
		if open && !sent || !wait.Pause() {
			return s.unavailable(ctx, id, sent, err)
		}
	}
}

// cancelOnce makes one attempt; the verdict is nil, ErrNotFound or ErrTooLate.
func (s *Service) cancelOnce(ctx context.Context, id gocql.UUID) (verdict, err error) {
	m, err := s.schedule.Read(ctx, id)
	if err == nil {
		err = s.schedule.Cancel(ctx, &m, s.cfg.Clock.Now())
	}
	switch {
	case errors.Is(err, schedule.ErrReleased):
		return ErrTooLate, nil
	case !errors.Is(err, schedule.ErrNotFound):
		return nil, err
	}
	_, found, err := s.store.event(ctx, id)
	if found {
		return ErrTooLate, err
	}
	return ErrNotFound, err
}

// List returns messages that wait, the next to be delivered first. Errors are
// *OverloadedError or *UnavailableError.
func (s *Service) List(ctx context.Context, after schedule.Position, f schedule.Filter, limit int) (out []View, next schedule.Position, more bool, err error) {
	err = s.read(ctx, gocql.UUID{}, func(ctx context.Context) error {
		page, at, rest, err := s.schedule.List(ctx, after, f, limit)
		if err != nil {
			return err
		}
		next, more = at, rest
		out = make([]View, len(page))
		for i := range page {
			out[i] = ofScheduled(&page[i])
		}
		return nil
	})
	return out, next, more, err
}
