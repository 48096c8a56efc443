package relay

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/gocql/gocql"
	"github.com/scylla-outbox/scylla-outbox/internal/again"
	"github.com/scylla-outbox/scylla-outbox/internal/self"
)

// Sharing is what an instance that shares a relay with others says of its part.
type Sharing struct {
	// Shards is how many the instances share, Owned which of them this one carries.
	Shards int   `json:"shards"`
	Owned  []int `json:"owned"`
	// Joined says that the broker acknowledges the instance.
	Joined bool `json:"joined"`
}

// Membership tells of an instance that carries shards of a relay, whichever they
// are: a row in relay_instances under the relay's own name, beside those of its
// shards. So one that stands by is seen, and a relay of the same name that carries
// the table whole is noticed, by both.
type Membership struct {
	Session                 *gocql.Session
	Keyspace, Name, Version string
	// Tables are the outbox tables, with their keyspaces.
	Tables []string
	// Status says what the instance carries, and in one sentence each why it is not
	// ready.
	Status func() (Sharing, []string)
	Logger *slog.Logger
}

// Beat writes the rows, now and every DefaultHeartbeat until ctx ends, and then that
// the instance stopped. What cannot be written is written the next time.
func (m *Membership) Beat(ctx context.Context) {
	instance, started := self.Process(), time.Now().UTC()
	tick := time.NewTicker(DefaultHeartbeat)
	defer tick.Stop()
	for {
		m.write(ctx, instance, "running", started)
		select {
		case <-tick.C:
		case <-ctx.Done():
			m.write(context.WithoutCancel(ctx), instance, "stopped", started)
			return
		}
	}
}

func (m *Membership) write(ctx context.Context, instance, state string, started time.Time) {
	sharing, problems := m.Status()
	h := heartbeat{
		State: state, Ready: len(problems) == 0 && state == "running", Problems: append([]string{}, problems...), Host: self.Host(), Version: m.Version,
		StartedAt: utc(started), Sharing: &sharing, Groups: []groupLag{}, Lag: []streamLag{}, StalledTopics: []string{}, OtherInstances: []string{},
		Goroutines: runtime.NumGoroutine(),
	}
	h.Breaker.State = BreakerClosed.String()
	h.Rates.Found = make(map[string]float64)
	h.MemoryBytes = heapBytes()
	text, err := json.Marshal(h)
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, heartbeatTimeout)
	defer cancel()
	for _, table := range m.Tables {
		if err := m.Session.Query("INSERT INTO "+m.Keyspace+".relay_instances (scope, relay, table_name, instance, at, status) VALUES ('keyspace', ?, ?, ?, ?, ?) USING TTL ?",
			m.Name, table, instance, time.Now(), string(text), int(heartbeatLife.Seconds())).WithContext(ctx).Idempotent(true).Exec(); err != nil {
			return // the relays' own heartbeats say so
		}
	}
}

// AwaitSharers waits until no relay of the name carries one of the tables whole: it
// would publish everything that the shards publish. It says for whom it waits. What
// a killed one left behind costs one look more.
func (m *Membership) AwaitSharers(ctx context.Context) error {
	said := false
	last, err := m.whole(ctx)
	for err == nil && len(last) > 0 {
		if again.Wait(ctx, DefaultHeartbeat*3/2) != nil {
			return context.Cause(ctx)
		}
		var now map[string]time.Time
		if now, err = m.whole(ctx); err != nil {
			break
		}
		var alive []string
		for who, at := range now {
			if before, ok := last[who]; ok && !at.Equal(before) {
				alive = append(alive, who)
			}
		}
		if len(alive) == 0 {
			break
		}
		slices.Sort(alive)
		if !said {
			said = true
			m.Logger.Warn("a relay of this name carries the table alone, and would publish everything twice beside one that shares: this one waits until it is stopped",
				"relay", m.Name, "other_instance", strings.Join(alive, ", "))
		}
		last = now
	}
	if err != nil {
		return fmt.Errorf("read which relays run: %w", err)
	}
	if said {
		m.Logger.Info("the relay that carried the table alone is gone", "relay", m.Name)
	}
	return nil
}

// whole are the relays of the name that carry a table whole and did not say that
// they stopped, with when they said something last.
func (m *Membership) whole(ctx context.Context) (map[string]time.Time, error) {
	out := make(map[string]time.Time)
	for _, table := range m.Tables {
		iter := m.Session.Query("SELECT instance, at, status FROM "+m.Keyspace+".relay_instances WHERE scope = 'keyspace' AND relay = ? AND table_name = ?",
			m.Name, table).WithContext(ctx).Idempotent(true).Iter()
		var instance, status string
		var at time.Time
		for iter.Scan(&instance, &at, &status) {
			var h heartbeat
			if json.Unmarshal([]byte(status), &h) == nil && h.State != "stopped" && h.Sharing == nil {
				out[instance] = at
			}
		}
		if err := iter.Close(); err != nil {
			return nil, err
		}
	}
	return out, nil
}
