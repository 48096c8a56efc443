package share

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
)

// onAssigned adds newly assigned shards. The client never calls onAssigned, onRevoked and
// onLost concurrently.
func (m *Member) onAssigned(_ context.Context, _ *kgo.Client, added map[string][]int32) {
	m.metrics.rebalances.Inc()
	m.mu.Lock()
	for _, p := range added[m.cfg.topic()] {
		if int(p) >= m.cfg.Shards { // partitions were added
			m.fail(&CountError{Topic: m.cfg.topic(), Partitions: int(p) + 1, Shards: m.cfg.Shards})
			continue
		}
		m.assigned[int(p)] = true
	}
	m.settle()
	m.mu.Unlock()
	m.beatNow() // its answer begins the lease
}

// onRevoked releases the revoked shards. The rebalance waits until the work on them has
// ended.
func (m *Member) onRevoked(_ context.Context, _ *kgo.Client, revoked map[string][]int32) {
	holds := m.unassign(revoked)
	for _, h := range holds {
		h.cancel(ErrRevoked)
	}
	m.await(holds)
}

// onLost stops work on shards that the group has already reassigned.
func (m *Member) onLost(_ context.Context, _ *kgo.Client, lost map[string][]int32) {
	holds := m.unassign(lost)
	m.putOut(holds)
	m.await(holds)
}

// putOut ends work immediately, because the broker has removed this member from the
// group.
func (m *Member) putOut(holds []*Hold) {
	m.lease.drop()
	n := 0
	for _, h := range holds {
		if h.lose(fmt.Errorf("%w: the broker removed this instance from the group", ErrLost)) {
			n++
		}
	}
	if n > 0 {
		m.metrics.lost.Add(float64(n))
		m.log.Warn("shards lost: the broker removed this instance from the group", "shards", n)
	}
}

// unassign removes shards from the assigned ones and returns their holds.
func (m *Member) unassign(gone map[string][]int32) (holds []*Hold) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range gone[m.cfg.topic()] {
		delete(m.assigned, int(p))
		if h := m.holds[int(p)]; h != nil {
			holds = append(holds, h)
		}
	}
	return holds
}

// groupErrors receives the errors of the group's sessions.
type groupErrors struct{ m *Member }

var _ kgo.HookGroupManageError = groupErrors{}

// OnGroupManageError stops the member if retries cannot resolve err; otherwise the client
// retries.
func (g groupErrors) OnGroupManageError(err error) {
	if said := g.m.cfg.explain(err); said != nil {
		g.m.fail(said)
		return
	}
	g.m.note(err)
}

// poll drains the client's errors. It returns no records: the topic is empty and paused.
func (m *Member) poll(ctx context.Context) {
	for ctx.Err() == nil {
		m.client.PollFetches(ctx)
	}
}
