package messages

import (
	"context"
	"errors"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/guard"
	"github.com/scylla-outbox/scylla-outbox/schedule"
)

// DeliverNow makes a waiting message due immediately: the scheduler writes it to
// the outbox like every due message, and it is published once. It can be
// cancelled until then. A message that is already due is unchanged, without an
// error.
//
// Errors are ErrNotFound, *NotWaitingError, *OverloadedError, or an
// *UnavailableError; if its Unknown is set, the message may be due now.
func (s *Service) DeliverNow(ctx context.Context, id gocql.UUID) (View, error) {
	_, leave, err := s.guard.Enter(ctx, 1)
	if err != nil {
		return View{}, err
	}
	defer leave()
	return s.deliverNow(ctx, id)
}

// deliverNow is DeliverNow without taking a place at the database.
func (s *Service) deliverNow(ctx context.Context, id gocql.UUID) (View, error) {
	ctx, cancel := s.detach(ctx)
	defer cancel()
	sent := false
	for wait := newPause(ctx, s.cfg.AttemptTimeout); ; {
		var v View
		var verdict error
		err := s.try(ctx, func(ctx context.Context) (err error) {
			v, verdict, err = s.deliverNowOnce(ctx, id)
			return err
		})
		if err == nil {
			if sent && out(v.State) {
				verdict = nil // by an attempt with a lost response, or by its time
			}
			return v, verdict
		}
		open := errors.Is(err, guard.ErrOpen)
		sent = sent || !open
		if open && !sent || !wait.Pause() {
			return View{}, s.unavailable(ctx, id, sent, err)
		}
	}
}

// out reports whether a message was delivered at its time.
func out(s State) bool { return s == Processing || s == Queued || s == Completed }

// deliverNowOnce makes one attempt; the verdict is nil, ErrNotFound or a *NotWaitingError.
func (s *Service) deliverNowOnce(ctx context.Context, id gocql.UUID) (v View, verdict, err error) {
	m, err := s.schedule.Read(ctx, id)
	if err == nil {
		err = s.schedule.Hasten(ctx, &m, s.cfg.Clock.Now())
	}
	switch {
	case err == nil:
		return ofScheduled(&m), nil, nil
	case errors.Is(err, schedule.ErrReleased):
		return View{State: Processing}, &NotWaitingError{Processing}, nil
	case errors.Is(err, schedule.ErrCancelled):
		return View{State: Cancelled}, &NotWaitingError{Cancelled}, nil
	case !errors.Is(err, schedule.ErrNotFound):
		return View{}, nil, err
	}
	e, found, err := s.store.event(ctx, id)
	if err != nil || !found {
		return View{}, ErrNotFound, err
	}
	if v, err = s.ofEvent(ctx, &e); err != nil {
		return View{}, nil, err
	}
	return v, &NotWaitingError{v.State}, nil
}
