package layouts

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/gocql/gocql"
	scyllacdc "github.com/scylladb/scylla-cdc-go"
	"golang.org/x/sync/errgroup"

	"github.com/scylla-outbox/scylla-outbox/internal/self"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/checkpoint"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/fence"
)

// Config is the shard that takes over. All fields are set except Fence and Shard.
type Config struct {
	Session *gocql.Session
	// Keyspace has the relay's own tables.
	Keyspace string
	// Relay is the name of the relay, without a shard.
	Relay                string
	TableKeyspace, Table string // the outbox table
	// Columns describes the outbox table.
	Columns outbox.Table
	Shard   cdclog.Shard
	Window  time.Duration // the confidence window
	Fence   fence.Fence   // its error prevents writes; nil without a fence
	Logger  *slog.Logger
}

// known is the table relay_layouts, read and written at LOCAL_QUORUM. The whole table
// without shards has no row.
type known struct {
	session            *gocql.Session
	relay, table, name string
}

func (c *known) query(ctx context.Context, stmt string, args ...any) *gocql.Query {
	return c.session.Query(stmt, append([]any{c.relay, c.table}, args...)...).WithContext(ctx).Consistency(gocql.LocalQuorum).Idempotent(true).DefaultTimestamp(false)
}

func (c *known) load(ctx context.Context) (counts []int, err error) {
	iter := c.query(ctx, "SELECT shards FROM "+c.name+" WHERE relay = ? AND table_name = ?").Iter()
	for n := 0; iter.Scan(&n); {
		counts = append(counts, n)
	}
	if err := iter.Close(); err != nil {
		return nil, fmt.Errorf("read the numbers of shards that relay %s had: %w", c.relay, err)
	}
	return counts, nil
}

func (c *known) save(ctx context.Context, count int) error {
	err := c.query(ctx, "INSERT INTO "+c.name+" (relay, table_name, shards, used_at, used_by) VALUES (?, ?, ?, ?, ?)", count, time.Now(), self.Host()).Exec()
	if err != nil {
		return fmt.Errorf("save that relay %s has %d shards: %w", c.relay, count, err)
	}
	return nil
}

// progress is the progress of one shard of one layout.
type progress struct {
	cdclog.Portion
	store             *checkpoint.CQLStore
	scans             *checkpoint.Scans
	generation, first time.Time
}

func (c *Config) readProgress(ctx context.Context, s cdclog.Shard) (*progress, error) {
	name, table := s.Name(c.Relay), c.TableKeyspace+"."+c.Table
	b := &progress{
		Portion: cdclog.NewPortion(s, c.Columns),
		store:   checkpoint.NewCQLStore(c.Session, c.Keyspace, name, table, name, c.Fence, c.Window),
		scans:   checkpoint.NewScans(c.Session, c.Keyspace, name, table, c.Fence),
	}
	var err error
	b.generation, b.first, err = b.store.Start(ctx)
	return b, err
}

// TakeOver stores the progress of other layouts as that of the shard, where it is further,
// and records the layout of the shard. It may be repeated.
//
// The topics show which events are published beyond the positions. since is the time from
// which to read them if the positions do not define it: relays that had a part of this
// shard have published events, and others that had a part never began.
func TakeOver(ctx context.Context, c *Config) (since time.Time, err error) {
	layouts := &known{session: c.Session, relay: c.Relay, table: c.TableKeyspace + "." + c.Table, name: c.Keyspace + ".relay_layouts"}
	counts, err := layouts.load(ctx)
	n := c.Shard.Count
	if err != nil {
		return since, err
	}
	if n > 0 {
		counts = append(slices.DeleteFunc(counts, func(other int) bool { return other == n }), 0)
		if err := layouts.save(ctx, n); err != nil {
			return since, err
		}
	}
	if len(counts) == 0 {
		return since, nil
	}
	own, err := c.readProgress(ctx, c.Shard)
	if err != nil {
		return since, err
	}
	for _, count := range counts {
		began, err := c.follow(ctx, own, count)
		if err != nil {
			return since, err
		}
		since = checkpoint.Earliest(since, began)
	}
	if !own.generation.IsZero() || !own.first.IsZero() {
		since = time.Time{} // the positions define it
	}
	return since, nil
}

// follow takes over the progress of the layout with count shards, if it is further. began
// is when its first shard began, zero if none did.
func (c *Config) follow(ctx context.Context, own *progress, count int) (began time.Time, err error) {
	var before []*progress
	var generation, first time.Time
	complete := true
	for i := range max(count, 1) {
		b, err := c.readProgress(ctx, cdclog.Shard{Index: i, Count: count})
		if err != nil {
			return began, err
		}
		if !b.Tokens.Meets(own.Tokens) {
			continue
		}
		if b.generation.IsZero() && b.first.IsZero() {
			complete = false
			continue
		}
		began, first = checkpoint.Earliest(began, checkpoint.Earliest(b.first, b.generation)), checkpoint.Earliest(first, b.first)
		if len(before) == 0 || b.generation.Before(generation) {
			generation = b.generation
		}
		before = append(before, b)
	}
	if len(before) == 0 || !complete {
		return began, nil
	}
	if !generation.IsZero() && !generation.Before(own.generation) {
		if err := c.followPositions(ctx, own, before, generation); err != nil {
			return began, err
		}
	}
	if own.first.IsZero() && !first.IsZero() {
		if err := own.store.SaveFirst(ctx, first); err != nil {
			return began, err
		}
		own.first = first
	}
	return began, nil
}

// followPositions takes over the positions of a generation that all shards of before have
// reached.
func (c *Config) followPositions(ctx context.Context, own *progress, before []*progress, gen time.Time) error {
	better, err := c.betterPositions(ctx, own, before, gen)
	if err != nil || len(better) == 0 && gen.Equal(own.generation) {
		return err
	}
	// Rows before a position may be left to a scan.
	if err := followScans(ctx, own, before, time.Now()); err != nil {
		return err
	}
	var g errgroup.Group
	g.SetLimit(16)
	for stream, pos := range better {
		g.Go(func() error { return own.store.SavePosition(ctx, gen, []byte(stream), pos) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if gen.After(own.generation) {
		if err := own.store.SaveGeneration(ctx, gen); err != nil {
			return err
		}
		own.generation = gen
	}
	c.Logger.Info("continuing where the relay ended with another number of shards", "shards", before[0].Shard.Count,
		"generation", gen.UTC(), "streams", len(better))
	return nil
}

// betterPositions returns the positions that are further than the positions of own, by stream.
func (c *Config) betterPositions(ctx context.Context, own *progress, before []*progress, gen time.Time) (map[string]gocql.UUID, error) {
	source := cdclog.NewGenerations(c.Session, c.TableKeyspace, c.Table, nil) // with the ranges of all streams
	starts, err := source.Times(ctx)
	if err != nil || !slices.ContainsFunc(starts, gen.Equal) {
		return nil, err // the database no longer knows its streams
	}
	g, err := source.Generation(ctx, gen)
	if err != nil {
		return nil, fmt.Errorf("read the streams of generation %s: %w", gen.UTC(), err)
	}
	mine, err := own.store.Positions(ctx, gen)
	if err != nil {
		return nil, err
	}
	theirs := make([]map[string]gocql.UUID, len(before))
	for i, b := range before {
		if theirs[i], err = b.store.Positions(ctx, gen); err != nil {
			return nil, err
		}
	}
	better := make(map[string]gocql.UUID)
	g.EachRange(func(rg cdclog.StreamRange, has func(cdclog.TokenRange) bool) {
		if !has(own.Tokens) {
			return
		}
		for _, s := range rg.Streams {
			stream := string(g.Streams[s])
			var pos gocql.UUID
			for i, b := range before {
				if !has(b.Tokens) {
					continue
				}
				at, ok := theirs[i][stream]
				if !ok {
					return // one of them has no position in the stream
				}
				if pos == (gocql.UUID{}) || scyllacdc.CompareTimeUUID(at, pos) < 0 {
					pos = at
				}
			}
			if at, ok := mine[stream]; pos != (gocql.UUID{}) && (!ok || scyllacdc.CompareTimeUUID(at, pos) < 0) {
				better[stream] = pos
			}
		}
	})
	return better, nil
}
