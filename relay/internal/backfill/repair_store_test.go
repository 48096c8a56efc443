package backfill

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/fence"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
	"github.com/scylla-outbox/scylla-outbox/test/virtual"
)

// newRepairs returns the requests to a relay in an empty database.
func newRepairs(t *testing.T) (*Repairs, *scyllafake.Server) {
	t.Helper()
	db, err := scyllafake.Start(scyllafake.Config{Tokens: 4})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	relaytest.Migrate(t, db)
	session := relaytest.Connect(t, db, "outbox", true)
	t.Cleanup(session.Close)
	return NewRepairs(session, "outbox", "r", "outbox.outbox_messages"), db
}

// ask stores a request for an event of an aggregate.
func ask(t *testing.T, r *Repairs, aggregate int) Repair {
	t.Helper()
	q := Repair{Aggregate: relaytest.Aggregate(aggregate), EventID: relaytest.EventID(aggregate), Sequence: 3, Detail: "of before"}
	if err := r.Ask(t.Context(), &q); err != nil {
		t.Fatal(err)
	}
	return q
}

// readStored returns the stored request with an id.
func readStored(t *testing.T, r *Repairs, id gocql.UUID) (Repair, bool) {
	t.Helper()
	all, err := r.All(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(q Repair) bool { return q.ID == id })
	if i < 0 {
		return Repair{}, false
	}
	return all[i], true
}

// A request has one answer, and the relay takes it once.
func TestRepairs_AreAnsweredOnce(t *testing.T) {
	t.Parallel()
	r, _ := newRepairs(t)
	q, other := ask(t, r, 1), ask(t, r, 2)
	if got, ok := readStored(t, r, q.ID); !ok || got != q || q.State != RepairAsked || q.Detail != "" || q.ID == other.ID {
		t.Errorf("stored %+v, want %+v", got, q)
	}
	for i, want := range []bool{true, false} {
		if taken, err := r.Take(t.Context(), q.ID); err != nil || taken != want {
			t.Errorf("Take() %d = %v, %v, want %v", i, taken, err, want)
		}
	}
	if done, err := r.Answer(t.Context(), q.ID, RepairAsked, RepairGone, "late"); err != nil || done {
		t.Errorf("Answer() = %v, %v of a request that is taken, want no change", done, err)
	}
	if done, err := r.Answer(t.Context(), q.ID, RepairTaken, RepairPublished, "why"); err != nil || !done {
		t.Errorf("Answer() = %v, %v, want a change", done, err)
	}
	if got, _ := readStored(t, r, q.ID); got.State != RepairPublished || got.Detail != "why" || !got.State.Final() {
		t.Errorf("stored %+v, want it published", got)
	}
	for range 2 { // the second finds none
		if err := r.Forget(t.Context(), q.ID); err != nil {
			t.Fatal(err)
		}
	}
	if _, ok := readStored(t, r, q.ID); ok {
		t.Error("the request is stored after Forget")
	}
	if taken, err := r.Take(t.Context(), q.ID); err != nil || taken {
		t.Errorf("Take() = %v, %v of a deleted request, want false", taken, err)
	}
	for _, elsewhere := range []*Repairs{
		NewRepairs(r.session, "outbox", "another", "outbox.outbox_messages"), NewRepairs(r.session, "outbox", "r", "outbox.another"),
	} {
		if all, err := elsewhere.All(t.Context()); err != nil || len(all) != 0 {
			t.Errorf("All() = %+v, %v of relay %s for table %s, want none", all, err, elsewhere.relay, elsewhere.table)
		}
	}
	if got, ok := readStored(t, r, other.ID); !ok || got != other || got.State.Final() || RepairTaken.Final() {
		t.Errorf("the other request is %+v, want %+v", got, other)
	}
}

type closedFence struct{}

func (closedFence) Check() error { return errors.New("the shard is lost") }

// Errors of the database are returned, and behind the fence nothing is answered.
func TestRepairs_ReturnErrors(t *testing.T) {
	t.Parallel()
	r, db := newRepairs(t)
	q := ask(t, r, 1)
	fenced := *r
	fenced.Fence = closedFence{}
	if taken, err := fenced.Take(t.Context(), q.ID); taken || !errors.Is(err, fence.ErrWrite) {
		t.Errorf("Take() = %v, %v behind the fence, want %v", taken, err, fence.ErrWrite)
	}
	if done, err := fenced.Answer(t.Context(), q.ID, RepairAsked, RepairGone, ""); done || err == nil {
		t.Errorf("Answer() = %v, %v behind the fence, want an error", done, err)
	}
	id := db.Faults().MustAdd(faults.Rule{Name: "no requests", Match: faults.Match{Table: "relay_repairs"}, Effect: faults.Effect{Failure: faults.Unavailable(2, 1)}})
	for name, call := range map[string]func() error{
		"All": func() error {
			_, err := r.All(t.Context())
			return err
		},
		"Ask":    func() error { return r.Ask(t.Context(), &Repair{EventID: q.EventID, Aggregate: q.Aggregate}) },
		"Forget": func() error { return r.Forget(t.Context(), q.ID) },
		"Take": func() error {
			_, err := r.Take(t.Context(), q.ID)
			return err
		},
		"Publish": func() error {
			_, err := r.Publish(t.Context(), []Repair{{EventID: q.EventID, Aggregate: q.Aggregate}}, time.Now())
			return err
		},
	} {
		if err := call(); err == nil {
			t.Errorf("%s() error = nil without the table", name)
		}
	}
	if err := db.Faults().Remove(id); err != nil {
		t.Fatal(err)
	}
	db.Faults().MustAdd(faults.Rule{
		Name: "no reads", Match: faults.Match{Table: "relay_repairs", Kinds: []engine.OpKind{engine.OpRead}}, Effect: faults.Effect{Failure: faults.Unavailable(2, 1)},
	})
	if taken, err := r.Take(t.Context(), q.ID); taken || err == nil {
		t.Errorf("Take() = %v, %v without the read that confirms it, want an error", taken, err)
	}
}

// A requester returns the answers that are there at the deadline, deletes its own requests, and
// waits for the requests of others without deleting them.
func TestRepairs_Publish(t *testing.T) {
	t.Parallel()
	r, _ := newRepairs(t)
	other := ask(t, r, 1)
	if done, err := r.Answer(t.Context(), other.ID, RepairAsked, RepairTaken, ""); err != nil || !done {
		t.Fatal(done, err)
	}
	final := ask(t, r, 2) // a former request with an answer is no request
	if done, err := r.Answer(t.Context(), final.ID, RepairAsked, RepairUnknown, ""); err != nil || !done {
		t.Fatal(done, err)
	}
	events := []Repair{{EventID: other.EventID, Aggregate: other.Aggregate, Sequence: 3}, {EventID: final.EventID, Aggregate: final.Aggregate, Sequence: 3}}
	answers, err := r.Publish(t.Context(), events, time.Now().Add(-time.Second))
	if err != nil || len(answers) != 2 {
		t.Fatalf("Publish() = %+v, %v, want two answers", answers, err)
	}
	states := make(map[gocql.UUID]RepairState)
	for _, a := range answers {
		states[a.EventID] = a.State
	}
	if states[other.EventID] != RepairTaken || states[final.EventID] != RepairAsked {
		t.Errorf("states = %v, want taken and asked", states)
	}
	all, err := r.All(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 2 || !slices.ContainsFunc(all, func(q Repair) bool { return q.ID == other.ID }) || !slices.ContainsFunc(all, func(q Repair) bool { return q.ID == final.ID }) {
		t.Errorf("stored %+v, want the requests of others alone", all)
	}
}

// A requester waits for an answer. It is unknown if another requester deleted its request.
func TestRepairs_PublishWaits(t *testing.T) {
	virtual.Run(t, func(t *testing.T) {
		r, _ := newRepairs(t)
		other := ask(t, r, 1)
		events := []Repair{{EventID: other.EventID, Aggregate: other.Aggregate, Sequence: 3}, {EventID: relaytest.EventID(2), Aggregate: relaytest.Aggregate(2), Sequence: 3}}
		done := make(chan []Repair)
		go func() {
			answers, err := r.Publish(t.Context(), events, time.Now().Add(time.Hour))
			if err != nil {
				t.Error(err)
			}
			done <- answers
		}()
		time.Sleep(10 * answerPoll)
		if err := r.Forget(t.Context(), other.ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * answerPoll)
		all, err := r.All(t.Context())
		if err != nil || len(all) != 1 || all[0].EventID != events[1].EventID {
			t.Fatalf("All() = %+v, %v, want the requester's own request", all, err)
		}
		if taken, err := r.Take(t.Context(), all[0].ID); err != nil || !taken {
			t.Fatal(taken, err)
		}
		time.Sleep(10 * answerPoll)
		if answered, err := r.Answer(t.Context(), all[0].ID, RepairTaken, RepairPublished, ""); err != nil || !answered {
			t.Fatal(answered, err)
		}
		answers := <-done
		if len(answers) != 2 || answers[0].EventID != other.EventID || answers[0].State != RepairUnknown || answers[0].Detail == "" ||
			answers[1].EventID != events[1].EventID || answers[1].State != RepairPublished {
			t.Errorf("Publish() = %+v, want unknown and published", answers)
		}
		if all, err := r.All(t.Context()); err != nil || len(all) != 0 {
			t.Errorf("All() = %+v, %v afterwards, want none", all, err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		errEnded := errors.New("the verification ended")
		time.AfterFunc(10*answerPoll+answerPoll/2, func() { cancel(errEnded) })
		if answers, err := r.Publish(ctx, events, time.Now().Add(time.Hour)); !errors.Is(err, errEnded) {
			t.Errorf("Publish() = %+v, %v, want %v", answers, err, errEnded)
		}
	})
}
