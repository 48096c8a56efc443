package verify

import (
	"context"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/engine"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// A subscription on the real stores: acknowledged, failed, rejected and leased messages are
// accounted for, and a dead letter that is replayed comes back, once.
func TestCheck_OfARunningSubscription(t *testing.T) {
	t.Parallel()
	b := setup(t, subscriptions.StartEarliest, 20)
	e, err := engine.New(engine.Config{
		Kafka: []kgo.Opt{kgo.SeedBrokers(b.client.OptValue(kgo.SeedBrokers).([]string)...)}, Store: b.Store, DeadLetters: b.DeadLetters,
	})
	must(t, err)
	stop := world.Run(t, e.Run)
	ctx := t.Context()

	receive := func(n int) (out []subscriptions.Message) {
		t.Helper()
		world.Eventually(t, "messages arrive", func() bool {
			got, err := e.Receive(ctx, "s", subscriptions.Receive{Max: n - len(out), Wait: time.Second})
			if err == nil {
				out = append(out, got...)
			}
			return len(out) == n
		})
		return out
	}
	settle := func(a subscriptions.Action, messages []subscriptions.Message) {
		t.Helper()
		var actions []subscriptions.Settle
		for _, m := range messages {
			actions = append(actions, subscriptions.Settle{Action: a, Receipt: m.Receipt, Reason: "test", Delay: actionDelay(a)})
		}
		results, err := e.Settle(ctx, "s", actions)
		must(t, err)
		for _, r := range results {
			if r.Code != subscriptions.CodeOK {
				t.Fatalf("%s: %+v", a, r)
			}
		}
	}
	all := receive(20)
	settle(subscriptions.ActionAck, all[:10])
	settle(subscriptions.ActionNack, all[10:15])
	settle(subscriptions.ActionReject, all[15:17])
	b.awaitAccount(Counts{Settled: 12, Stored: 5, Waiting: 3}, 2)

	var id gocql.UUID
	must(t, b.DeadLetters.Chains(ctx, "subscription.s", func(c dlq.ChainEntry) error { id = c.EventID; return nil }))
	must(t, b.DeadLetters.Replay(ctx, id, dlq.Actor{Name: "ada", Reason: "fixed"}))
	again := receive(1)
	if o := again[0].Offset; o != all[15].Offset && o != all[16].Offset {
		t.Errorf("the replay is offset %d, want a rejected one", o)
	}
	settle(subscriptions.ActionAck, again)
	if l, err := b.DeadLetters.Read(ctx, id); err != nil || l.Status != dlq.Resolved {
		t.Errorf("the dead letter is %s, %v; want it resolved", l.Status, err)
	}
	b.awaitAccount(Counts{Settled: 12, Stored: 5, Waiting: 3}, 1)
	stop()
	b.awaitAccount(Counts{Settled: 12, Stored: 5, Waiting: 3}, 1)
}

func actionDelay(a subscriptions.Action) time.Duration {
	if a == subscriptions.ActionNack {
		return time.Hour
	}
	return 0
}

// awaitAccount waits for an account without problems: rows are removed after the results.
func (b *fixture) awaitAccount(want Counts, deadLetters int64) {
	b.t.Helper()
	world.Eventually(b.t, "the account", func() bool {
		r, err := Check(context.Background(), b.Config, "s")
		must(b.t, err)
		if len(r.Problems) > 0 {
			b.t.Fatalf("problems %+v", r.Problems)
		}
		return r.Counts == want && r.DeadLetters == deadLetters
	})
}
