package relay

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/internal/self"
	"github.com/scylla-outbox/scylla-outbox/relay/failure"
)

// stateWaiting is the state of an instance that publishes nothing because an instance of
// the other kind runs.
const stateWaiting = "waiting"

// hearing detects live instances by changes of their rows between reads. An instance
// without earlier reads counts as alive.
type hearing map[string]*heardAt

type heardAt struct {
	said, heard time.Time
	sure        bool // the row changed between two reads
}

// alive returns the live instances. rows contains the last update of each instance by
// its own clock.
func (h hearing) alive(rows map[string]time.Time, now time.Time) (out []string) {
	for who, said := range rows {
		x := h[who]
		if x == nil || !x.said.Equal(said) {
			x = &heardAt{said, now, x != nil}
			h[who] = x
		}
		if now.Sub(x.heard) < otherSilent {
			out = append(out, who)
		}
	}
	maps.DeleteFunc(h, func(who string, _ *heardAt) bool { _, there := rows[who]; return !there })
	slices.Sort(out)
	return out
}

// giving contains the instances that a relay for the whole table waits for.
type giving struct {
	mu  sync.Mutex
	way []string
}

func (g *giving) to() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.way
}

func (g *giving) set(way []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.way = way
}

// GiveWay waits until no instance is alive that has the name of the relays and shares
// one of their tables (Membership): these relays process whole tables and would publish
// every event again. The relays are the ones of one process, one per table, and start
// together. Call it before Run, while Heartbeat runs, which shows other instances that
// the relays wait; Status contains it too. A killed instance counts as alive until its
// row has not changed for 10 s. A relay of a shard does not wait: AwaitSharers has
// waited for it.
//
// GiveWay returns nil when Run may start, and an error only when ctx ends. It retries
// while the database is unavailable. If the user may not read or write relay_instances,
// it logs a warning and returns nil.
//
// Each instance writes its row before it reads the rows of the others. Of two instances
// that start together, at least one therefore sees the other, and the one without shards
// waits.
func GiveWay(ctx context.Context, version string, relays ...*Relay) error {
	var g givers
	for _, r := range relays {
		if r.cfg.Shard.Count == 0 { // otherwise it is an instance that shares
			g = append(g, giver{newBeating(r, version), make(hearing)})
		}
	}
	if len(g) == 0 {
		return nil
	}
	defer g.set(nil)
	cfg, said := &g[0].r.cfg, false
	log := cfg.Logger
	for attempt := 1; ; attempt++ {
		alive, err := g.look(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil && failure.Classify(err) == failure.Fatal:
			log.Warn("cannot check for instances that share this relay; events are published twice if one runs", "relay", cfg.Name, "err", err)
			return nil
		case err != nil:
			if attempt == 3 { // the database may be starting
				log.Warn("cannot check for instances that share this relay; retrying", "relay", cfg.Name, "err", err)
			}
			if err := retry.Wait(ctx, cfg.askAgain(attempt)); err != nil {
				return err
			}
			continue
		case len(alive) == 0:
			if said {
				log.Info("instances that shared this relay have stopped", "relay", cfg.Name)
			}
			return nil
		}
		attempt = 0
		if sure := g.sure(alive); !said && len(sure) > 0 {
			said = true
			log.Warn("waiting for instances of this relay that share its table; this one has no shards and would publish every event twice",
				"relay", cfg.Name, "other_instance", strings.Join(sure, ", "))
		}
		if err := retry.Wait(ctx, DefaultHeartbeat); err != nil {
			return err
		}
	}
}

// givers wait together. If each waited alone, one could have started when another sees
// an instance that shares both tables; that relay would wait for the instance, and the
// instance for the first relay.
type givers []giver

// giver is a relay that waits, and the instances that it has seen.
type giver struct {
	*beating
	heard hearing
}

func (g givers) set(way []string) {
	for _, one := range g {
		one.r.giving.set(way)
	}
}

// say sets the instances that the relays wait for, and writes them to their rows.
func (g givers) say(ctx context.Context, way []string) error {
	g.set(way)
	for _, one := range g {
		if err := one.write(ctx, "running"); err != nil {
			return err
		}
	}
	return nil
}

// look returns the live instances that share one of the tables. If it returns none, the
// rows of the relays show that they are about to start, and were written before the
// instances were read.
func (g givers) look(ctx context.Context) (alive []string, err error) {
	if len(g[0].r.giving.to()) > 0 {
		if alive, err = g.sharers(ctx); err != nil || len(alive) > 0 {
			if len(alive) > 0 {
				g.set(alive)
			}
			return alive, err
		}
	}
	if err := g.say(ctx, nil); err != nil {
		return nil, err
	}
	if alive, err = g.sharers(ctx); err == nil && len(alive) > 0 {
		err = g.say(ctx, alive)
	}
	return alive, err
}

// sharers returns the live instances that share one of the tables.
func (g givers) sharers(ctx context.Context) (alive []string, err error) {
	for _, one := range g {
		cfg := &one.r.cfg
		m := Membership{Session: cfg.Session, Keyspace: cfg.Keyspace, Name: cfg.Name, Tables: []string{cfg.TableKeyspace + "." + cfg.Table}}
		rows, err := m.instances(ctx, func(h *heartbeat) bool { return h.Sharing != nil })
		if err != nil {
			return nil, err
		}
		alive = append(alive, one.heard.alive(rows, time.Now())...)
	}
	slices.Sort(alive)
	return slices.Compact(alive), nil
}

// sure returns the instances of alive that are known to be alive.
func (g givers) sure(alive []string) []string {
	return slices.DeleteFunc(slices.Clone(alive), func(who string) bool {
		return !slices.ContainsFunc(g, func(one giver) bool { return one.heard[who] != nil && one.heard[who].sure })
	})
}

// sure returns the instances of alive that are known to be alive.
func (h hearing) sure(alive []string) []string {
	return slices.DeleteFunc(slices.Clone(alive), func(who string) bool { return !h[who].sure })
}

// instances returns the instances of the name and the tables that match kind and are not
// reported as stopped, with the times of their last rows.
func (m *Membership) instances(ctx context.Context, kind func(*heartbeat) bool) (map[string]time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, heartbeatTimeout)
	defer cancel()
	out := make(map[string]time.Time)
	for _, table := range m.Tables {
		iter := m.Session.Query("SELECT instance, at, status FROM "+m.Keyspace+".relay_instances WHERE scope = 'keyspace' AND relay = ? AND table_name = ?",
			m.Name, table).WithContext(ctx).Idempotent(true).Iter()
		var instance, status string
		var at time.Time
		for iter.Scan(&instance, &at, &status) {
			var h heartbeat
			if json.Unmarshal([]byte(status), &h) == nil && h.State != "stopped" && kind(&h) {
				out[instance] = at
			}
		}
		if err := iter.Close(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// newBeating returns the writer of a relay's row. All rows of a relay belong to one
// process.
func newBeating(r *Relay, version string) *beating {
	return &beating{r: r, version: version, instance: self.Process(), started: r.born}
}
