package relay

import (
	"context"
	"encoding/json"
	"runtime"
	"strings"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/self"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/checkpoint"
)

// Sharing is the part of a relay that one of its instances processes.
type Sharing struct {
	// Shards is the number of shards of the relay, Owned the shards of this instance.
	Shards int   `json:"shards"`
	Owned  []int `json:"owned"`
	// Joined is true if the broker acknowledges the instance as a member.
	Joined bool `json:"joined"`
	// Error is the last error of the broker, empty while it acknowledges the instance. Since
	// is the time of the first one after the last success, and Unreachable reports that no
	// broker answered.
	Error       string    `json:"error,omitempty"`
	Since       time.Time `json:"since,omitzero"`
	Unreachable bool      `json:"unreachable,omitempty"`
}

// sharesSuffix ends the instance names of instances that share, in relay_instances.
const sharesSuffix = "/shards"

// ProcessName returns the host and process of an instance in relay_instances, for display.
func ProcessName(instance string) string { return strings.TrimSuffix(instance, sharesSuffix) }

// Membership publishes which shards of a relay an instance processes, in a row of
// relay_instances under the relay's own name, in addition to the rows of its shards. It
// makes standby instances visible.
type Membership struct {
	Session                 *gocql.Session
	Keyspace, Name, Version string
	// Tables are the outbox tables, with their keyspaces.
	Tables []string
	// Status returns the part that the instance processes, and the reasons why it is not
	// ready.
	Status func() (Sharing, []string)

	joined bool // the instance was a member of the group
}

// Beat writes the rows, immediately and at every DefaultHeartbeat until ctx ends, and
// then that the instance stopped. The instance is starting until it has joined the group.
// A failed write is retried at the next interval. Beat must not be called concurrently.
func (m *Membership) Beat(ctx context.Context) {
	began := time.Now().UTC()
	tick := time.NewTicker(DefaultHeartbeat)
	defer tick.Stop()
	for {
		_ = m.write(ctx, "running", began) // the heartbeats of the relays log failures
		select {
		case <-tick.C:
		case <-ctx.Done():
			_ = m.write(context.WithoutCancel(ctx), "stopped", began)
			return
		}
	}
}

// write writes the rows.
func (m *Membership) write(ctx context.Context, state string, began time.Time) error {
	sharing, problems := m.Status()
	if m.joined = m.joined || sharing.Joined; state == "running" && !m.joined {
		state = "starting"
	}
	h := heartbeat{
		State: state, Ready: len(problems) == 0 && state == "running", Problems: append([]string{}, problems...), Host: self.Host(), Version: m.Version,
		StartedAt: utc(began), Sharing: &sharing, Groups: []checkpoint.GroupLag{}, Lag: []checkpoint.StreamLag{}, StalledTopics: []string{},
		Goroutines: runtime.NumGoroutine(),
	}
	h.Rates.Found = make(map[string]float64)
	h.MemoryBytes = heapBytes()
	text, err := json.Marshal(h)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, heartbeatTimeout)
	defer cancel()
	for _, table := range m.Tables {
		if err := saveInstance(ctx, m.Session, m.Keyspace, m.Name, table, self.Process()+sharesSuffix, string(text)); err != nil {
			return err
		}
	}
	return nil
}
