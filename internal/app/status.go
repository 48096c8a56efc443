package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/admin"
	"github.com/scylla-outbox/scylla-outbox/internal/self"
	"github.com/scylla-outbox/scylla-outbox/internal/verify"
	"github.com/scylla-outbox/scylla-outbox/relay"
	"github.com/scylla-outbox/scylla-outbox/schedule"
)

// unread returns the function that counts events that no relay reads. Where nobody knows up to
// when they were read, those after the checkpoints count.
func (c *Config) unread(session *gocql.Session, logs *tableLogs) func(context.Context, admin.UnreadOf, int) (int, error) {
	return func(ctx context.Context, of admin.UnreadOf, limit int) (int, error) {
		conf, err := c.relayConfigFor(session, of.Table)
		if err != nil {
			return 0, err
		}
		conf.Shard = relay.Shard{Index: of.Shard, Count: of.Shards}
		since := of.Since
		if since.IsZero() {
			if since, err = relay.Passed(ctx, conf); err != nil {
				return 0, err
			}
		}
		return logs.of(conf).Unread(ctx, since, limit)
	}
}

// relayConfigFor returns the configuration of the relay of a table.
func (c *Config) relayConfigFor(session *gocql.Session, table string) (relay.Config, error) {
	confs, err := c.RelayConfigs()
	if err != nil {
		return relay.Config{}, err
	}
	i := slices.IndexFunc(confs, func(conf relay.Config) bool { return TableName(&conf) == table })
	if i < 0 {
		return relay.Config{}, fmt.Errorf("%s is no table of the configuration", table)
	}
	conf := confs[i]
	conf.Session = session
	return conf, nil
}

// tableLogs are the CDC logs of the tables, and their shards, that were read.
type tableLogs struct {
	mu    sync.Mutex
	known map[string]*relay.Log
}

// of returns the log of a configuration's table and shard.
func (l *tableLogs) of(conf relay.Config) *relay.Log {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := conf.Shard.Name(TableName(&conf))
	if l.known[key] == nil {
		if l.known == nil {
			l.known = make(map[string]*relay.Log)
		}
		l.known[key] = relay.NewLog(conf)
	}
	return l.known[key]
}

// readTables reads what the logs of all tables keep, concurrently, for the one node of a session.
func (l *tableLogs) readTables(ctx context.Context, c *Config, session *gocql.Session) {
	confs, err := c.RelayConfigs()
	if err != nil {
		return // the read of a table has it
	}
	var all sync.WaitGroup
	for _, conf := range confs {
		conf.Session = session
		all.Go(func() { l.of(conf).ReadTable(ctx) })
	}
	all.Wait()
}

// written returns the function that reads the events in the CDC log of a table.
func (c *Config) written(session *gocql.Session, logs *tableLogs) func(context.Context, string, time.Time, int) ([]admin.WrittenEvent, error) {
	return func(ctx context.Context, table string, since time.Time, limit int) (out []admin.WrittenEvent, err error) {
		conf, err := c.relayConfigFor(session, table)
		if err != nil {
			return nil, err
		}
		err = logs.of(conf).Written(ctx, since, limit, func(e relay.WrittenEvent) {
			out = append(out, admin.WrittenEvent{ID: e.ID.String(), AggregateID: e.AggregateID.String(), Type: e.Type, Sequence: e.Sequence, At: e.At, First: e.First})
		})
		return out, err
	}
}

// scheduledLooked bounds the search for scheduled messages by their key.
const scheduledLooked = 3 * time.Second

// scheduledFinder returns the function that finds scheduled messages by their id or key.
func (c *Config) scheduledFinder(session *gocql.Session) func(context.Context, string, int) ([]admin.ScheduledMessage, bool, error) {
	store := schedule.NewStore(session, consistency, c.Scylla.Timeout)
	return func(ctx context.Context, of string, limit int) (out []admin.ScheduledMessage, more bool, err error) {
		add := func(m *schedule.Message) {
			if m.State == schedule.Waiting {
				out = append(out, admin.ScheduledMessage{ID: m.ID, Topic: m.Topic, Key: m.Key, CreatedAt: m.CreatedAt, DeliverAt: m.DeliverAt})
			}
		}
		if id, err := gocql.ParseUUID(of); err == nil {
			m, err := store.Read(ctx, id)
			if err == nil {
				add(&m)
			} else if !errors.Is(err, schedule.ErrNotFound) {
				return nil, false, err
			}
		}
		ctx, cancel := context.WithTimeout(ctx, scheduledLooked)
		defer cancel()
		now := time.Now()
		page, _, more, err := store.List(ctx, schedule.Position{DeliverAt: now}, schedule.Filter{Until: now.Add(schedule.MaxAhead + time.Minute), Key: of}, limit)
		if err != nil && ctx.Err() != nil {
			return out, true, nil
		}
		for i := range page {
			add(&page[i])
		}
		return out, more, err
	}
}

// verification returns the function that reads the state of the continuous verification.
func (c *Config) verification(deadLetters *dlq.Store) func(context.Context) ([]admin.VerificationState, error) {
	return func(ctx context.Context) ([]admin.VerificationState, error) {
		duty, err := deadLetters.Duty(VerifyDuty, self.Unique(), VerifyTTL)
		if err != nil {
			return nil, err
		}
		passes, err := verify.ReadPasses(ctx, duty)
		if err != nil {
			return nil, err
		}
		var out []admin.VerificationState
		for _, table := range slices.Sorted(maps.Keys(passes)) {
			p := passes[table]
			out = append(out, admin.VerificationState{
				Table: table, LastPass: timeOrNil(p.LastPass), Verified: timeOrNil(p.Verified), Began: p.Began,
				Done: p.Done, Ranges: p.Ranges, Missing: p.Missing,
			})
		}
		return out, nil
	}
}

func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
