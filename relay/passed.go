package relay

import (
	"context"
	"slices"
	"time"

	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/checkpoint"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/readback"
)

// Passed returns the write time up to which all shards of the relay have published the
// events that their CDC logs contain, by their checkpoints. It is zero if that is
// unknown: a shard has not run yet, or has an unfinished scan of the outbox table. It
// only reads, and requires Session, Keyspace, Name and the table of cfg.
func Passed(ctx context.Context, cfg Config) (passed time.Time, err error) {
	cfg = cfg.withDefaults()
	table, _, err := readTable(ctx, &cfg)
	if err != nil {
		return passed, err
	}
	count := cfg.Shard.Count
	if count == 0 {
		agreement := Agreement{Session: cfg.Session, Keyspace: cfg.Keyspace, Name: cfg.Name}
		if count, err = agreement.Shards(ctx); err != nil {
			return passed, err
		}
	}
	for i := range max(count, 1) {
		shard := Shard{Index: i, Count: count}
		own := cdclog.NewPortion(shard, table)
		if own.None() {
			continue // another shard processes the whole table
		}
		at, err := passedBy(ctx, &cfg, shard.Name(cfg.Name), &own)
		if err != nil || at.IsZero() {
			return time.Time{}, err
		}
		if passed.IsZero() || at.Before(passed) {
			passed = at
		}
	}
	return passed, nil
}

// passedBy is Passed for one shard.
func passedBy(ctx context.Context, cfg *Config, name string, own *cdclog.Portion) (time.Time, error) {
	table := cfg.TableKeyspace + "." + cfg.Table
	scans, err := checkpoint.NewScans(cfg.Session, cfg.Keyspace, name, table, nil).Load(ctx)
	if err != nil || slices.ContainsFunc(scans, func(r checkpoint.Scan) bool { return r.State == checkpoint.ScanRunning }) {
		return time.Time{}, err
	}
	store := checkpoint.NewCQLStore(cfg.Session, cfg.Keyspace, name, table, name, nil, 0)
	generation, _, err := store.Start(ctx)
	if err != nil || generation.IsZero() {
		return time.Time{}, err
	}
	generations := cdclog.NewGenerations(cfg.Session, cfg.TableKeyspace, cfg.Table, own)
	return readback.ReadMark(ctx, cfg.readback(), store, generations)
}
