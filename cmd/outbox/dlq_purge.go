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
		dlq.ActionPurge, "Move resolved and archived letters out of the database now",
		`Move resolved and archived letters out of the database now, rather than when their
retention is over. An outline stays: ids, times, outcome, who purged it and why, so
that the event is never published by mistake. What edits would have published goes
with the letter.

Letters go to retention.archive first, and can be restored from there. Without an
archive, --no-archive says that they are to be lost. Failed and manual letters,
whose events are in no topic, need --force; those parked behind them go on.
Pending, parked and claimed ones cannot be purged: discard them first.`,
	})
}

func newArchiveRestoreCommand() *cobra.Command {
	return newDLQChangeCommand(dlqChange{
		dlq.ActionRestore, "Bring letters back from the archive",
		`Bring letters back from the archive, as they were: resolved, or, if they were
failed, manual and released, because their aggregates have gone on. They stay in
the archive's object too. --object names all letters of an object.

A relay that runs takes them in, and replays one when somebody says so.`,
	})
}

// objectIDs are the events of the object that --object names.
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

// withKeeper runs f with what runs jobs: the archive, or nil without one.
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
