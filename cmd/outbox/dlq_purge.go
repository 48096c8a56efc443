package main

import (
	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/dlq"
)

func newDLQPurgeCommand() *cobra.Command {
	return newDLQChangeCommand(dlqChange{
		dlq.ActionPurge, "Purge resolved and archived dead letters from the database",
		`Purge resolved and archived dead letters from the database before their retention
ends. An outline remains: ids, times, outcome, who purged the dead letter and why, so
that its event is not published again. Payload, headers, errors and edits are deleted.

Dead letters are first written to archive.url, from where they can be restored.
Without an archive, --no-archive deletes them. Failed and suspended ones, whose events
are in no topic, require --force; the events that they block are published. Pending,
blocked and claimed ones cannot be purged: discard them first.`,
	})
}

func newArchiveRestoreCommand() *cobra.Command {
	return newDLQChangeCommand(dlqChange{
		dlq.ActionRestore, "Restore dead letters from the archive",
		`Restore dead letters from the archive. Resolved ones are resolved again. Failed ones
become suspended and unblocked, because later events of their aggregates have been
published. The archive keeps its object. --object restores all dead letters of an
object.

A running relay reads them, and replays them when an operator requests it.`,
	})
}
