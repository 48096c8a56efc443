package share

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// memberGeneration is a member in one generation of the group.
type memberGeneration struct {
	id         string
	generation int32
}

// heartbeats sends the heartbeats that renew the lease until ctx ends. The client sends
// its own, to detect rebalances, but does not expose the answers and sends none while it
// leaves.
func (m *Member) heartbeats(ctx context.Context) {
	tick := time.NewTicker(m.cfg.heartbeat())
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-m.beat:
		case <-ctx.Done():
			return
		}
		m.heartbeat(ctx)
	}
}

// beatNow requests a heartbeat.
func (m *Member) beatNow() {
	select {
	case m.beat <- struct{}{}:
	default:
	}
}

// heartbeat sends a heartbeat and renews the lease by the answer.
func (m *Member) heartbeat(ctx context.Context) {
	id, generation := m.client.GroupMetadata()
	if id == "" || generation < 0 {
		return // not in the group
	}
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.MemberID, req.Generation = m.cfg.Name, id, generation
	ctx, cancel := context.WithTimeout(ctx, m.cfg.patience())
	defer cancel()
	// The client may resend the request to a coordinator that moved. The broker cannot
	// have received it before the first send.
	sent := time.Now()
	resp, err := req.RequestWith(ctx, m.client)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	switch {
	case err == nil:
		m.steady = memberGeneration{id, generation}
		m.lease.renew(sent, false)
		m.note(nil)
		m.mu.Lock()
		m.settle()
		m.mu.Unlock()
	case errors.Is(err, kerr.RebalanceInProgress):
		// While a generation is formed, Redpanda answers so without prolonging the session: a
		// member that waits for its assignment is removed a session after it joined.
		if m.steady == (memberGeneration{id, generation}) {
			m.lease.renew(sent, true)
		}
	case errors.Is(err, kerr.UnknownMemberID):
		if now, _ := m.client.GroupMetadata(); now == id { // otherwise it has rejoined
			m.putOut(m.all())
		}
		m.note(err)
	case errors.Is(err, kerr.IllegalGeneration):
		// The client is joining the next session or reports its loss.
	default:
		m.note(fmt.Errorf("heartbeat to the coordinator of group %s: %w", m.cfg.Name, err))
	}
}

// watch ends all functions when the lease is over, until ctx ends.
func (m *Member) watch(ctx context.Context) {
	for {
		wait := m.lease.left()
		if wait == 0 {
			m.fence()
			wait = m.cfg.heartbeat() / 4
		}
		// Do not wait for the whole lease: the wall clock may jump.
		select {
		case <-time.After(min(wait, m.cfg.heartbeat())):
		case <-ctx.Done():
			return
		}
	}
}

// fence ends all functions because the lease is over.
func (m *Member) fence() {
	n := 0
	for _, h := range m.all() {
		if h.Check() == nil { // began after the lease was renewed
			continue
		}
		if h.fenced.CompareAndSwap(false, true) && errors.Is(*h.lost.Load(), errFenced) {
			n++
		}
	}
	if n == 0 {
		return
	}
	m.metrics.fences.Inc()
	m.mu.Lock()
	err := m.err
	m.mu.Unlock()
	m.log.Warn("shards stopped: the broker has acknowledged no heartbeat within the lease",
		"shards", n, "session_timeout", m.cfg.SessionTimeout, "err", err)
}
