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

// Sharing is what an instance that shares a relay with others says of its part.
type Sharing struct {
	// Shards is how many the instances share, Owned which of them this one carries.
	Shards int   `json:"shards"`
	Owned  []int `json:"owned"`
	// Joined says that the broker acknowledges the instance.
	Joined bool `json:"joined"`
}

// sharesSuffix ends the names of the rows of instances that share, in relay_instances.
const sharesSuffix = "/shards"

// ProcessOf is the host and process of an instance in relay_instances, for people.
func ProcessOf(instance string) string { return strings.TrimSuffix(instance, sharesSuffix) }

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

	begun    sync.Once
	since    time.Time // when this instance began
	instance string    // its host and process, and that it shares: in containers one that is alone may have the same
	waiting  atomic.Bool
}

// Beat writes the rows, now and every DefaultHeartbeat until ctx ends, and then that
// the instance stopped. What cannot be written is written the next time.
func (m *Membership) Beat(ctx context.Context) {
	tick := time.NewTicker(DefaultHeartbeat)
	defer tick.Stop()
	for {
		_ = m.write(ctx, "running") // the relays' own heartbeats say what goes wrong
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

// AwaitSharers waits until no relay of the name carries one of the tables whole: it
// would publish everything that the shards publish. It says for whom it waits, and
// Beat, which is to run meanwhile, that it does. One that itself waits for those that
// share (GiveWay) is not waited for. A killed one counts as alive until it has
// said nothing for 10 s.
func (m *Membership) AwaitSharers(ctx context.Context) error {
	m.waiting.Store(true)
	defer m.waiting.Store(false)
	// Who carries the table whole looks for these rows, so they are there before this
	// one looks.
	if err := m.write(ctx, "running"); err != nil {
		return fmt.Errorf("say that this instance starts: %w", err)
	}
	said, heard := false, make(hearing)
	for {
		rows, err := m.instances(ctx, func(h *heartbeat) bool { return h.Sharing == nil && h.State != stateWaiting })
		if err != nil {
			return fmt.Errorf("read which relays run: %w", err)
		}
		alive := heard.alive(rows, time.Now())
		if len(alive) == 0 {
			break
		}
		if sure := heard.sure(alive); !said && len(sure) > 0 {
			said = true
			m.Logger.Warn("a relay of this name carries the table alone, and would publish everything twice beside one that shares: this one waits until it is stopped",
				"relay", m.Name, "other_instance", strings.Join(sure, ", "))
		}
		if retry.Wait(ctx, DefaultHeartbeat) != nil {
			return context.Cause(ctx)
		}
	}
	if said {
		m.Logger.Info("the relay that carried the table alone is gone", "relay", m.Name)
	}
	return nil
}
