package relay

import (
	"context"
	"runtime"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/heartbeat"
	"github.com/scylla-outbox/scylla-outbox/internal/self"
)

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
	Status func() (heartbeat.RelaySharing, []string)

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
		_ = m.write(ctx, heartbeat.Running, began) // the heartbeats of the relays log failures
		select {
		case <-tick.C:
		case <-ctx.Done():
			_ = m.write(context.WithoutCancel(ctx), heartbeat.Stopped, began)
			return
		}
	}
}

// write writes the rows.
func (m *Membership) write(ctx context.Context, state string, began time.Time) error {
	sharing, problems := m.Status()
	if m.joined = m.joined || sharing.Joined; state == heartbeat.Running && !m.joined {
		state = heartbeat.Starting
	}
	h := heartbeat.RelayStatus{
		State: state, Ready: len(problems) == 0 && state == heartbeat.Running, Problems: append([]string{}, problems...), Host: self.Host(), Version: m.Version,
		StartedAt: utc(began), Sharing: &sharing, Lag: []heartbeat.StreamLag{}, StalledTopics: []string{},
		Goroutines: runtime.NumGoroutine(),
	}
	h.Rates.Found = make(map[string]float64)
	h.MemoryBytes = heapBytes()
	ctx, cancel := context.WithTimeout(ctx, heartbeatTimeout)
	defer cancel()
	for _, table := range m.Tables {
		row := heartbeat.Row{Relay: m.Name, Table: table, Instance: self.Process() + heartbeat.SharesSuffix, RelayStatus: h}
		if err := heartbeat.Write(ctx, m.Session, m.Keyspace, &row, heartbeatLife); err != nil {
			return err
		}
	}
	return nil
}
