package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
)

func newDLQRedirectCommand() *cobra.Command {
	var topic string
	cmd := newDLQChangeWith(dlqChange{
		dlq.ActionRedirect, "Publish dead letters to another topic",
		`Publish dead letters to another topic, because their own is not valid, not allowed, or
refuses their size. The relay publishes each at its place in the order of its
aggregate, as an edit of the topic alone: under a new id, with the original one in
ce_originalid. The events that it blocks follow, to their own topics. If it fails
again, 'outbox dlq replay' tries the other topic again, and another redirect changes
it. The topic must exist.

The command first checks that a relay runs and that its breaker is closed. --force
skips these checks, in an outage: the relay publishes the dead letters once it can.
A redirect to a topic that does not exist is refused with --force, too.

Other events of its type are not redirected: set relay.topics for them.`,
	}, func(_ *cobra.Command, f *dlqChangeFlags) error {
		if f.topic = topic; !dlq.ValidTopic(topic) {
			return cli.Usage(fmt.Errorf("--topic %q: name the topic to publish to, of at most 249 letters, digits and . _ -", topic))
		}
		return nil
	})
	cmd.Flags().StringVar(&topic, "topic", "", "the topic to publish to; required")
	return cmd
}
