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

// stateWaiting is the state of an instance that publishes nothing, because one of
// the other kind does.
const stateWaiting = "waiting"

// hearing tells who of those that are read again and again is alive: whose row
// changes. What nothing is known of yet is.
type hearing map[string]*heardAt

type heardAt struct {
	said, heard time.Time
	sure        bool // it was heard twice
}

// alive takes what was read, who with when they spoke last by their own clocks.
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

// giving is for whom a relay waits that carries its table whole.
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

// GiveWay waits until no instance of the relays' name that shares one of their tables
// with others (Membership) is alive: beside those these relays, which carry their tables
// whole, would publish everything once more. They are those of one process, one for each
// table, and begin together. It is for before Run, with Heartbeat running, by which
// others see that they wait; Status says so too. A killed instance counts as alive until
// it has said nothing for 10 s. A relay of a shard waits for nobody: AwaitSharers did.
//
// It returns nil when Run may begin, and an error only at the end of ctx. A database
// that is away is waited for. Where the user may not read or write relay_instances
// nothing can be told; the log says so, and it returns nil.
//
// Between the two kinds it is decided so: whoever starts says so in its row, and
// looks then. So of two that start at once one sees the other at least, and it is
// the one without shards that waits.
func GiveWay(ctx context.Context, version string, relays ...*Relay) error {
	var g givers
	for _, r := range relays {
		if r.cfg.Shard.Count == 0 { // else it is one of those that share
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
			log.Warn("cannot tell whether instances that share this relay run; if some do, everything is published twice", "relay", cfg.Name, "err", err)
			return nil
		case err != nil:
			if attempt == 3 { // the first ones may be a database that is just starting
				log.Warn("cannot tell whether instances that share this relay run; trying again", "relay", cfg.Name, "err", err)
			}
			if err := retry.Wait(ctx, cfg.askAgain(attempt)); err != nil {
				return err
			}
			continue
		case len(alive) == 0:
			if said {
				log.Info("the instances that shared this relay are gone", "relay", cfg.Name)
			}
			return nil
		}
		attempt = 0
		if sure := g.sure(alive); !said && len(sure) > 0 {
			said = true
			log.Warn("instances of this relay's name share its table, and everything would be published twice beside them: this one, which has no shards, waits until they are stopped",
				"relay", cfg.Name, "other_instance", strings.Join(sure, ", "))
		}
		if err := retry.Wait(ctx, DefaultHeartbeat); err != nil {
			return err
		}
	}
}

// givers give way together. If each did for itself, one may have begun when another one
// sees an instance that shares both their tables: that would wait for the one, and the
// other one for it.
type givers []giver

// giver is a relay that gives way, and whom it has heard.
type giver struct {
	*beating
	heard hearing
}

func (g givers) set(way []string) {
	for _, one := range g {
		one.r.giving.set(way)
	}
}

// say sets for whom they wait, and writes it into their rows.
func (g givers) say(ctx context.Context, way []string) error {
	g.set(way)
	for _, one := range g {
		if err := one.write(ctx, "running"); err != nil {
			return err
		}
	}
	return nil
}

// look returns who shares one of the tables and is alive. If it is nobody, the relays'
// rows say that they are about to begin, and said so before anybody was looked for.
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

// sharers reads who shares one of the tables and is alive.
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

// sure are those that are known to be alive, of those that may be.
func (g givers) sure(alive []string) []string {
	return slices.DeleteFunc(slices.Clone(alive), func(who string) bool {
		return !slices.ContainsFunc(g, func(one giver) bool { return one.heard[who] != nil && one.heard[who].sure })
	})
}

// sure are those that are known to be alive, of those that may be.
func (h hearing) sure(alive []string) []string {
	return slices.DeleteFunc(slices.Clone(alive), func(who string) bool { return !h[who].sure })
}

// instances are those of the name and the tables that did not say that they stopped
// and are of a kind, with when they said something last.
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

// newBeating is what writes a relay's row. All of a relay's are one process to others.
func newBeating(r *Relay, version string) *beating {
	return &beating{r: r, version: version, instance: self.Process(), started: r.born}
}
