package share

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
)

// onAssigned takes what the group gives in addition. The client calls it, and the
// two below, one at a time.
func (m *Member) onAssigned(_ context.Context, _ *kgo.Client, added map[string][]int32) {
	m.metrics.rebalances.Inc()
	m.mu.Lock()
	for _, p := range added[m.cfg.topic()] {
		if int(p) >= m.cfg.Shards { // somebody added partitions
			m.fail(&CountError{Topic: m.cfg.topic(), Partitions: int(p) + 1, Shards: m.cfg.Shards})
			continue
		}
		m.assigned[int(p)] = true
	}
	m.settle()
	m.mu.Unlock()
	m.beatNow() // the first one is what the lease begins with
}

// onRevoked gives up what the group gives to others. It holds the rebalance until
// the work on that has ended.
func (m *Member) onRevoked(_ context.Context, _ *kgo.Client, revoked map[string][]int32) {
	holds := m.unassign(revoked)
	for _, h := range holds {
		h.cancel(ErrRevoked)
	}
	m.await(holds)
}

// onLost gives up what the group has given to others already.
func (m *Member) onLost(_ context.Context, _ *kgo.Client, lost map[string][]int32) {
	holds := m.unassign(lost)
	m.putOut(holds)
	m.await(holds)
}

// putOut ends work at once, because the broker has put this member out of the group.
func (m *Member) putOut(holds []*Hold) {
	m.lease.drop()
	n := 0
	for _, h := range holds {
		if h.lose(fmt.Errorf("%w: the broker has put this instance out of the group", ErrLost)) {
			n++
		}
	}
	if n > 0 {
		m.metrics.lost.Add(float64(n))
		m.log.Warn("shards lost: the broker has put this instance out of the group, and may have given them to others", "shards", n)
	}
}

// unassign forgets that shards are assigned, and returns the work on them.
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

// groupErrors is told why a session of the group ended.
type groupErrors struct{ m *Member }

var _ kgo.HookGroupManageError = groupErrors{}

// OnGroupManageError ends everything if waiting does not help; the client tries
// again by itself.
func (g groupErrors) OnGroupManageError(err error) {
	if said := g.m.cfg.explain(err); said != nil {
		g.m.fail(said)
		return
	}
	g.m.note(err)
}

// poll takes what the client has to say, so that it does not pile up. Nothing else
// comes: the topic is empty, and is not read.
func (m *Member) poll(ctx context.Context) {
	for ctx.Err() == nil {
		m.client.PollFetches(ctx)
	}
}
