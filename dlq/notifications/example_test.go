package notifications_test

import (
	"context"
	"fmt"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/dlq/notifications"
)

// pager is a Notifier of one's own.
type pager struct{}

func (pager) Notify(_ context.Context, n dlq.Notice) error {
	fmt.Printf("%s: %s\n", n.Rule, n.Title)
	return nil
}

// A notifier of one's own is part of a program that runs the watcher.
func ExampleConfig() {
	conf := notifications.Config{Notifiers: map[string]dlq.Notifier{"pager": pager{}}} // and Store, Owner …
	_ = conf.Notifiers["pager"].Notify(context.Background(), dlq.Notice{Rule: dlq.RuleBacklog, Title: "10,001 dead letters are open, more than 10000"})
	// Output: backlog: 10,001 dead letters are open, more than 10000
}
