package releases

import (
	"context"
	"errors"
	"slices"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
)

// rest executes statements that operators and failing consumers cause, and that the story of
// what releases wrote leaves out.
func (w *world) rest() {
	ctx := w.t.Context()

	shards := &relay.Agreement{Session: w.session, Keyspace: keyspace, Name: "shared"}
	if n := must1[int](w)(shards.AgreeOn(ctx, 4)); n != 4 {
		w.t.Errorf("agreed on %d shards, want 4", n)
	}
	for _, change := range [][2]int{{4, 8}, {8, 0}} {
		if n := must1[int](w)(shards.Change(ctx, change[0], change[1], "operator")); n != change[1] {
			w.t.Errorf("shards = %d, want %d", n, change[1])
		}
	}
	must1[[]string](w)(shards.Alive(ctx))

	repairs := relay.NewRepairs(w.session, keyspace, "outbox", outbox.DefaultTableName)
	asked := relay.Repair{ID: named("repair"), Aggregate: named("repaired"), EventID: named("event"), Sequence: 1}
	w.must(repairs.Ask(ctx, &asked))
	if taken := must1[bool](w)(repairs.Take(ctx, asked.ID)); !taken {
		w.t.Error("a repair that nobody has taken was not taken")
	}
	if all := must1[[]relay.Repair](w)(repairs.All(ctx)); len(all) != 1 {
		w.t.Errorf("repairs %+v, want one", all)
	}
	w.must(repairs.Forget(ctx, asked.ID))

	o, failed := once(w), errors.New("the effect failed")
	effect := func(err error) ([]byte, bool, error) {
		return o.Do(ctx, "mail-of-rest", func(context.Context) ([]byte, error) { return []byte("sent"), err })
	}
	if _, _, err := effect(failed); !errors.Is(err, failed) {
		w.t.Errorf("error of a failed effect = %v", err)
	}
	for _, want := range []bool{true, false} {
		result, first, err := effect(nil)
		if w.must(err); string(result) != "sent" || first != want {
			w.t.Errorf("result %q, first %t, want sent, %t", result, first, want)
		}
	}

	brief := subscriptions.Subscription{Name: "brief", Topics: []string{"Moved"}}
	r, err := w.subs.Put(ctx, brief.WithDefaults(), "operator")
	w.must(err)
	w.must(w.subs.Report(ctx, r.Name, subscriptions.InstanceStatus{Instance: "one"}))
	instances, err := w.subs.Instances(ctx, r.Name)
	if w.must(err); !slices.ContainsFunc(instances, func(i subscriptions.InstanceStatus) bool { return i.Instance == "one" }) {
		w.t.Errorf("instances %+v, want one", instances)
	}
	w.must(w.subs.Leave(ctx, r.Name, "one"))
	w.must(w.subs.Delete(ctx, r.Name, r.Version, "operator"))
	deleted, err := w.subs.Deleted(ctx)
	if w.must(err); len(deleted) == 0 {
		w.t.Error("no deleted subscription is listed")
	}
	for _, d := range deleted {
		w.must(w.subs.Clean(ctx, d.Incarnation))
	}
	if _, err := w.subs.Get(ctx, r.Name); err == nil {
		w.t.Error("a deleted subscription is still there")
	}
	must1[int](w)(w.deadLetters.Tidy(ctx))
	var unknown gocql.UUID
	if err := w.deadLetters.Forget(ctx, unknown); err == nil {
		w.t.Error("a dead letter that does not exist was forgotten")
	}
}
