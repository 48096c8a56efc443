package reacting

import (
	"fmt"
	"slices"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/scylla-outbox/scylla-outbox/outbox/kafkarecord"
	"github.com/scylla-outbox/scylla-outbox/react"
	"github.com/scylla-outbox/scylla-outbox/react/delivery"
	"github.com/scylla-outbox/scylla-outbox/test/sim/line"
)

// judge holds what came of all events, at all rules, to what react promises.
func (w *world) judge() {
	s := new(line.Line).Connect(w.t, w.node)
	defer s.Close()
	store := w.store(s)
	for i := range rules {
		r := &rules[i]
		rows := w.rows(store, r)
		calls := make(map[string][]*call)
		for _, c := range w.ledger.of(r.Name) {
			calls[c.event] = append(calls[c.event], c)
		}
		for id, e := range w.events {
			w.judgeEvent(r, e, rows[id], calls[id])
		}
		if r.Order != react.OrderNone {
			w.judgeOrder(r, rows, calls)
		}
		w.judgeVisible(store, r, rows)
		w.judgeOffsets(r)
	}
	reports, err := store.Reports(w.t.Context())
	stopped := 0
	for _, r := range reports {
		if r.Instance == "last/1" && r.State == delivery.Stopped && r.Waiting == 0 {
			stopped++
		}
	}
	if err != nil || stopped != len(rules) {
		w.t.Errorf("the last process says so of %d rules that it stopped, %v", stopped, err)
	}
}

// rows are the deliveries of a rule by event.
func (w *world) rows(store *delivery.Store, r *react.Rule) map[string]*delivery.Delivery {
	out := make(map[string]*delivery.Delivery)
	for id, e := range w.events {
		d, err := store.Read(w.t.Context(), delivery.NewID(r.Name, &kafkarecord.Event{ID: e.id}))
		if err != nil {
			w.t.Errorf("%s at %s: %v; it is lost, or not to be seen", id, r.Name, err)
			continue
		}
		out[id] = d
	}
	return out
}

// judgeEvent: each event is delivered, or failed for a reason, and its row says so.
func (w *world) judgeEvent(r *react.Rule, e *event, d *delivery.Delivery, calls []*call) {
	if d == nil {
		return
	}
	n := map[outcome]int{}
	lives := map[string]int{}
	for _, c := range calls {
		n[c.outcome]++
		if c.outcome == taken {
			lives[c.life]++
		}
		if c.delivery != d.ID.String() {
			w.t.Errorf("%s at %s was called with the delivery id %s and %s", e.id, r.Name, c.delivery, d.ID)
		}
		if c.attempt > r.Attempts && r.Attempts > 0 {
			w.t.Errorf("%s at %s: attempt %d of %d", e.id, r.Name, c.attempt, r.Attempts)
		}
	}
	what := fmt.Sprintf("%s at %s is %s after %v", e.id, r.Name, d.State, n)
	last := delivery.Try{Error: "none"}
	if len(d.Tries) > 0 {
		last = d.Tries[len(d.Tries)-1]
	}
	switch d.State {
	case delivery.Delivered:
		if n[taken] == 0 || last.Error != "" {
			w.t.Errorf("%s; its last attempt is %+v", what, last)
		}
	case delivery.Failed:
		// An attempt that was open when its process died may not have been counted.
		if n[forGood] == 0 && n[refused]+n[open] < r.Attempts || last.Error == "" || r.Name == "clear" {
			w.t.Errorf("%s; its last attempt is %+v", what, last)
		}
	default:
		w.t.Errorf("%s in the end", what)
	}
	// No partition goes to another process: only one that ended forgets.
	for life, n := range lives {
		if n > 1 {
			w.t.Errorf("%s: %s delivered it %d times", what, life, n)
		}
	}
}

// judgeOrder: the events of an aggregate come in the order of their topic. A first
// call comes after all that was before it was taken, or given up; and no two calls of
// one process are for one aggregate at the same time.
func (w *world) judgeOrder(r *react.Rule, rows map[string]*delivery.Delivery, calls map[string][]*call) {
	for lane, events := range w.lanes {
		var byLife []*call
		for i, e := range events {
			byLife = append(byLife, calls[e.id]...)
			if len(calls[e.id]) == 0 {
				continue
			}
			began := calls[e.id][0].began
			for _, before := range events[:i] {
				if !settled(rows[before.id], calls[before.id], began) {
					w.t.Errorf("%s at %s: %s came at %s, before %s was settled", lane, r.Name, e.id, began.Format(time.StampMilli), before.id)
				}
			}
		}
		slices.SortStableFunc(byLife, func(a, b *call) int { return a.began.Compare(b.began) })
		last := make(map[string]*call)
		for _, c := range byLife {
			if was := last[c.life]; was != nil && was.outcome != open && was.ended.After(c.began) {
				w.t.Errorf("%s at %s: %s called for %s while it was under way for %s", lane, r.Name, c.life, c.event, was.event)
			}
			last[c.life] = c
		}
	}
}

// settled tells whether a delivery was over at a time: taken, or given up.
func settled(d *delivery.Delivery, calls []*call, at time.Time) bool {
	for _, c := range calls {
		if c.outcome == taken && !c.ended.After(at) {
			return true
		}
	}
	if d == nil || d.State != delivery.Failed {
		return false
	}
	return !slices.ContainsFunc(calls, func(c *call) bool { return !c.began.Before(at) })
}

// judgeVisible: whoever looks finds each delivery, where it stands and nowhere else.
func (w *world) judgeVisible(store *delivery.Store, r *react.Rule, rows map[string]*delivery.Delivery) {
	want := make(map[delivery.State]int)
	for _, d := range rows {
		want[d.State]++
	}
	for _, f := range []delivery.Filter{
		{Rule: r.Name}, {Plugin: r.To}, {Rule: r.Name, State: delivery.Failed}, {Rule: r.Name, State: delivery.Delivered}, {Plugin: r.To, State: delivery.Pending},
	} {
		seen := make(map[gocql.UUID]bool)
		err := store.List(w.t.Context(), f, func(d *delivery.Delivery) error {
			if seen[d.ID] {
				w.t.Errorf("%+v lists %s twice", f, d.ID)
			}
			seen[d.ID] = true
			return nil
		})
		n := want[f.State]
		if f.State == "" {
			n = len(rows)
		}
		if err != nil || len(seen) != n {
			w.t.Errorf("%+v lists %d deliveries, want %d, %v", f, len(seen), n, err)
		}
	}
}

// judgeOffsets: all that the topics have is committed.
func (w *world) judgeOffsets(r *react.Rule) {
	admin := kadm.NewClient(w.producer)
	offsets, err := admin.FetchOffsets(w.t.Context(), react.DefaultGroup+"."+r.Name)
	if err != nil {
		w.t.Fatal(err)
	}
	ends, err := admin.ListEndOffsets(w.t.Context(), topics...)
	if err != nil {
		w.t.Fatal(err)
	}
	ends.Each(func(end kadm.ListedOffset) {
		at, _ := offsets.Lookup(end.Topic, end.Partition)
		if end.Offset > 0 && at.At != end.Offset {
			w.t.Errorf("%s has committed %s[%d] up to %d of %d", r.Name, end.Topic, end.Partition, at.At, end.Offset)
		}
	})
}

// total is what went wrong in all seeds.
type total struct{ events, calls, deaths, troubles, failed, again int }

func (t *total) add(w *world) {
	t.events += len(w.events)
	t.deaths += int(w.deaths.Load())
	t.troubles += int(w.troubles.Load())
	for _, r := range rules {
		times := make(map[string]int)
		for _, c := range w.ledger.of(r.Name) {
			t.calls++
			switch c.outcome {
			case taken:
				if times[c.event]++; times[c.event] == 2 {
					t.again++
				}
			case forGood:
				t.failed++
			}
		}
	}
}

func (t *total) String() string {
	return fmt.Sprintf("%d events, %d calls, %d deaths of processes, %d troubles of the database, %d given up for good at once, %d delivered again", t.events, t.calls, t.deaths, t.troubles, t.failed, t.again)
}
