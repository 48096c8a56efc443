package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/dlq/jobs"
	"github.com/scylla-outbox/scylla-outbox/internal/app"
)

func newDLQPurgeCommand() *cobra.Command {
	return newDLQChangeCommand(dlqChange{
		dlq.ActionPurge, "Purge resolved and archived dead letters from the database",
		`Purge resolved and archived dead letters from the database before their retention
ends. An outline remains: ids, times, outcome, who purged the dead letter and why, so
that its event is not published again. Payload, headers, errors and edits are deleted.

Dead letters are first written to retention.archive, from where they can be restored.
Without an archive, --no-archive deletes them. Failed and manual ones, whose events
are in no topic, require --force; the events that they block are published. Pending,
parked and claimed ones cannot be purged: discard them first.`,
	})
}

func newArchiveRestoreCommand() *cobra.Command {
	return newDLQChangeCommand(dlqChange{
		dlq.ActionRestore, "Restore dead letters from the archive",
		`Restore dead letters from the archive. Resolved ones are resolved again. Failed ones
become manual and released, because later events of their aggregates have been
published. The archive keeps its object. --object restores all dead letters of an
object.

A running relay reads them, and replays them when an operator requests it.`,
	})
}

// objectIDs reads the event ids of the object of --object.
func (f *dlqChangeFlags) objectIDs(cmd *cobra.Command, c *app.Config) ([]string, error) {
	a, err := openArchive(c, cmd)
	if err != nil {
		return nil, err
	}
	m, err := a.Manifest(cmd.Context(), f.object)
	if err = errors.Join(err, a.Close()); err != nil {
		return nil, archiveHint(err)
	}
	return m.Events, nil
}

// withKeeper runs f with the archive for jobs, nil without one.
func withKeeper(c *app.Config, cmd *cobra.Command, s *dlq.Store, f func(jobs.Archive) error) error {
	k, closeArchive, err := c.Keeper(cmd.Context(), s)
	if err != nil {
		return err
	}
	if k == nil {
		return f(nil)
	}
	return errors.Join(f(k), closeArchive())
}
