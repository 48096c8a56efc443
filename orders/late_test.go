package orders

import (
	"slices"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// sendUndetermined sends the event of an update whose conditional insert is decided
// but invisible, and whose writer fails before it reads again. It returns the
// event.
func (b *fixture) sendUndetermined(t *testing.T, o Order) outbox.Event {
	t.Helper()
	next := o
	next.Version, next.EventID = o.Version+1, outbox.NewID().UUID()
	e, err := next.event(EventUpdated, nil)
	if err != nil {
		t.Fatal(err)
	}
	b.Node.Faults().MustAdd(faults.CASTimeout(true))
	if applied, err := b.appendEvent(t, e); applied || classifyFate(err) != fateUnknown {
		t.Fatalf("appendEvent() = %v, %v, want an unknown outcome", applied, err)
	}
	b.Node.Faults().Clear()
	if s := b.readStored(t, o.ID); len(s.events) != int(o.Version) {
		t.Fatalf("the event is visible before any read: %+v", s.events)
	}
	return e
}

// written are the times of the CDC log's rows of an order's events, by sequence number.
func (b *fixture) written(t *testing.T, id gocql.UUID) map[int64][]time.Time {
	t.Helper()
	out := make(map[int64][]time.Time)
	for _, row := range b.Log(t) {
		if row.Aggregate == id {
			out[row.Sequence] = append(out[row.Sequence], row.At)
		}
	}
	for _, all := range out {
		slices.SortFunc(all, time.Time.Compare)
	}
	return out
}

// The next request, however late, finds an event whose conditional insert timed
// out. It writes the event again, with a time that the relay has not passed,
// before any other event.
func TestRepair_WritesALateEventAgain(t *testing.T) {
	t.Parallel()
	for name, next := range map[string]func(s *Service, id gocql.UUID) error{
		"changed": func(s *Service, id gocql.UUID) error {
			_, err := s.Confirm(t.Context(), id, Confirmation{}, WriteOptions{})
			return err
		},
		"changed at the version of the late event": func(s *Service, id gocql.UUID) error {
			_, err := s.Confirm(t.Context(), id, Confirmation{}, WriteOptions{IfVersion: []int64{2}})
			return err
		},
		"read": func(s *Service, id gocql.UUID) error {
			if _, err := s.appender.Since(t.Context(), &outbox.Event{AggregateID: outbox.IDFromUUID(id)}, 1); err != nil {
				return err // this read made it visible
			}
			_, err := s.Get(t.Context(), id)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			o := b.mustCreate(t)
			late := b.sendUndetermined(t, o)
			tomorrow := time.Now()
			if err := next(b.another(t), o.ID); err != nil {
				t.Fatal(err)
			}
			at := b.written(t, o.ID)
			if n := len(at[2]); n != 2 || at[2][0].After(tomorrow) || at[2][1].Before(tomorrow) {
				t.Fatalf("the late event has rows of %v in the log, want one before %s and one after it", at[2], tomorrow)
			}
			if len(at[3]) > 0 && !at[3][0].After(at[2][1]) {
				t.Errorf("the next event is of %s, before the late one of %s", at[3][0], at[2][1])
			}
			if got := b.readStored(t, o.ID); got.events[1].ID != late.ID || got.order.Version != int64(len(got.events)) {
				t.Errorf("stored %+v, want the event %s second, and the order up to date", got, late.ID)
			}
		})
	}
}

// No event follows a late event that cannot be rewritten; each request tries
// again, and the row of the order stays stale until then.
func TestRepair_NothingFollowsALateEvent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	o := b.mustCreate(t)
	b.sendUndetermined(t, o)
	b.Node.Faults().MustAdd(faults.Rule{
		Match: faults.Match{Kinds: []engine.OpKind{engine.OpWrite}, Table: "outbox_messages"}, Effect: faults.Effect{Failure: faults.WriteTimeout(faults.Simple, 0, 1)},
	})
	if _, err := b.brief(t).Confirm(t.Context(), o.ID, Confirmation{}, WriteOptions{}); !isRefused(err) {
		t.Errorf("Confirm() = %v, want it refused with nothing stored", err)
	}
	if got, err := b.Get(t.Context(), o.ID); err != nil || got.Version != 2 {
		t.Errorf("Get() = %+v, %v, want the content of the event", got, err)
	}
	if s := b.readStored(t, o.ID); s.order.Version != 1 || len(s.events) != 2 {
		t.Errorf("stored %+v, want a stale order and its event as the last one", s)
	}
	b.heal(t)
	before := len(b.written(t, o.ID)[2])
	if _, err := b.another(t).Confirm(t.Context(), o.ID, Confirmation{}, WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	if at := b.written(t, o.ID); len(at[2]) != before+1 || len(at[3]) != 1 {
		t.Errorf("rows in the log: %v, want one more of the late event and one of the next", at)
	}
}

// Determined changes are written once: they need no second row.
func TestRepair_LeavesWhatIsAppliedAlone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	o := b.mustCreate(t)
	if _, err := b.Confirm(t.Context(), o.ID, Confirmation{}, WriteOptions{IdempotencyKey: "c"}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Confirm(t.Context(), o.ID, Confirmation{}, WriteOptions{IdempotencyKey: "c"}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Get(t.Context(), o.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Cancel(t.Context(), o.ID, Cancellation{}, WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	for seq, at := range b.written(t, o.ID) {
		if len(at) != 1 {
			t.Errorf("event %d has %d rows in the log, want one", seq, len(at))
		}
	}
}
