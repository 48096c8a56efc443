package inbox

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/outbox/inbox"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// restored is an epoch that began with a restore of the source.
const restored = 1_800_000_000

// withEpochs is totals with a column for epochs.
var withEpochs = strings.Replace(totals, "applied_seq bigint static", "applied_seq bigint static, applied_epoch bigint static", 1)

// event is an event of an aggregate; its id is that of no other one.
func event(id string, epoch, seq int64) inbox.Event {
	return inbox.Event{Key: inbox.Key{id}, Epoch: epoch, Sequence: seq, ID: fmt.Sprint(epoch, "/", seq)}
}

// note appends a number to the history of an aggregate, which events of a restored source have
// with a minus.
func note(e inbox.Event) func(*gocql.Batch) error {
	return func(b *gocql.Batch) error {
		n := e.Sequence
		if e.Epoch == restored {
			n = -n
		}
		b.Query("UPDATE totals SET history = history + ? WHERE id = ?", []int64{n}, e.Key[0])
		return nil
	}
}

// mustNote checks the effects of note.
func mustNote(t *testing.T, s *gocql.Session, id string, want ...int64) {
	t.Helper()
	var history []int64
	if err := s.Query("SELECT history FROM totals WHERE id = ? LIMIT 1", id).Consistency(gocql.Serial).Scan(&history); err != nil || !slices.Equal(history, want) {
		t.Errorf("%s has the effects %v, %v; want %v", id, history, err, want)
	}
}

// The source was restored to event 2 of the aggregates, and their numbers begin again with 3 in a
// new epoch. Every new event is applied, once and in order; events that the restore has undone are
// not applied after them.
func TestFence_Epochs(t *testing.T) {
	const gap = inbox.Unknown
	type delivery struct {
		epoch, seq int64
		want       inbox.Outcome
	}
	for name, c := range map[string]struct {
		order      inbox.Order
		deliveries []delivery
		history    []int64
	}{
		"events were undone": {inbox.FromOne, []delivery{
			{0, 1, inbox.Applied},
			{0, 2, inbox.Applied},
			{0, 3, inbox.Applied},
			{0, 4, inbox.Applied},
			{0, 5, inbox.Applied},
			{restored, 3, inbox.Applied},
			{restored, 3, inbox.Duplicate},
			{0, 5, inbox.Duplicate},
			{0, 6, inbox.Duplicate},
			{restored, 5, gap},
			{restored, 4, inbox.Applied},
		}, []int64{1, 2, 3, 4, 5, -3, -4}},
		"none was undone": {inbox.FromOne, []delivery{
			{0, 1, inbox.Applied}, {0, 2, inbox.Applied}, {restored, 4, gap}, {restored, 3, inbox.Applied}, {restored, 4, inbox.Applied},
		}, []int64{1, 2, -3, -4}},
		"the consumer is behind": {inbox.FromOne, []delivery{
			{0, 1, inbox.Applied}, {restored, 3, gap}, {0, 2, inbox.Applied}, {restored, 3, inbox.Applied}, {0, 3, inbox.Duplicate},
		}, []int64{1, 2, -3}},
		"a new aggregate": {inbox.FromOne, []delivery{{restored, 2, gap}, {restored, 1, inbox.Applied}, {restored, 2, inbox.Applied}}, []int64{-1, -2}},
		"another restore": {inbox.FromOne, []delivery{
			{0, 1, inbox.Applied}, {restored - 1, 2, inbox.Applied}, {restored - 1, 3, inbox.Applied}, {restored, 2, inbox.Applied}, {restored - 1, 3, inbox.Duplicate},
		}, []int64{1, 2, 3, -2}},
		"from any": {inbox.FromAny, []delivery{
			{0, 7, inbox.Applied}, {0, 8, inbox.Applied}, {restored, 7, inbox.Applied}, {0, 9, inbox.Duplicate}, {restored, 9, gap}, {restored, 8, inbox.Applied},
		}, []int64{7, 8, -7, -8}},
		"increasing": {inbox.Increasing, []delivery{
			{0, 1, inbox.Applied}, {0, 9, inbox.Applied}, {restored, 3, inbox.Applied}, {0, 10, inbox.Duplicate}, {restored, 3, inbox.Duplicate}, {restored, 7, inbox.Applied},
		}, []int64{1, 9, -3, -7}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, []string{withEpochs}, func(t *testing.T, w world.World) {
				f := newFence(t, w.Session, inbox.FenceConfig{Table: "totals", Order: c.order})
				var last inbox.Event
				for i, d := range c.deliveries {
					e := event("a", d.epoch, d.seq)
					got, err := f.Apply(t.Context(), e, note(e))
					_, missing := errors.AsType[*inbox.GapError](err)
					if got != d.want || missing != (got == gap) || !missing && err != nil {
						t.Errorf("delivery %d, event %d of epoch %d = %s, %v; want %s", i, d.seq, d.epoch, got, err, d.want)
					}
					if got == inbox.Applied {
						last = e
					}
				}
				mustNote(t, w.Session, "a", c.history...)
				if e, err := f.Last(t.Context(), inbox.Key{"a"}); e.Sequence != last.Sequence || e.Epoch != last.Epoch || err != nil {
					t.Errorf("Last() = %+v, %v; want %+v", e, err, last)
				}
			})
		})
	}
}

// The first events of an epoch whose responses are lost are applied once.
func TestFence_EpochsWithLostResponses(t *testing.T) {
	for name, fate := range map[string]engine.Fate{"applied": engine.FateApply, "lost": engine.FateNormal, "decided": engine.FateDecided} {
		for _, order := range []inbox.Order{inbox.FromOne, inbox.FromAny, inbox.Increasing} {
			t.Run(fmt.Sprint(name, order), func(t *testing.T) {
				bubble(t, []string{withEpochs}, func(t *testing.T, w world.World) {
					f := newFence(t, w.Session, inbox.FenceConfig{Table: "totals", Order: order})
					for _, e := range []inbox.Event{event("a", 0, 1), event("a", 0, 2), event("a", 0, 3), event("a", restored, 2), event("a", restored, 3)} {
						casTimeout(w, fate)
						for _, want := range []inbox.Outcome{inbox.Applied, inbox.Duplicate} {
							if got, err := f.Apply(t.Context(), e, note(e)); got != want || err != nil {
								t.Errorf("event %s = %s, %v; want %s", e.ID, got, err, want)
							}
						}
					}
					mustNote(t, w.Session, "a", 1, 2, 3, -2, -3)
				})
			})
		}
	}
}

// Two consumers own a partition: one delivers the events that the restore has undone, the other the
// new events. No undone event is applied after a new one.
func TestFence_EpochsWithTwoOwners(t *testing.T) {
	bubble(t, []string{withEpochs}, func(t *testing.T, w world.World) {
		const n, kept = 6, 2
		for a := range 20 {
			id := fmt.Sprint("aggregate ", a)
			deliver := func(e inbox.Event) (err error) {
				f := newFence(t, w.Session, inbox.FenceConfig{Table: "totals"})
				_, err = f.Apply(t.Context(), e, note(e))
				return err
			}
			for seq := int64(1); seq <= kept; seq++ {
				if err := deliver(event(id, 0, seq)); err != nil {
					t.Fatal(err)
				}
			}
			var both sync.WaitGroup
			for _, epoch := range []int64{0, restored} {
				both.Go(func() {
					for seq := int64(kept + 1); seq <= n; seq++ {
						if err := deliver(event(id, epoch, seq)); err != nil {
							t.Errorf("event %d of epoch %d: %v", seq, epoch, err)
						}
					}
				})
			}
			both.Wait()
			var history []int64
			if err := w.Session.Query("SELECT history FROM totals WHERE id = ? LIMIT 1", id).Consistency(gocql.Serial).Scan(&history); err != nil {
				t.Fatal(err)
			}
			undone := len(history) - (n - kept)
			if undone < kept || !slices.Equal(history[:max(undone, 0)], numbers(int64(undone))) || !slices.Equal(history[undone:], []int64{-3, -4, -5, -6}) {
				t.Errorf("%s has the effects %v", id, history)
			}
		}
	})
}

// A row that is written again in an epoch and published again has its event's id: it is applied
// once. Another event with the number, also in the epoch of the mark, is distinguished from it.
func TestFence_EpochsOfOneEvent(t *testing.T) {
	withID := strings.Replace(withEpochs, "applied_seq bigint static", "applied_seq bigint static, applied_id text static", 1)
	bubble(t, []string{withID}, func(t *testing.T, w world.World) {
		f := newFence(t, w.Session, inbox.FenceConfig{Table: "totals"})
		again := event("a", 0, 2)
		again.Epoch = restored
		other := event("a", restored, 2)
		other.ID = "another"
		for _, c := range []struct {
			e    inbox.Event
			want inbox.Outcome
		}{
			{event("a", 0, 1), inbox.Applied},
			{event("a", 0, 2), inbox.Applied},
			{again, inbox.Duplicate},
			{event("a", 0, 2), inbox.Duplicate},
			{event("a", restored, 2), inbox.Applied},
			{other, inbox.Unknown},
		} {
			got, err := f.Apply(t.Context(), c.e, note(c.e))
			if _, conflict := errors.AsType[*inbox.ConflictError](err); got != c.want || conflict != (got == inbox.Unknown) || !conflict && err != nil {
				t.Errorf("event %s as %d of epoch %d = %s, %v; want %s", c.e.ID, c.e.Sequence, c.e.Epoch, got, err, c.want)
			}
		}
		mustNote(t, w.Session, "a", 1, 2, -2)
	})
}

// Skip passes over events of an epoch, and of no other.
func TestFence_SkipInAnEpoch(t *testing.T) {
	bubble(t, []string{withEpochs}, func(t *testing.T, w world.World) {
		f := newFence(t, w.Session, inbox.FenceConfig{Table: "totals"})
		for _, c := range []struct{ skip, want inbox.Event }{
			{event("a", 0, 5), event("a", 0, 5)},
			{event("a", restored, 3), event("a", restored, 3)},
			{event("a", restored, 2), event("a", restored, 3)},
			{event("a", 0, 9), event("a", restored, 3)},
		} {
			if err := f.Skip(t.Context(), c.skip); err != nil {
				t.Fatal(err)
			}
			if e, err := f.Last(t.Context(), inbox.Key{"a"}); e.Sequence != c.want.Sequence || e.Epoch != c.want.Epoch || err != nil {
				t.Errorf("after Skip(%s) the last event is %+v, %v; want %s", c.skip.ID, e, err, c.want.ID)
			}
		}
	})
}

// A table without a column for epochs refuses the first event of an epoch and names the statement
// that adds one. The mark of before has no epoch. The mark of a second source has its own column.
func TestFence_EpochsNeedAColumn(t *testing.T) {
	bubble(t, []string{totals, "CREATE TABLE customers (id text PRIMARY KEY, history list<bigint>, applied_epoch bigint, from_orders bigint)"}, func(t *testing.T, w world.World) {
		for _, c := range []struct {
			cfg  inbox.FenceConfig
			want string
		}{
			{inbox.FenceConfig{Table: "totals"}, "run ALTER TABLE outbox.totals ADD applied_epoch bigint static and restart"},
			{inbox.FenceConfig{Table: "customers", Column: "from_orders"}, `run ALTER TABLE outbox.customers ADD from_orders_epoch bigint and set EpochColumn to "from_orders_epoch"`},
		} {
			f := newFence(t, w.Session, c.cfg)
			e := event("a", 0, 1)
			if got, err := f.Apply(t.Context(), e, nil); got != inbox.Applied || err != nil {
				t.Errorf("event %s = %s, %v", e.ID, got, err)
			}
			e = event("a", restored, 1)
			want := fmt.Sprintf("inbox: event 1 of outbox.%s [a]: it is of epoch %d, and the mark has no column for epochs: %s", c.cfg.Table, restored, c.want)
			if got, err := f.Apply(t.Context(), e, nil); got != inbox.Unknown || err == nil || err.Error() != want {
				t.Errorf("event %s = %s, %v\nwant %s", e.ID, got, err, want)
			}
			alter, column, _ := strings.Cut(strings.TrimPrefix(c.want, "run "), " and ")
			run(t, w.Session, alter)
			if _, name, ok := strings.Cut(column, " to "); ok {
				c.cfg.EpochColumn = strings.Trim(name, `"`)
			}
			f = newFence(t, w.Session, c.cfg)
			for _, e := range []inbox.Event{event("a", 0, 2), event("a", restored, 2)} {
				if got, err := f.Apply(t.Context(), e, nil); got != inbox.Applied || err != nil {
					t.Errorf("after %s event %s = %s, %v", alter, e.ID, got, err)
				}
			}
		}
		f := newFence(t, w.Session, inbox.FenceConfig{Table: "totals"})
		if got, err := f.Apply(t.Context(), event("a", -1, 3), nil); got != inbox.Unknown || err == nil {
			t.Errorf("an event of epoch -1 = %s, %v; want an error", got, err)
		}
	})
}
