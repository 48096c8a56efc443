package relay

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/failure"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/publish"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// A relay without dead letters does not start while some are open: newer events
// would pass them.
func TestDeadLetters_OffWhileSomeAreOpenIsRefused(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, nil)
		defer w.close()
		bad := relaytest.Event(0, 1, "OrderUpdated")
		_, stop := w.run()
		w.write(relaytest.Event(0, 2, "OrderUpdated"))
		if err := w.session.Query("INSERT INTO outbox_messages (aggregate_id, seq, event_id) VALUES (?, ?, ?)",
			bad.AggregateID, bad.Sequence, bad.ID).Exec(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		_ = stop()
		if n := len(w.open()); n != 2 {
			t.Fatalf("%d dead letters, want the row that is no event and the one behind it", n)
		}
		w.cfg.DeadLetters = DeadLettersOff
		_, stop = w.run()
		time.Sleep(20 * time.Second)
		refused, ok := errors.AsType[*OpenDeadLettersError](stop())
		if !ok || refused.DeadLetters != 2 || failure.Classify(refused) != failure.Fatal {
			t.Errorf("Run() error = %v, want that two dead letters are open", refused)
		}
		if got := w.consume("OrderUpdated"); len(got) != 0 {
			t.Errorf("%d events were published", len(got))
		}
	})
}

// A start reports that it cannot read dead letters.
func TestDeadLetters_AStartReportsWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	relaytest.Long(t)
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, nil)
		defer w.close()
		readable := w.readsFail("dead_letter_chains")
		r, stop := w.run()
		time.Sleep(time.Minute)
		if s := r.Status(); s.StartErr == nil || !strings.Contains(strings.Join(s.Problems, " "), "dead letters") {
			t.Errorf("the problems are %q, want that the dead letters cannot be read", s.Problems)
		}
		readable()
		time.Sleep(time.Minute)
		if s := r.Status(); s.StartErr != nil || len(s.Problems) > 0 {
			t.Errorf("the problems are %q after all is well", s.Problems)
		}
		if err := stop(); err != nil {
			t.Errorf("Run() error = %v", err)
		}
	})
}

// Dead letters that a relay before had claimed hold back their own aggregates alone
// while the database takes no conditional write.
func TestDeadLetters_UnsettledClaimsBlockNoOthers(t *testing.T) {
	relaytest.Long(t)
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, nil)
		defer w.close()
		w.crashAfter(5 * time.Second)
		reachable := w.unreachable()
		all := relaytest.Events(6, 2, "OrderUpdated")
		for _, e := range all {
			w.write(e)
		}
		w.crashAfter(2 * time.Minute)
		reachable()
		silent := w.brokerOutageFor(kmsg.Produce)
		w.crashAfter(40 * time.Second) // it has claimed some, and nothing is published
		silent()
		written := w.deadLettersFail()
		r, stop := w.run()
		time.Sleep(5 * time.Second)
		others := []outbox.Event{relaytest.Event(100, 1, "OrderUpdated"), relaytest.Event(101, 1, "OrderUpdated")}
		for _, e := range others {
			w.write(e)
		}
		time.Sleep(20 * time.Second)
		relaytest.CheckOrder(t, w.consume("OrderUpdated"), others)
		written()
		time.Sleep(5 * time.Minute)
		if s := r.Status(); s.DeadLetters != 0 {
			t.Errorf("%d dead letters are left", s.DeadLetters)
		}
		if err := stop(); err != nil {
			t.Errorf("Run() error = %v", err)
		}
		relaytest.CheckOrder(t, w.consume("OrderUpdated"), append(all, others...))
	})
}

// brokerOutageFor makes the broker hang up at requests of one kind until it is
// called off.
func (b *fixture) brokerOutageFor(key kmsg.Key) (end func()) {
	var gone atomic.Bool
	gone.Store(true)
	b.cluster.ControlKey(key.Int16(), func(kmsg.Request) (kmsg.Response, error, bool) {
		b.cluster.KeepControl()
		return nil, net.ErrClosed, gone.Load()
	})
	return func() { gone.Store(false) }
}

// unavailableNames are names of topics that cannot be stored while it is set.
type unavailableNames struct{ atomic.Bool }

func (n *unavailableNames) Remember(context.Context, string) error {
	if n.Load() {
		return kerr.CoordinatorNotAvailable
	}
	return nil
}

// A half-open breaker probes the broker also while a topic cannot be made because
// the database does not answer.
func TestBreaker_ClosesWhileATopicWaitsForTheDatabase(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, nil)
		defer b.close()
		var refuses unavailableNames
		b.publisher.SetTopicNames(&refuses)
		b.submit(relaytest.Event(0, 1, "OrderUpdated"), nil)
		b.drain(time.Minute)
		answers := relaytest.TakesNothing(b.cluster, "OrderUpdated")
		b.submit(relaytest.Event(1, 1, "OrderUpdated"), nil)
		p := b.publisher
		for range 100 {
			if time.Sleep(time.Second); p.State().Breaker.State == publish.BreakerOpen {
				break
			}
		}
		refuses.Store(true) // the database's part
		b.submit(relaytest.Event(2, 1, "Another"), nil)
		answers()
		for range 300 {
			if time.Sleep(time.Second); p.State().Breaker.State == publish.BreakerClosed {
				return
			}
		}
		t.Errorf("the breaker is %s five minutes after the broker is back", p.State().Breaker.State)
	})
}
