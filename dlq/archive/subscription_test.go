package archive

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/dlq/jobs"
	"github.com/scylla-outbox/scylla-outbox/outbox"
)

const inventory = "subscription.inventory"

// ofSubscription writes n dead letters of a subscription, each of a key of its own. Their
// ids are derived from names, and every third is a record without event type, key and
// time, as any producer writes them.
func (b *fixture) ofSubscription(n int) (ids []gocql.UUID) {
	b.Helper()
	for i := range n {
		l := &dlq.DeadLetter{
			Table: inventory, EventID: outbox.NameID(gocql.UUID{1}, "inventory", fmt.Sprint(i)).UUID(), AggregateID: fmt.Sprint("key-", i), EventType: "OrderCreated",
			Payload: fmt.Appendf(nil, `{"n":%d}`, i), Topic: "orders", Status: dlq.Suspended, Attempts: 3, ErrorClass: "max_receive", ErrorText: "the consumer answered 500",
			FirstFailedAt: at(b.now.Load()), WrittenAt: 1_700_000_000_000_000 + int64(i), Metadata: map[string]string{"partition": "0", "offset": fmt.Sprint(i)},
		}
		if i%3 == 2 {
			l.EventType, l.AggregateID = "", ""
		}
		for range 2 { // a repetition after a crash finds it
			st, err := b.store.Write(b.Context(), l)
			b.must(err)
			if st != dlq.Suspended {
				b.Fatalf("Write() = %s", st)
			}
		}
		ids = append(ids, l.EventID)
	}
	return ids
}

// All that operators do works with the dead letters of a subscription, and neither lists,
// requests nor chains of the relay's table contain them.
func TestSubscription_EverythingWorks(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	relays := b.write("a", 1, dlq.Suspended)
	ids := b.ofSubscription(9)
	b.advance(time.Second)
	list := func(f dlq.Filter) (got []gocql.UUID) {
		t.Helper()
		b.must(b.store.List(t.Context(), f, func(l *dlq.DeadLetter) error { got = append(got, l.EventID); return nil }))
		return got
	}
	of := dlq.Filter{Table: inventory}
	if got := list(of); len(got) != 9 || slices.Contains(got, relays) {
		t.Errorf("the subscription has %d dead letters, want 9", len(got))
	}
	if got := list(dlq.Filter{Table: inventory, ErrorClass: "max_receive", EventType: "OrderCreated"}); len(got) != 6 {
		t.Errorf("6 dead letters have an event type, listed %d", len(got))
	}
	chains := make(map[string]int)
	b.must(b.store.Chains(t.Context(), inventory, func(e dlq.ChainEntry) error { chains[e.AggregateID]++; return nil }))
	if len(chains) != 7 || chains[""] != 3 || chains["key-0"] != 1 {
		t.Errorf("chains %v", chains)
	}
	if chain, err := b.store.Chain(t.Context(), inventory, ""); err != nil || len(chain) != 3 || chain[0].EventID != ids[2] {
		t.Errorf("the chain of records without a key: %+v, %v", chain, err)
	}

	// Jobs change the dead letters of the subscription alone, and leave requests for its engine.
	spec := jobs.Spec{Action: dlq.ActionReplay, Filter: of, Limit: 4, ByPriority: true, Follow: -1}
	b.must(b.store.Set(t.Context(), ids[5], dlq.Labels{Priority: new(9), AddTags: []string{"vip"}}, eve))
	if p, may, err := b.jobs().Preview(t.Context(), &spec, []dlq.DeadLetter{b.read(ids[5])}); err != nil || p.DeadLetters != 1 || len(may) != 1 || p.ByTopic["orders"] != 1 {
		t.Errorf("preview %+v, %v", p, err)
	}
	j := b.job(spec)
	if j.Progress.Changed != 4 || j.IDs[0] != ids[5] {
		t.Errorf("replay: %+v of %v", j.Progress, j.IDs)
	}
	requests, err := b.store.Requests(t.Context(), inventory, nil)
	b.must(err)
	if len(requests) != 4 || !slices.ContainsFunc(requests, func(r dlq.Request) bool { return r.EventID == ids[5] && r.Action == dlq.ActionReplay }) {
		t.Errorf("requests %+v", requests)
	}
	if other, err := b.store.Requests(t.Context(), "outbox.outbox_messages", nil); err != nil || len(other) != 0 {
		t.Errorf("the relay has requests %+v, %v", other, err)
	}
	b.must(b.store.Done(t.Context(), requests...))

	// The engine delivers one of them again, and fails with another.
	claimed, err := b.store.Claim(t.Context(), ids[5], "engine", time.Minute)
	b.must(err)
	if string(claimed.Payload) != `{"n":5}` {
		t.Errorf("claimed %q", claimed.Payload)
	}
	b.must(b.store.Resolve(t.Context(), ids[5], "engine", dlq.Outcome{Kind: dlq.OutcomeReplayed, Note: "acknowledged"}))
	again := requests[slices.IndexFunc(requests, func(r dlq.Request) bool { return r.EventID != ids[5] })].EventID
	_, err = b.store.Claim(t.Context(), again, "engine", time.Minute)
	b.must(err)
	if st, err := b.store.Fail(t.Context(), again, "engine", dlq.Failure{Class: "max_receive", Text: "the consumer answered 500", Final: true}); err != nil || st != dlq.Suspended {
		t.Errorf("Fail() = %s, %v", st, err)
	}

	// An edit, also of a record without event type and key.
	for _, id := range []gocql.UUID{ids[0], ids[8]} {
		edited, err := b.store.Edit(t.Context(), id, dlq.Edit{Payload: []byte(`{"n":"edited"}`)}, eve, 0)
		b.must(err)
		if l := b.read(id); l.EditedID != edited || string(l.Content().Payload) != `{"n":"edited"}` || l.Status != dlq.Pending {
			t.Errorf("edited: %s %q", l.Status, l.Content().Payload)
		}
	}

	// Discard, with words that fit.
	b.must(b.store.Discard(t.Context(), ids[8], eve))
	h, err := b.store.History(t.Context(), ids[8])
	b.must(err)
	if text := h[len(h)-1].Outcome; !strings.Contains(text, "is never delivered") || strings.Contains(text, "published") {
		t.Errorf("history %q", text)
	}
	repeated := b.read(ids[8])
	repeated.Status = dlq.Suspended
	if st, err := b.store.Write(t.Context(), &repeated); err != nil || st != dlq.Resolved {
		t.Errorf("Write() of a discarded one = %s, %v", st, err)
	}

	// Retention archives and a job restores them, byte for byte.
	before, err := b.store.Copy(t.Context(), ids[8])
	b.must(err)
	b.advance(DefaultResolved + time.Minute)
	if r := b.sweep(); r.Archived[dlq.Resolved] != 2 {
		t.Errorf("sweep: %+v", r)
	}
	if l := b.read(ids[8]); l.Status != dlq.Archived || l.Payload != nil || l.Table != inventory {
		t.Errorf("the outline: %+v", l)
	}
	if j := b.job(jobs.Spec{Action: dlq.ActionRestore, IDs: []gocql.UUID{ids[5], ids[8]}}); j.Progress.Changed != 2 {
		t.Errorf("restore: %+v", j.Progress)
	}
	after := b.read(ids[8])
	if string(after.Payload) != string(before.DeadLetter.Payload) || after.Status != dlq.Resolved || after.Outcome.Kind != dlq.OutcomeDiscarded || after.Edit == nil {
		t.Errorf("restored: %+v", after)
	}
	if l := b.read(ids[5]); l.Priority != 9 || !slices.Equal(l.Tags, []string{"vip"}) {
		t.Errorf("restored with %d %v", l.Priority, l.Tags)
	}
	if got := list(dlq.Filter{Table: inventory, Status: []dlq.Status{dlq.Resolved}}); len(got) != 2 {
		t.Errorf("%d resolved dead letters of the subscription, want 2", len(got))
	}
	if l := b.read(relays); l.Version != 1 {
		t.Errorf("the relay's dead letter was changed: %+v", l)
	}
}
