package engine

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/subscriptions"
)

// Operators see the client that has each message, the oldest lease first, and a release ends
// exactly the lease that it names: its message is delivered again, and its receipt is refused.
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
			page, err := p.Leases(ctx, "s", "", limit)
			if err != nil {
				t.Fatal(err)
			}
			return page.Leases, page.Next != ""
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
		if one, err := p.Leases(ctx, "s", "", 1); err != nil {
			t.Fatal(err)
		} else if next, err := p.Leases(ctx, "s", one.Next, 1); err != nil || len(next.Leases) != 1 || next.Leases[0] != all[1] || next.Next != "" {
			t.Errorf("the lease behind the first: %+v, %v", next, err)
		}
		id, err := subscriptions.ParseLeaseID(all[0].ID)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.EndLease(ctx, "s", id, subscriptions.ActionRelease, "eve"); err != nil {
			t.Fatal(err)
		}
		if codes := p.settle(subscriptions.ActionAck, first); codes[0] != subscriptions.CodeLeaseExpired {
			t.Errorf("the acknowledgement of a released lease is %s", codes[0])
		}
		again := receive("cy", 1) // the delivery did not count
		if again.ID != first.ID {
			t.Fatalf("%s is delivered, want the released %s", again.ID, first.ID)
		}
		if err := p.EndLease(ctx, "s", id, subscriptions.ActionRelease, "eve"); !errors.Is(err, subscriptions.ErrLeaseEnded) {
			t.Errorf("the release of a lease that has ended = %v", err)
		}
		p.ok(subscriptions.ActionAck, again, second)
		if all, _ := list(10); len(all) != 0 {
			t.Errorf("leases %+v after their acknowledgements", all)
		}
		w.produce("a", "k", "hopeless")
		w.sleep(time.Second)
		hopeless := receive("ada", 1)
		all, _ = list(10)
		if id, err = subscriptions.ParseLeaseID(all[0].ID); err != nil {
			t.Fatal(err)
		}
		if err := p.EndLease(ctx, "s", id, subscriptions.ActionReject, "eve"); err != nil {
			t.Fatal(err)
		}
		if l := w.db.letters(); len(l) != 1 || l[0].Headers["name"] != "hopeless" || l[0].ErrorText != "rejected by eve" {
			t.Errorf("dead letters %+v, want the rejected message when the operator has the answer", l)
		}
		if codes := p.settle(subscriptions.ActionAck, hopeless); codes[0] != subscriptions.CodeLeaseExpired {
			t.Errorf("the acknowledgement of a rejected message is %s", codes[0])
		}
		if err := p.EndLease(ctx, "s", id, subscriptions.ActionReject, "eve"); !errors.Is(err, subscriptions.ErrLeaseEnded) {
			t.Errorf("the second rejection = %v", err)
		}
		receive("ada", 1)
		w.sleep(time.Minute)
		if all, _ := list(10); len(all) != 0 {
			t.Errorf("expired leases %+v", all)
		}
		if _, err := p.Leases(ctx, "s", "", 1001); err == nil {
			t.Error("1,001 leases are listed")
		}
		w.put(subscriptions.Subscription{Name: "s", Topics: []string{"a"}, Push: &subscriptions.Push{To: "log"}})
		if err := w.idle().EndLease(ctx, "s", id, subscriptions.ActionRelease, "eve"); err == nil || errors.Is(err, subscriptions.ErrLeaseEnded) {
			t.Errorf("the release of a call = %v", err)
		}
	})
}

// A delivery ends after max_extension, whatever the request to receive and extensions want. A
// change applies to later extensions.
func TestEngine_MaxExtension(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		ctx := context.Background()
		s := subscriptions.Subscription{Name: "s", Topics: []string{"a"}, VisibilityTimeout: time.Minute, MaxExtension: 10 * time.Minute, MaxReceive: 2, Backoff: time.Second, MaxBackoff: time.Second}
		w.put(s)
		p := w.start()
		w.many("a", 0, 2, 1)
		w.sleep(time.Second)
		began := time.Now()
		got, err := p.Receive(ctx, "s", subscriptions.Receive{Max: 1, VisibilityTimeout: time.Hour})
		if err != nil || len(got) != 1 || !got[0].LeaseUntil.Equal(began.Add(s.MaxExtension).UTC()) {
			t.Fatalf("received %+v, %v; want a lease of 10m", got, err)
		}
		extend := func(d time.Duration) time.Duration {
			t.Helper()
			r, err := p.Settle(ctx, "s", []subscriptions.Settle{{Action: subscriptions.ActionExtend, Receipt: got[0].Receipt, Delay: d}})
			if err != nil || r[0].Code != subscriptions.CodeOK {
				t.Fatalf("extended: %+v, %v", r, err)
			}
			return r[0].LeaseUntil.Sub(began)
		}
		if d := extend(time.Minute); d != time.Minute {
			t.Errorf("shortened to %s, want 1m", d)
		}
		w.sleep(30 * time.Second)
		if d := extend(time.Hour); d != s.MaxExtension {
			t.Errorf("extended to %s after the delivery, want 10m", d)
		}
		s.MaxExtension = 20 * time.Minute
		w.put(s)
		w.sleep(10 * time.Second)
		if d := extend(time.Hour); d != s.MaxExtension {
			t.Errorf("after the change extended to %s after the delivery, want 20m", d)
		}
		w.sleep(time.Until(began.Add(s.MaxExtension + 2*time.Second)))
		if got := p.receive(1, 0); len(got) != 1 || got[0].Attempt != 2 {
			t.Errorf("after the limit %+v is delivered, want attempt 2", got)
		}
	})
}
