package relay

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/gocql/gocql"
	scyllacdc "github.com/scylladb/scylla-cdc-go"
	"golang.org/x/sync/errgroup"

	"github.com/scylla-outbox/scylla-outbox/internal/self"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/checkpoint"
)

// cqlLayouts are the numbers of shards that a relay's table was ever divided into,
// in the table relay_layouts, at LOCAL_QUORUM. That it was not is no row.
type cqlLayouts struct {
	session            *gocql.Session
	relay, table, name string
}

func (c *cqlLayouts) query(ctx context.Context, stmt string, args ...any) *gocql.Query {
	return c.session.Query(stmt, append([]any{c.relay, c.table}, args...)...).WithContext(ctx).Consistency(gocql.LocalQuorum).Idempotent(true).DefaultTimestamp(false)
}

func (c *cqlLayouts) load(ctx context.Context) (counts []int, err error) {
	iter := c.query(ctx, "SELECT shards FROM "+c.name+" WHERE relay = ? AND table_name = ?").Iter()
	for n := 0; iter.Scan(&n); {
		counts = append(counts, n)
	}
	if err := iter.Close(); err != nil {
		return nil, fmt.Errorf("read into how many shards relay %s was divided: %w", c.relay, err)
	}
	return counts, nil
}

func (c *cqlLayouts) save(ctx context.Context, count int) error {
	err := c.query(ctx, "INSERT INTO "+c.name+" (relay, table_name, shards, used_at, used_by) VALUES (?, ?, ?, ?, ?)", count, time.Now(), self.Host()).Exec()
	if err != nil {
		return fmt.Errorf("save that relay %s is divided into %d shards: %w", c.relay, count, err)
	}
	return nil
}

// reached is how far the relay of one shard has come, of this number of shards or
// of another one.
type reached struct {
	cdclog.Portion
	store             *checkpoint.CQLStore
	scans             *checkpoint.Scans
	generation, first time.Time
}

func (r *Relay) reachedBy(ctx context.Context, s Shard) (*reached, error) {
	name, table := s.Name(r.cfg.Name), r.cfg.TableKeyspace+"."+r.cfg.Table
	b := &reached{
		Portion: cdclog.PortionOf(s, r.table),
		store:   checkpoint.NewCQLStore(r.cfg.Session, r.cfg.Keyspace, name, table, name, r.cfg.Fence),
		scans:   checkpoint.NewScans(r.cfg.Session, r.cfg.Keyspace, name, table, r.cfg.Fence),
	}
	var err error
	b.generation, b.first, err = b.store.Start(ctx)
	return b, err
}

// takeOver makes the relay go on where relays of other numbers of shards have been.
//
// What a position says stays true: all before it of the stream and the shard is
// published or a dead letter. So of each number of shards that there ever was the
// earliest position of the shards that have a part of this one holds for it too, and of
// all these the latest is where it goes on; its own may be one of before it was
// divided otherwise. It is found out at every start, because nobody can say when the
// number changes, and it changes nothing if nothing is further than this one is.
//
// Which events are out beyond that the topics say. since is from when, if that does
// not follow from the positions: relays that had a part of this shard have
// published, and others that had one never began.
func (r *Relay) takeOver(ctx context.Context) (since time.Time, err error) {
	err = r.untilRead(ctx, "cannot read how far the relay was with another number of shards; nothing is published before that", func() (err error) {
		since, err = r.tryTakeOver(ctx)
		return err
	})
	return since, err
}

func (r *Relay) tryTakeOver(ctx context.Context) (since time.Time, err error) {
	layouts := &cqlLayouts{session: r.cfg.Session, relay: r.cfg.Name, table: r.cfg.TableKeyspace + "." + r.cfg.Table, name: r.cfg.Keyspace + ".relay_layouts"}
	counts, err := layouts.load(ctx)
	n := r.cfg.Shard.Count
	if err != nil {
		return since, err
	}
	if n > 0 {
		counts = append(slices.DeleteFunc(counts, func(c int) bool { return c == n }), 0)
		if err := layouts.save(ctx, n); err != nil {
			return since, err
		}
	}
	if len(counts) == 0 {
		return since, nil
	}
	own, err := r.reachedBy(ctx, r.cfg.Shard)
	if err != nil {
		return since, err
	}
	for _, count := range counts {
		began, err := r.follow(ctx, own, count)
		if err != nil {
			return since, err
		}
		since = checkpoint.Earliest(since, began)
	}
	if !own.generation.IsZero() || !own.first.IsZero() {
		since = time.Time{} // the positions say it
	}
	return since, nil
}

// follow takes over what relays of the given number of shards have reached, if that
// is further. began is when the first of them did, zero if none ran.
func (r *Relay) follow(ctx context.Context, own *reached, count int) (began time.Time, err error) {
	var before []*reached
	var generation, first time.Time
	complete := true
	for i := range max(count, 1) {
		b, err := r.reachedBy(ctx, Shard{Index: i, Count: count})
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
		if err := r.followPositions(ctx, own, before, generation); err != nil {
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

// followPositions takes over the positions in a generation that all of them are in,
// or have left.
func (r *Relay) followPositions(ctx context.Context, own *reached, before []*reached, gen time.Time) error {
	better, err := r.betterPositions(ctx, own, before, gen)
	if err != nil || len(better) == 0 && gen.Equal(own.generation) {
		return err
	}
	// What positions have passed may be a scan's to publish.
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
	r.log.Info("going on where the relay was with another number of shards", "shards", before[0].Shard.Count,
		"generation", gen.UTC(), "streams", len(better))
	return nil
}

// betterPositions are the positions that are further than own's, by stream.
func (r *Relay) betterPositions(ctx context.Context, own *reached, before []*reached, gen time.Time) (map[string]gocql.UUID, error) {
	source := cdclog.NewGenerations(r.cfg.Session, r.cfg.TableKeyspace, r.cfg.Table, nil) // with the ranges of all streams
	starts, err := source.Times(ctx)
	if err != nil || !slices.ContainsFunc(starts, gen.Equal) {
		return nil, err // the database no longer knows its streams
	}
	g, err := source.Generation(ctx, gen)
	if err != nil {
		return nil, fmt.Errorf("find out how far the streams are: %w", err)
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
					return // one of them has not passed anything there
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
