package main

import (
	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/admin"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
)

func newDLQSetCommand() *cobra.Command {
	labels := new(dlq.Labels)
	var priority int
	cmd := newDLQChangeWith(dlqChange{
		dlq.ActionSet, "Set the priority and tags of dead letters",
		`Set the priority and tags of dead letters. Their status and their place in the order
of their aggregates do not change. 'outbox dlq replay --by-priority' replays higher
priorities first; 'outbox dlq list --tag' and '--min-priority' filter by them.

A priority is -100 to 100, and 0 if neither the event's header outbox-priority nor an
operator set it. A dead letter has at most 16 tags of 1 to 64 letters, digits and
._:/=@+-.`,
	}, func(cmd *cobra.Command, f *dlqChangeFlags) error {
		if cmd.Flags().Changed("priority") {
			labels.Priority = &priority
		}
		f.set = &admin.Labels{Priority: labels.Priority, AddTags: labels.AddTags, RemoveTags: labels.RemoveTags}
		if err := labels.Validate(); err != nil {
			return cli.Usage(err)
		}
		return nil
	})
	fl := cmd.Flags()
	fl.IntVar(&priority, "priority", 0, "new priority, -100 to 100")
	fl.StringSliceVar(&labels.AddTags, "add-tag", nil, "tags to add")
	fl.StringSliceVar(&labels.RemoveTags, "remove-tag", nil, "tags to remove")
	return cmd
}
