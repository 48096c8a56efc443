package relay

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"
)

// otherSilent is for how long another instance may say nothing before it counts as gone.
const otherSilent = 5 * DefaultHeartbeat

// OtherInstance is another process that runs a relay of the same name on the same
// table. Both publish everything.
type OtherInstance struct {
	// Instance is its host and process, Version what it runs.
	Instance, Version string
	// Since is when this relay noticed it.
	Since time.Time
}

// others are the instances of the relay's own name that are alive. It is safe for
// concurrent use.
//
// A process that was killed leaves a row behind, and clocks of hosts differ, so
// what counts is whether a row changes from one look to the next.
type others struct {
	mu   sync.Mutex
	seen map[otherKey]*otherSeen
}

// otherKey is a process: in containers two may have one host name and one number.
type otherKey struct {
	instance string
	started  time.Time
}

type otherSeen struct {
	OtherInstance
	at    time.Time // what it said last, by its own clock
	heard time.Time // when that was new, by ours
}

// otherRow is a row of relay_instances.
type otherRow struct {
	otherKey
	version string
	at      time.Time
	stopped bool
}

// look takes the rows of the relay's name, own among them, and returns who is new
// and who is gone since the last time.
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
	for key := range o.seen { // a row goes when it has expired, or when another process has its place
		if !slices.ContainsFunc(rows, func(r otherRow) bool { return r.otherKey == key }) && o.seen[key].Since.IsZero() {
			delete(o.seen, key)
		}
	}
	return came, went
}

// alive are the other instances that are alive, by name.
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

// readOthers reads what the relays of this name say of themselves, this one among them.
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
			continue // of a version that says it otherwise
		}
		r.started, r.version, r.stopped = said.StartedAt.UTC(), said.Version, said.State == "stopped" || said.State == stateWaiting // which publishes nothing
		out = append(out, r)
	}
	return out, iter.Close()
}

// lookAround says whether another process runs this relay. What cannot be read is
// read with the next heartbeat.
func (b *beating) lookAround(ctx context.Context) {
	if len(b.r.giving.to()) > 0 {
		return // it publishes nothing, so nothing is published twice
	}
	read, cancel := context.WithTimeout(ctx, heartbeatTimeout)
	defer cancel()
	rows, err := b.readOthers(read)
	if err != nil {
		return // the heartbeat goes the same way, and says so
	}
	came, went := b.r.others.look(rows, otherKey{b.instance, b.started}, time.Now())
	for _, o := range came {
		b.r.log.Warn("another process runs a relay of this name on this table, and both publish every event: stop one of them, or give one another table",
			"relay", b.r.cfg.shardName(), "instance", b.instance, "other_instance", o.Instance, "other_version", o.Version)
	}
	for _, o := range went {
		b.r.log.Info("the other process with a relay of this name is gone", "relay", b.r.cfg.shardName(), "other_instance", o.Instance, "since", o.Since)
	}
}
