package main

import (
	"strings"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
)

// A replay for a subscription needs no relay and no broker; with one of a table among them
// it does.
func TestDLQ_OfASubscription(t *testing.T) {
	t.Parallel()
	onBothAPIs(t, testDLQOfASubscription)
}

func testDLQOfASubscription(t *testing.T, b *dlqFixture) {
	id := b.writeDeadLetter(0, func(l *dlq.DeadLetter) {
		l.Table, l.Status, l.AggregateID, l.EventType = "subscription.inventory", dlq.Suspended, "", ""
	})
	b.writeDeadLetter(1, func(l *dlq.DeadLetter) { l.Status = dlq.Suspended })
	if _, errOut := b.run(cli.ExitFailed, "replay", "--all", "--yes", "--reason", "a test", "--wait", "0"); !strings.Contains(errOut, "no relay of outbox.outbox_messages runs") || strings.Contains(errOut, "inventory") {
		t.Errorf("replay of all printed %q", errOut)
	}
	b.run(cli.ExitWaits, "replay", "--table", "subscription.inventory", "--yes", "--reason", "a test", "--wait", "0")
	if st := b.status(id); st != dlq.Pending {
		t.Errorf("it is %s", st)
	}
	out, _ := b.run(cli.ExitOK, "get", id)
	if !strings.Contains(out, "subscription.inventory") {
		t.Errorf("show printed %q", out)
	}
	b.run(cli.ExitOK, "discard", "--table", "subscription.inventory", "--yes", "--reason", "a test")
	if got := b.ids("--status", "suspended"); len(got) != 1 {
		t.Errorf("%d are left, want that of the relay", len(got))
	}
}
