package relay

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"
)

// otherSilent is how long the row of another instance may stay unchanged before the
// instance counts as stopped.
const otherSilent = 5 * DefaultHeartbeat

// OtherInstance is another process that runs a relay of the same name on the same table.
// Both publish every event.
type OtherInstance struct {
	// Instance is its host and process, Version its version.
	Instance, Version string
	// Since is the time when this relay detected it.
	Since time.Time
}

// others are the live instances with the name of the relay. It is safe for concurrent
// use.
//
// A killed process leaves its row, and the clocks of hosts differ, so an instance counts
// as alive if its row changes between two reads.
type others struct {
	mu   sync.Mutex
	seen map[otherKey]*otherSeen
}

// otherKey identifies a process: in containers two may have the same host name and
// process number.
type otherKey struct {
	instance string
	started  time.Time
}

type otherSeen struct {
	OtherInstance
	at    time.Time // last update, by its clock
	heard time.Time // when the last update was read, by the local clock
}

// otherRow is a row of relay_instances.
type otherRow struct {
	otherKey
	version string
	at      time.Time
	stopped bool
}

// look compares the rows of the relay, including its own, with the previous ones and
// returns the instances that started and stopped.
func (o *others) look(rows []otherRow, own otherKey, now time.Time) (came, went []OtherInstance) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.seen == nil {
		o.seen = make(map[otherKey]*otherSeen)
	}
	for _, r := range rows {
		if r.instance == own.instance && r.started.Equal(own.started) {
			continue
		}
		s := o.seen[r.otherKey]
		switch {
		case s == nil:
			o.seen[r.otherKey] = &otherSeen{at: r.at}
			continue
		case r.stopped:
			s.heard = time.Time{}
		case !r.at.Equal(s.at):
			s.heard = now
		}
		s.at, s.Instance, s.Version = r.at, r.instance, r.version
	}
	for _, s := range o.seen {
		alive := !s.heard.IsZero() && now.Sub(s.heard) < otherSilent
		switch {
		case alive && s.Since.IsZero():
			s.Since = now
			came = append(came, s.OtherInstance)
		case !alive && !s.Since.IsZero():
			went = append(went, s.OtherInstance)
			s.Since = time.Time{}
		}
	}
	for key := range o.seen { // the row has expired, or another process has replaced it
		if !slices.ContainsFunc(rows, func(r otherRow) bool { return r.otherKey == key }) && o.seen[key].Since.IsZero() {
			delete(o.seen, key)
		}
	}
	return came, went
}

// alive returns the live other instances, sorted by name.
func (o *others) alive() []OtherInstance {
	o.mu.Lock()
	defer o.mu.Unlock()
	var out []OtherInstance
	for _, s := range o.seen {
		if !s.Since.IsZero() {
			out = append(out, s.OtherInstance)
		}
	}
	slices.SortFunc(out, func(a, b OtherInstance) int { return strings.Compare(a.Instance, b.Instance) })
	return out
}

// readOthers reads the rows of the relays of this name, including this one.
func (b *beating) readOthers(ctx context.Context) ([]otherRow, error) {
	cfg := &b.r.cfg
	iter := cfg.Session.Query("SELECT instance, at, status FROM "+cfg.Keyspace+".relay_instances WHERE scope = 'keyspace' AND relay = ? AND table_name = ?",
		cfg.shardName(), cfg.TableKeyspace+"."+cfg.Table).WithContext(ctx).Idempotent(true).Iter()
	var out []otherRow
	var r otherRow
	var status string
	for iter.Scan(&r.instance, &r.at, &status) {
		var said struct {
			State     string    `json:"state"`
			Version   string    `json:"version"`
			StartedAt time.Time `json:"started_at"`
		}
		if json.Unmarshal([]byte(status), &said) != nil {
			continue // written by a version with another format
		}
		r.started, r.version, r.stopped = said.StartedAt.UTC(), said.Version, said.State == "stopped" || said.State == stateWaiting // a waiting relay publishes nothing
		out = append(out, r)
	}
	return out, iter.Close()
}

// lookAround logs whether another process runs this relay. A failed read is retried with
// the next heartbeat.
func (b *beating) lookAround(ctx context.Context) {
	if len(b.r.giving.to()) > 0 {
		return // a waiting relay publishes nothing twice
	}
	read, cancel := context.WithTimeout(ctx, heartbeatTimeout)
	defer cancel()
	rows, err := b.readOthers(read)
	if err != nil {
		return // the heartbeat fails too, and is logged
	}
	came, went := b.r.others.look(rows, otherKey{b.instance, b.started}, time.Now())
	for _, o := range came {
		b.r.log.Warn("another process runs a relay of this name on this table; both publish every event: stop one, or change its table",
			"relay", b.r.cfg.shardName(), "instance", b.instance, "other_instance", o.Instance, "other_version", o.Version)
	}
	for _, o := range went {
		b.r.log.Info("other process with a relay of this name has stopped", "relay", b.r.cfg.shardName(), "other_instance", o.Instance, "since", o.Since)
	}
}
