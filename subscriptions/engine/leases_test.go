package engine

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/subscriptions"
)

// Operators see who has each message, the oldest lease first, and a release ends exactly
// the lease that it names: its message is delivered again, and its receipt is refused.
func TestEngine_LeasesOfOperators(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		w.put(subscriptions.Subscription{Name: "s", Topics: []string{"a"}, Ordering: subscriptions.OrderingNone})
		p, ctx := w.start(), context.Background()
		w.many("a", 0, 3, 3)
		w.sleep(time.Second)
		receive := func(consumer string, attempt int) subscriptions.Message {
			t.Helper()
			got, err := p.Receive(ctx, "s", subscriptions.Receive{Max: 1, Consumer: consumer})
			if err != nil || len(got) != 1 || got[0].Attempt != attempt {
				t.Fatalf("Receive() = %+v, %v, want delivery %d", got, err, attempt)
			}
			w.sleep(time.Second)
			return got[0]
		}
		list := func(limit int) ([]subscriptions.Lease, bool) {
			t.Helper()
			all, more, err := p.Leases(ctx, "s", limit)
			if err != nil {
				t.Fatal(err)
			}
			return all, more
		}
		began := time.Now()
		first, second := receive("ada", 1), receive("bob", 1)
		all, more := list(10)
		if len(all) != 2 || more {
			t.Fatalf("leases %+v, %v", all, more)
		}
		want := subscriptions.Lease{
			ID: all[0].ID, Topic: "a", Partition: first.Partition, Offset: first.Offset, EventID: first.ID, Key: first.AggregateID, Consumer: "ada", Attempt: 1, MaxReceive: 3,
			ReceivedAt: began.UTC(), ExpiresAt: first.LeaseUntil, Owner: p.name,
		}
		if all[0] != want || all[1].EventID != second.ID || all[1].Consumer != "bob" {
			t.Errorf("leases %+v, want first %+v", all, want)
		}
		if one, more := list(1); len(one) != 1 || !more || one[0] != all[0] {
			t.Errorf("one lease %+v, %v", one, more)
		}
		id, err := subscriptions.ParseLeaseID(all[0].ID)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.ReleaseLease(ctx, "s", id, "eve"); err != nil {
			t.Fatal(err)
		}
		if codes := p.settle(subscriptions.ActionAck, first); codes[0] != subscriptions.CodeLeaseExpired {
			t.Errorf("the acknowledgement of a released lease is %s", codes[0])
		}
		again := receive("cy", 1) // the delivery did not count
		if again.ID != first.ID {
			t.Fatalf("%s is delivered, want the released %s", again.ID, first.ID)
		}
		if err := p.ReleaseLease(ctx, "s", id, "eve"); !errors.Is(err, subscriptions.ErrLeaseEnded) {
			t.Errorf("the release of a lease that has ended = %v", err)
		}
		p.ok(subscriptions.ActionAck, again, second)
		if all, _ := list(10); len(all) != 0 {
			t.Errorf("leases %+v after their acknowledgements", all)
		}
		receive("ada", 1)
		w.sleep(time.Minute)
		if all, _ := list(10); len(all) != 0 {
			t.Errorf("expired leases %+v", all)
		}
		if _, _, err := p.Leases(ctx, "s", 1001); err == nil {
			t.Error("1,001 leases are listed")
		}
		w.put(subscriptions.Subscription{Name: "s", Topics: []string{"a"}, Push: &subscriptions.Push{To: "log"}})
		if err := w.idle().ReleaseLease(ctx, "s", id, "eve"); err == nil || errors.Is(err, subscriptions.ErrLeaseEnded) {
			t.Errorf("the release of a call = %v", err)
		}
	})
}
