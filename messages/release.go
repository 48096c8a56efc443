package messages

import (
	"context"
	"errors"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/guard"
	"github.com/scylla-outbox/scylla-outbox/schedule"
)

// Release makes a message that waits due at once, whatever its time was: the
// scheduler hands it to the outbox like any other that is due, and it goes out
// once. It can still be taken back until then. One that is due already is left as
// it is, which is no error.
//
// Errors are ErrNotFound, *NotWaitingError, *OverloadedError, or an
// *UnavailableError, after which it may be released if that is Unknown.
func (s *Service) Release(ctx context.Context, id gocql.UUID) (View, error) {
	_, leave, err := s.guard.Enter(ctx, 1)
	if err != nil {
		return View{}, err
	}
	defer leave()
	return s.release(ctx, id)
}

// release is Release for who has a place at the database.
func (s *Service) release(ctx context.Context, id gocql.UUID) (View, error) {
	ctx, cancel := s.detach(ctx)
	defer cancel()
	sent := false
	for wait := newPause(ctx, s.cfg.AttemptTimeout); ; {
		var v View
		var verdict error
		err := s.try(ctx, func(ctx context.Context) (err error) {
			v, verdict, err = s.releaseOnce(ctx, id)
			return err
		})
		if err == nil {
			if sent && out(v.State) {
				verdict = nil // by an attempt whose answer was lost, or by its time
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

// out says that a message went the way of its time.
func out(s State) bool { return s == Processing || s == Queued || s == Completed }

// releaseOnce makes one attempt; the verdict is nil, ErrNotFound or a *NotWaitingError.
func (s *Service) releaseOnce(ctx context.Context, id gocql.UUID) (v View, verdict, err error) {
	m, err := s.schedule.Read(ctx, id)
	if err == nil {
		err = s.schedule.Hasten(ctx, &m, s.cfg.Now())
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
