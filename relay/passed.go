package relay

import (
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/scylla-outbox/scylla-outbox/outbox"
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
	var table outbox.Table
	count := cfg.Shard.Count
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) { table, _, err = readTable(gctx, &cfg); return err })
	if count == 0 {
		g.Go(func() (err error) {
			agreement := Agreement{Session: cfg.Session, Keyspace: cfg.Keyspace, Name: cfg.Name}
			count, err = agreement.Shards(gctx)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return passed, err
	}
	var all []time.Time
	var mu sync.Mutex // of all
	g, gctx = errgroup.WithContext(ctx)
	g.SetLimit(logReads)
	for i := range max(count, 1) {
		shard := Shard{Index: i, Count: count}
		own := cdclog.NewPortion(shard, table)
		if own.None() {
			continue // another shard processes the whole table
		}
		g.Go(func() error {
			at, err := passedBy(gctx, &cfg, shard.Name(cfg.Name), &own)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, at)
			return err
		})
	}
	if err := g.Wait(); err != nil || len(all) == 0 {
		return time.Time{}, err
	}
	return slices.MinFunc(all, time.Time.Compare), nil // zero, of a shard whose time is unknown, is before all others
}

// passedBy is Passed for one shard.
func passedBy(ctx context.Context, cfg *Config, name string, own *cdclog.Portion) (time.Time, error) {
	table := cfg.TableKeyspace + "." + cfg.Table
	store := checkpoint.NewCQLStore(cfg.Session, cfg.Keyspace, name, table, name, nil, 0)
	var scans []checkpoint.Scan
	var generation time.Time
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) {
		scans, err = checkpoint.NewScans(cfg.Session, cfg.Keyspace, name, table, nil).Load(gctx)
		return err
	})
	g.Go(func() (err error) { generation, _, err = store.Start(gctx); return err })
	scanning := func(r checkpoint.Scan) bool { return r.State == checkpoint.ScanRunning }
	if err := g.Wait(); err != nil || generation.IsZero() || slices.ContainsFunc(scans, scanning) {
		return time.Time{}, err
	}
	generations := cdclog.NewGenerations(cfg.Session, cfg.TableKeyspace, cfg.Table, own)
	return readback.ReadMark(ctx, cfg.readback(), store, generations)
}
