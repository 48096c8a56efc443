package relay

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/again"
	"github.com/scylla-outbox/scylla-outbox/internal/self"
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

// GiveWay waits until no instance of the relay's name that shares its table with
// others (Membership) is alive: beside those this relay, which carries the table
// whole, would publish everything once more. It is for before Run, with Heartbeat
// running, by which others see that this one waits; Status says so too. A killed
// instance counts as alive until it has said nothing for 10 s. A relay of a shard
// waits for nobody: AwaitSharers did.
//
// It returns nil when Run may begin, and an error only at the end of ctx. A database
// that is away is waited for. Where the user may not read or write relay_instances
// nothing can be told; the log says so, and it returns nil.
//
// Between the two kinds it is decided so: whoever starts says so in its row, and
// looks then. So of two that start at once one sees the other at least, and it is
// the one without shards that waits.
func (r *Relay) GiveWay(ctx context.Context, version string) error {
	if r.cfg.Shard.Count > 0 {
		return nil // it is one of those that share
	}
	b := newBeating(r, version)
	defer r.giving.set(nil)
	heard, said := make(hearing), false
	for attempt := 1; ; attempt++ {
		alive, err := b.look(ctx, heard)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil && Classify(err) == Fatal:
			r.log.Warn("cannot tell whether instances that share this relay run; if some do, everything is published twice", "relay", r.cfg.Name, "err", err)
			return nil
		case err != nil:
			if attempt == 3 { // the first ones may be a database that is just starting
				r.log.Warn("cannot tell whether instances that share this relay run; trying again", "relay", r.cfg.Name, "err", err)
			}
			if err := again.Wait(ctx, r.cfg.askAgain(attempt)); err != nil {
				return err
			}
			continue
		case len(alive) == 0:
			if said {
				r.log.Info("the instances that shared this relay are gone", "relay", r.cfg.Name)
			}
			return nil
		}
		attempt = 0
		if sure := heard.sure(alive); !said && len(sure) > 0 {
			said = true
			r.log.Warn("instances of this relay's name share its table, and everything would be published twice beside them: this one, which has no shards, waits until they are stopped",
				"relay", r.cfg.Name, "other_instance", strings.Join(sure, ", "))
		}
		if err := again.Wait(ctx, DefaultHeartbeat); err != nil {
			return err
		}
	}
}

// look returns who shares the relay's table and is alive. If it is nobody, this
// relay's row says that it is about to begin, and said so before they were looked for.
func (b *beating) look(ctx context.Context, heard hearing) (alive []string, err error) {
	if len(b.r.giving.to()) > 0 {
		if alive, err = b.sharers(ctx, heard); err != nil || len(alive) > 0 {
			if len(alive) > 0 {
				b.r.giving.set(alive)
			}
			return alive, err
		}
	}
	b.r.giving.set(nil)
	if err := b.write(ctx, "running"); err != nil {
		return nil, err
	}
	if alive, err = b.sharers(ctx, heard); err == nil && len(alive) > 0 {
		b.r.giving.set(alive)
		err = b.write(ctx, "running") // which says that it waits
	}
	return alive, err
}

// sharers reads who shares the relay's table and is alive.
func (b *beating) sharers(ctx context.Context, heard hearing) ([]string, error) {
	cfg := &b.r.cfg
	m := Membership{Session: cfg.Session, Keyspace: cfg.Keyspace, Name: cfg.Name, Tables: []string{cfg.TableKeyspace + "." + cfg.Table}}
	rows, err := m.instances(ctx, func(h *heartbeat) bool { return h.Sharing != nil })
	if err != nil {
		return nil, err
	}
	return heard.alive(rows, time.Now()), nil
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
