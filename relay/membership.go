package relay

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/internal/self"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/checkpoint"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/publish"
)

// Sharing is the part of a relay that one of its instances processes.
type Sharing struct {
	// Shards is the number of shards of the relay, Owned the shards of this instance.
	Shards int   `json:"shards"`
	Owned  []int `json:"owned"`
	// Joined is true if the broker acknowledges the instance as a member.
	Joined bool `json:"joined"`
}

// sharesSuffix ends the instance names of instances that share, in relay_instances.
const sharesSuffix = "/shards"

// ProcessOf returns the host and process of an instance in relay_instances, for display.
func ProcessOf(instance string) string { return strings.TrimSuffix(instance, sharesSuffix) }

// Membership publishes that an instance processes shards of a relay, whichever they are,
// in a row of relay_instances under the relay's own name, in addition to the rows of its
// shards. It makes standby instances visible, and lets a relay of the same name that
// processes the whole table and an instance that shares detect each other.
type Membership struct {
	Session                 *gocql.Session
	Keyspace, Name, Version string
	// Tables are the outbox tables, with their keyspaces.
	Tables []string
	// Status returns the part that the instance processes, and the reasons why it is not
	// ready.
	Status func() (Sharing, []string)
	Logger *slog.Logger

	begun    sync.Once
	since    time.Time // start of this instance
	instance string    // host, process and sharesSuffix: in containers a relay of the whole table may have the same host and process
	waiting  atomic.Bool
}

// Beat writes the rows, immediately and at every DefaultHeartbeat until ctx ends, and
// then that the instance stopped. A failed write is retried at the next interval.
func (m *Membership) Beat(ctx context.Context) {
	tick := time.NewTicker(DefaultHeartbeat)
	defer tick.Stop()
	for {
		_ = m.write(ctx, "running") // the heartbeats of the relays log failures
		select {
		case <-tick.C:
		case <-ctx.Done():
			_ = m.write(context.WithoutCancel(ctx), "stopped")
			return
		}
	}
}

// write writes the rows.
func (m *Membership) write(ctx context.Context, state string) error {
	m.begun.Do(func() { m.since, m.instance = time.Now().UTC(), cmp.Or(m.instance, self.Process()+sharesSuffix) })
	sharing, problems := m.Status()
	if state == "running" && m.waiting.Load() {
		state = stateWaiting
	}
	h := heartbeat{
		State: state, Ready: len(problems) == 0 && state == "running", Problems: append([]string{}, problems...), Host: self.Host(), Version: m.Version,
		StartedAt: utc(m.since), Sharing: &sharing, Groups: []checkpoint.GroupLag{}, Lag: []checkpoint.StreamLag{}, StalledTopics: []string{}, OtherInstances: []string{},
		Goroutines: runtime.NumGoroutine(),
	}
	h.Breaker.State = publish.BreakerClosed.String()
	h.Rates.Found = make(map[string]float64)
	h.MemoryBytes = heapBytes()
	text, err := json.Marshal(h)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, heartbeatTimeout)
	defer cancel()
	for _, table := range m.Tables {
		if err := saveInstance(ctx, m.Session, m.Keyspace, m.Name, table, m.instance, string(text)); err != nil {
			return err
		}
	}
	return nil
}

// AwaitSharers waits until no relay of the name processes one of the tables whole: it
// would publish the same events as the shards. It logs the instances that it waits for;
// Beat must run concurrently and writes that this instance waits. AwaitSharers does not
// wait for a relay that itself waits for instances that share (GiveWay). A killed
// instance counts as alive until its row has not changed for 10 s.
func (m *Membership) AwaitSharers(ctx context.Context) error {
	m.waiting.Store(true)
	defer m.waiting.Store(false)
	// A relay of the whole table reads these rows, so they are written before this
	// instance reads.
	if err := m.write(ctx, "running"); err != nil {
		return fmt.Errorf("write the start of this instance: %w", err)
	}
	said, heard := false, make(hearing)
	for {
		rows, err := m.instances(ctx, func(h *heartbeat) bool { return h.Sharing == nil && h.State != stateWaiting })
		if err != nil {
			return fmt.Errorf("read the running relays: %w", err)
		}
		alive := heard.alive(rows, time.Now())
		if len(alive) == 0 {
			break
		}
		if sure := heard.sure(alive); !said && len(sure) > 0 {
			said = true
			m.Logger.Warn("waiting for a relay of this name that processes the whole table; beside it every event would be published twice",
				"relay", m.Name, "other_instance", strings.Join(sure, ", "))
		}
		if retry.Wait(ctx, DefaultHeartbeat) != nil {
			return context.Cause(ctx)
		}
	}
	if said {
		m.Logger.Info("relay of the whole table has stopped", "relay", m.Name)
	}
	return nil
}
