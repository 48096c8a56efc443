package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/dlq/archive"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/self"
	"github.com/scylla-outbox/scylla-outbox/internal/sessions"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/schema"
)

// DLQOptions returns the options of the store that follow from the settings of the database.
func (c *Config) DLQOptions() []dlq.Option {
	timeout := cmp.Or(c.Scylla.Timeout, dlq.DefaultAttemptTimeout)
	return []dlq.Option{
		dlq.WithConsistency(consistency), dlq.WithSerialConsistency(c.Scylla.serialConsistency()), dlq.WithTimeouts(timeout, max(dlq.DefaultBudget, 2*timeout)),
	}
}

// OpenSweeper opens archive.url for jobs that purge, restore or sweep. It is nil without the
// setting. closeArchive closes the archive.
func (c *Config) OpenSweeper(ctx context.Context, s *dlq.Store) (k *archive.Sweeper, closeArchive func() error, err error) {
	closeArchive = func() error { return nil }
	if c.Archive.URL == "" {
		return nil, closeArchive, nil
	}
	a, err := archive.Open(ctx, c.Archive.URL)
	if err != nil {
		return nil, closeArchive, fmt.Errorf("archive.url: %w", err)
	}
	if k, err = archive.NewSweeper(c.Sweep(s, a)); err != nil {
		return nil, closeArchive, errors.Join(cli.Usage(err), a.Close())
	}
	return k, a.Close, nil
}

// Sweep returns the configuration of a sweeper; a is nil without an archive.
func (c *Config) Sweep(store *dlq.Store, a *archive.Archive) archive.Config {
	r := &c.Retention
	return archive.Config{
		Store: store, Archive: a, Owner: self.Unique(), Resolved: r.Resolved, Failed: r.Failed, Keep: r.Keep,
		Tables: &retainedTables{c, nil}, PayloadTable: c.Scylla.Keyspace + "." + outbox.DefaultTableName,
	}
}

// retainedTables implements archive.Tables. Without a session each call opens its own.
type retainedTables struct {
	c       *Config
	session *gocql.Session
}

func (t *retainedTables) Retentions(ctx context.Context) (out map[string]time.Duration, err error) {
	err = t.with(func(s *gocql.Session) error { out, err = t.c.retentions(ctx, s); return err })
	return out, err
}

func (t *retainedTables) RowTTL(ctx context.Context, table string) (ttl time.Duration, err error) {
	err = t.with(func(s *gocql.Session) error { ttl, err = RowTTL(ctx, s, table); return err })
	return ttl, err
}

func (t *retainedTables) with(do func(*gocql.Session) error) error {
	if t.session != nil {
		return do(t.session)
	}
	session, err := t.c.Scylla.Session(t.c.Scylla.Keyspace)
	if err != nil {
		return err
	}
	defer sessions.Close(session)
	return do(session)
}

// tableParts splits "keyspace.table".
func tableParts(table string) (keyspace, name string) {
	keyspace, name, _ = strings.Cut(table, ".")
	return keyspace, name
}

// retentions returns the retention of the dead letters of each subscription that sets one, by
// their table.
func (c *Config) retentions(ctx context.Context, session *gocql.Session) (map[string]time.Duration, error) {
	if !c.Scylla.Has(schema.Subscriptions) {
		return nil, nil
	}
	s, err := c.openSubscriptions(session)
	if err != nil {
		return nil, err
	}
	all, err := s.List(ctx)
	out := make(map[string]time.Duration)
	for i := range all {
		if days := all[i].DeadLetter.RetentionDays; days > 0 {
			out[all[i].DeadLetterTable()] = time.Duration(days) * 24 * time.Hour
		}
	}
	return out, err
}
