package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/dlq/archive"
	"github.com/scylla-outbox/scylla-outbox/internal/sessions"
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
func (f *dlqChangeFlags) objectIDs(cmd *cobra.Command, c *config) ([]string, error) {
	a, err := c.openArchive(cmd)
	if err != nil {
		return nil, err
	}
	m, err := a.Manifest(cmd.Context(), f.object)
	if err = errors.Join(err, a.Close()); err != nil {
		return nil, archiveHint(err)
	}
	return m.Events, nil
}

// keeper opens retention.archive for jobs that purge, restore or sweep; without
// the setting it is nil. closeArchive closes what was opened.
func (c *config) keeper(ctx context.Context, s *dlq.Store) (k *archive.Keeper, closeArchive func() error, err error) {
	closeArchive = func() error { return nil }
	if c.Retention.Archive == "" {
		return nil, closeArchive, nil
	}
	a, err := archive.Open(ctx, c.Retention.Archive)
	if err != nil {
		return nil, closeArchive, fmt.Errorf("retention.archive: %w", err)
	}
	conf := c.sweep(s, a)
	sweeper, err := archive.NewSweeper(conf)
	if err != nil {
		return nil, closeArchive, errors.Join(usageError{err}, a.Close())
	}
	return archive.NewKeeper(sweeper), a.Close, nil
}

// withKeeper runs f with what runs jobs: the archive, or nil without one.
func (c *config) withKeeper(cmd *cobra.Command, s *dlq.Store, f func(dlq.Archive) error) error {
	k, closeArchive, err := c.keeper(cmd.Context(), s)
	if err != nil {
		return err
	}
	if k == nil {
		return f(nil)
	}
	return errors.Join(f(k), closeArchive())
}

// rowTTLOnce is rowTTL by a session of its own.
func (c *config) rowTTLOnce(ctx context.Context, table string) (time.Duration, error) {
	session, err := c.Scylla.session(c.Scylla.Keyspace)
	if err != nil {
		return 0, err
	}
	defer sessions.Close(session)
	return rowTTL(ctx, session, table)
}
