package app

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/admin"
	"github.com/scylla-outbox/scylla-outbox/internal/self"
	"github.com/scylla-outbox/scylla-outbox/internal/verify"
	"github.com/scylla-outbox/scylla-outbox/relay"
)

// unread returns the function that counts events that no relay reads. Where nobody knows up to
// when they were read, those after the checkpoints count.
func (c *Config) unread(session *gocql.Session) func(context.Context, admin.UnreadOf, int) (int, error) {
	return func(ctx context.Context, of admin.UnreadOf, limit int) (int, error) {
		confs, err := c.RelayConfigs()
		if err != nil {
			return 0, err
		}
		i := slices.IndexFunc(confs, func(conf relay.Config) bool { return TableName(&conf) == of.Table })
		if i < 0 {
			return 0, fmt.Errorf("%s is no table of the configuration", of.Table)
		}
		conf := confs[i]
		conf.Session, conf.Shard = session, relay.Shard{Index: of.Shard, Count: of.Shards}
		since := of.Since
		if since.IsZero() {
			if since, err = relay.Passed(ctx, conf); err != nil {
				return 0, err
			}
		}
		return relay.Unread(ctx, conf, since, limit)
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
