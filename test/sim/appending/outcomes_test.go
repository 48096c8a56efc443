package appending

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

func at(aggregate gocql.UUID, n int64) outbox.Event {
	return event(outbox.NewID().UUID(), aggregate, account{Balance: n, version: n})
}

// mustAppend stores an event and returns it.
func mustAppend(t *testing.T, a *outbox.Appender, e outbox.Event, o outbox.AppendOptions) outbox.Event {
	t.Helper()
	r, err := a.AppendNext(t.Context(), e, o)
	if err != nil || r.Event.ID != e.ID {
		t.Fatalf("AppendNext(%d) = %+v, %v", e.Sequence, r, err)
	}
	return r.Event
}

// newest is the write time of the newest log row of an event.
func newest(t *testing.T, w world.World, e *outbox.Event) (last time.Time) {
	t.Helper()
	for _, l := range w.Log(t) {
		if l.Event == e.ID.UUID() && l.At.After(last) {
			last = l.At
		}
	}
	return last
}

// An event is appended once; the same event again is repeated, another one conflicts.
func TestAppendNext_Outcomes(t *testing.T) {
	for name, conf := range versions {
		t.Run(name, func(t *testing.T) {
			bubble(t, conf, func(t *testing.T, w world.World) {
				a, id := newAppender(t, w.Session, outbox.AppenderConfig{}), outbox.NewID().UUID()
				first := mustAppend(t, a, at(id, 1), outbox.AppendOptions{})
				if r, err := a.AppendNext(t.Context(), first, outbox.AppendOptions{}); err != nil || !r.Repeated || r.Event.ID != first.ID {
					t.Errorf("again: %+v, %v; want the same event, repeated", r, err)
				}
				second := mustAppend(t, a, at(id, 2), outbox.AppendOptions{VersionWrittenAt: time.Now()})
				third := mustAppend(t, a, at(id, 3), outbox.AppendOptions{VersionWrittenAt: time.Now()})
				for _, o := range []outbox.AppendOptions{{}, {VersionWrittenAt: time.Now()}} {
					_, err := a.AppendNext(t.Context(), at(id, 2), o)
					lost, ok := errors.AsType[*outbox.ConflictError](err)
					if !ok || len(lost.Events) != 2 || lost.Events[0].ID != second.ID || lost.Events[1].ID != third.ID {
						t.Errorf("a stale writer: %v, want a conflict with events 2 and 3", err)
					}
				}
				// A process that repeats another's request has computed it from newer rows.
				moved := second
				moved.Sequence = 4
				if r, err := a.AppendNext(t.Context(), moved, outbox.AppendOptions{SearchFrom: 2}); err != nil || !r.Repeated || r.Event.Sequence != 2 {
					t.Errorf("repeated under another number: %+v, %v; want number 2", r, err)
				}
			})
		})
	}
}

// Find returns to a writer that refuses a change the same result as AppendNext, and stores nothing.
func TestFind(t *testing.T) {
	for name, conf := range versions {
		t.Run(name, func(t *testing.T) {
			bubble(t, conf, func(t *testing.T, w world.World) {
				a, id := newAppender(t, w.Session, outbox.AppenderConfig{}), outbox.NewID().UUID()
				find := func(e outbox.Event, o outbox.AppendOptions) (outbox.Appended, bool, error) {
					return a.Find(t.Context(), outbox.Event{ID: e.ID, AggregateID: e.AggregateID, Sequence: e.Sequence}, o)
				}
				young := outbox.AppendOptions{VersionWrittenAt: time.Now()}
				first := at(id, 1)
				for range 2 {
					if _, stored, err := find(first, outbox.AppendOptions{}); stored || err != nil {
						t.Errorf("before the first event: %t, %v", stored, err)
					}
				}
				mustAppend(t, a, first, outbox.AppendOptions{})
				second := mustAppend(t, a, at(id, 2), young)
				w.Node.Faults().MustAdd(faults.CASTimeout(true))
				dead := at(id, 3)
				ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
				defer cancel()
				_, err := a.AppendNext(ctx, dead, young)
				if _, ok := errors.AsType[*outbox.UnknownOutcomeError](err); !ok {
					t.Fatalf("the dying writer: %v, want an unknown outcome", err)
				}
				for _, o := range []outbox.AppendOptions{{}, young} {
					_, stored, err := find(at(id, 3), o)
					lost, ok := errors.AsType[*outbox.ConflictError](err)
					if stored || !ok || len(lost.Events) != 1 || lost.Events[0].ID != dead.ID {
						t.Errorf("rows that lag behind an undecided event: %t, %v, want a conflict with it", stored, err)
					}
				}
				if r, stored, err := find(dead, young); err != nil || !stored || string(r.Event.Payload) != string(dead.Payload) {
					t.Errorf("the event itself: %+v, %t, %v", r, stored, err)
				}
				moved := second
				moved.Sequence = 4
				if r, stored, err := find(moved, outbox.AppendOptions{SearchFrom: 2}); err != nil || !stored || r.Event.Sequence != 2 {
					t.Errorf("stored under an earlier number: %+v, %t, %v", r, stored, err)
				}
				_, _, err = find(at(outbox.NewID().UUID(), 2), young)
				if _, ok := errors.AsType[*outbox.GapError](err); !ok {
					t.Errorf("event 2 without event 1: %v, want a gap", err)
				}
				if found, err := a.Since(t.Context(), &first, 1); err != nil || len(found) != 3 {
					t.Errorf("%d events are stored, %v, want 3", len(found), err)
				}
			})
		})
	}
}

// An event that the caller's rows contain is written once.
func TestAppendNext_LeavesAppliedEventsAlone(t *testing.T) {
	bubble(t, versions["5.1"], func(t *testing.T, w world.World) {
		a, id := newAppender(t, w.Session, outbox.AppenderConfig{}), outbox.NewID().UUID()
		first := mustAppend(t, a, at(id, 1), outbox.AppendOptions{})
		moved := first
		moved.Sequence = 2
		if r, err := a.AppendNext(t.Context(), moved, outbox.AppendOptions{SearchFrom: 1}); err != nil || !r.Repeated || r.Event.Sequence != 1 {
			t.Fatalf("repeated after it was applied: %+v, %v", r, err)
		}
		if log := w.Log(t); len(log) != 1 {
			t.Errorf("the log has %d rows, want 1", len(log))
		}
	})
}

// A writer that never learned of its event has stored it: the next one finds it and writes it
// once more, so that the relay reads it.
func TestAppendNext_SettlesTheEventOfADeadWriter(t *testing.T) {
	for name, conf := range versions {
		for _, young := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				bubble(t, conf, func(t *testing.T, w world.World) {
					a, id := newAppender(t, w.Session, outbox.AppenderConfig{Budget: time.Second}), outbox.NewID().UUID()
					for n := range int64(2) {
						mustAppend(t, a, at(id, n+1), outbox.AppendOptions{})
					}
					w.Node.Faults().MustAdd(faults.CASTimeout(true))
					dead := at(id, 3)
					ctx, cancel := context.WithCancel(t.Context())
					dying := newAppender(t, w.Session, outbox.AppenderConfig{Attempt: func(ctx context.Context, statement func(context.Context) error) error {
						defer cancel()
						return statement(ctx)
					}})
					_, err := dying.AppendNext(ctx, dead, outbox.AppendOptions{VersionWrittenAt: time.Now()})
					if _, ok := errors.AsType[*outbox.UnknownOutcomeError](err); !ok {
						t.Fatalf("the dying writer: %v, want an unknown outcome", err)
					}
					time.Sleep(10 * time.Minute)
					var o outbox.AppendOptions
					if young {
						o.VersionWrittenAt = time.Now().Add(-11 * time.Minute)
					}
					began := time.Now()
					_, err = a.AppendNext(t.Context(), at(id, 3), o)
					lost, ok := errors.AsType[*outbox.ConflictError](err)
					if !ok || len(lost.Events) != 1 || lost.Events[0].ID != dead.ID {
						t.Fatalf("the next writer: %v, want a conflict with the event of the dead one", err)
					}
					if got := newest(t, w, &dead); got.Before(began.Add(-time.Second)) {
						t.Errorf("the newest log row of the event is of %s, which the relay has passed at %s", got, began)
					}
				})
			})
		}
	}
}

// The missing half of a logged batch is a gap while the rows are young.
func TestAppendNext_Gap(t *testing.T) {
	bubble(t, versions["5.1"], func(t *testing.T, w world.World) {
		a, id := newAppender(t, w.Session, outbox.AppenderConfig{}), outbox.NewID().UUID()
		_, err := a.AppendNext(t.Context(), at(id, 2), outbox.AppendOptions{VersionWrittenAt: time.Now()})
		if _, ok := errors.AsType[*outbox.GapError](err); !ok {
			t.Fatalf("event 2 without event 1: %v, want a gap", err)
		}
		if err := a.Settle(t.Context(), at(id, 1)); err != nil {
			t.Fatal(err)
		}
		mustAppend(t, a, at(id, 2), outbox.AppendOptions{VersionWrittenAt: time.Now()})
		// Rows older than the events live prove nothing.
		mustAppend(t, a, at(outbox.NewID().UUID(), 2), outbox.AppendOptions{VersionWrittenAt: time.Now().Add(-8 * 24 * time.Hour)})
	})
}

// An outcome is unknown only if something may be stored.
func TestAppendNext_UnknownOutcome(t *testing.T) {
	bubble(t, versions["5.1"], func(t *testing.T, w world.World) {
		a := newAppender(t, w.Session, outbox.AppenderConfig{Budget: time.Second})
		w.Fault(0, faults.Effect{Failure: faults.WriteTimeout(faults.CAS, 0, 1)}, engine.OpCAS)
		_, err := a.AppendNext(t.Context(), at(outbox.NewID().UUID(), 1), outbox.AppendOptions{})
		if _, ok := errors.AsType[*outbox.UnknownOutcomeError](err); !ok {
			t.Errorf("a statement that always times out: %v, want an unknown outcome: a request may still be under way", err)
		}
		w.Node.Faults().Clear()
		errBusy := errors.New("busy")
		refusing := newAppender(t, w.Session, outbox.AppenderConfig{Attempt: func(context.Context, func(context.Context) error) error { return errBusy }})
		began := time.Now()
		_, err = refusing.AppendNext(t.Context(), at(outbox.NewID().UUID(), 3), outbox.AppendOptions{VersionWrittenAt: time.Now()})
		if _, ok := errors.AsType[*outbox.UnknownOutcomeError](err); ok || !errors.Is(err, errBusy) || time.Since(began) > 0 {
			t.Errorf("without a statement: %v after %s, want the error of the attempt immediately", err, time.Since(began))
		}
	})
}
