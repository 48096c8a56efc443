package messages

import (
	"context"
	"errors"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/guard"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/schedule"
)

// State is where a message stands.
type State string

// The states of a message.
const (
	// Received: it was handed in. It is the first line of each history, no state that lasts.
	Received State = "received"
	// Scheduled: it waits for its time.
	Scheduled State = "scheduled"
	// Cancelled: it was taken back in time and is never published.
	Cancelled State = "cancelled"
	// Processing: its time has come, and it is on its way into the outbox.
	Processing State = "processing"
	// Queued: it is in the outbox, and not found in its topic yet.
	Queued State = "queued"
	// Completed: it is in its topic.
	Completed State = "completed"
	// Retrying: a replay of its dead letter failed, and there will be another.
	Retrying State = "retrying"
	// DLQPending: it is a dead letter that waits.
	DLQPending State = "dlq_pending"
	// DLQProcessing: its dead letter is being replayed.
	DLQProcessing State = "dlq_processing"
	// Resolved: its dead letter was published or settled by hand.
	Resolved State = "resolved"
	// Failed: the replays of its dead letter are used up.
	Failed State = "failed"
	// Archived: its dead letter was put away.
	Archived State = "archived"
)

// States are all states.
var States = []State{Received, Scheduled, Cancelled, Processing, Queued, Completed, Retrying, DLQPending, DLQProcessing, Resolved, Failed, Archived}

var ofSchedule = map[schedule.State]State{schedule.Waiting: Scheduled, schedule.Released: Processing, schedule.Cancelled: Cancelled}

// Letter is what a message's dead letter says.
type Letter struct {
	// State is one of Retrying to Archived.
	State State
	// Since is when it became a dead letter, At when it last changed.
	Since, At time.Time
	// Error is why, in one line.
	Error string
}

// Letters finds the dead letter of an event; false means there is none. It is
// safe for concurrent use.
type Letters interface {
	Letter(ctx context.Context, event gocql.UUID) (Letter, bool, error)
}

// Place is where a record stands.
type Place struct {
	Topic     string
	Partition int32
	Offset    int64
	At        time.Time
}

// Finder finds the record of an event in a topic, among those with the key that
// are no older than since; false means that it is not there. It is safe for
// concurrent use.
type Finder interface {
	Find(ctx context.Context, topic string, key []byte, event gocql.UUID, since time.Time) (Place, bool, error)
}

type (
	noLetters struct{}
	noFinder  struct{}
)

func (noLetters) Letter(context.Context, gocql.UUID) (Letter, bool, error) {
	return Letter{}, false, nil
}

func (noFinder) Find(context.Context, string, []byte, gocql.UUID, time.Time) (Place, bool, error) {
	return Place{}, false, nil
}

// Step is one line of a message's history.
type Step struct {
	State  State     `json:"state"`
	At     time.Time `json:"at"`
	Detail string    `json:"detail,omitempty"`
}

// View is what is known of a message.
type View struct {
	ID         gocql.UUID
	State      State
	Topic, Key string
	Client     string // who handed it in, as long as it waits
	CreatedAt  time.Time
	DeliverAt  time.Time // zero for at once
	History    []Step
	Record     *Place // where it is, once Completed
	// Note says what could not be looked up.
	Note string
}

// Get tells where a message stands, for as long as it waits and for as long
// after as the outbox keeps its rows. Errors are ErrNotFound, *OverloadedError or
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
		s.cfg.Logger.WarnContext(ctx, "cannot look for a message in its topic", "event_id", id, "topic", e.Type, "err", err)
		v.Note = "The topic cannot be read just now, so that this does not say whether the message is there."
	case out:
		v.Record = &place
		v.add(Completed, place.At, "")
	}
	return v, nil
}

// ofEvent is what outbox and dead letters know of a message.
func (s *Service) ofEvent(ctx context.Context, e *stored) (View, error) {
	v := View{
		ID: e.ID, State: Queued, Topic: e.Type, Key: e.Headers[outbox.HeaderPartitionKey], CreatedAt: e.CreatedAt, DeliverAt: e.DeliverAt,
		History: []Step{{State: Received, At: e.CreatedAt}},
	}
	if !e.DeliverAt.IsZero() {
		v.History = append(v.History, Step{Scheduled, e.CreatedAt, "for " + e.DeliverAt.UTC().Format(time.RFC3339Nano)})
	}
	v.add(Queued, e.writtenAt, "")
	letter, dead, err := s.cfg.Letters.Letter(ctx, e.ID)
	if err != nil || !dead {
		return v, err
	}
	v.History = append(v.History, Step{DLQPending, letter.Since, letter.Error})
	if letter.State != DLQPending {
		v.History = append(v.History, Step{letter.State, letter.At, ""})
	}
	v.State = letter.State
	return v, nil
}

// read takes a place and reads what f reads. That something is not there is no error.
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
		// Its first time is not kept.
		v.History[1].Detail = "for later"
		v.add(Scheduled, m.ChangedAt.UTC(), "released by hand: for "+m.DeliverAt.UTC().Format(time.RFC3339Nano))
	}
	return v
}

func (v *View) add(state State, at time.Time, detail string) {
	v.State = state
	v.History = append(v.History, Step{state, at, detail})
}

// Cancel takes a message back: after nil it is never published. Errors are
// ErrNotFound, ErrTooLate, *OverloadedError, or an *UnavailableError, after which
// it may be cancelled if that is Unknown.
func (s *Service) Cancel(ctx context.Context, id gocql.UUID) error {
	_, leave, err := s.guard.Enter(ctx, 1)
	if err != nil {
		return err
	}
	defer leave()
	return s.cancel(ctx, id)
}

// cancel is Cancel for who has a place at the database.
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
		err = s.schedule.Cancel(ctx, &m, s.cfg.Now())
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
