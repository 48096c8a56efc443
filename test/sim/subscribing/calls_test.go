package subscribing

import (
	"slices"
	"time"

	"github.com/scylla-outbox/scylla-outbox/subscriptions"
)

// calls checks what only push delivery promises, for a message.
func (j *judge) calls(m *message) {
	ids := make(map[string]bool)
	failures := 0
	for i, d := range m.deliveries {
		ids[d.call.id] = true
		if d.did(subscriptions.ActionReject) {
			failures = maxMaxReceive
		} else if !d.did(subscriptions.ActionAck) {
			failures++ // also one that ended with its process
		}
		if !j.w.settledAt.IsZero() && d.start.After(j.w.settledAt) {
			j.wrongf(m, "was delivered at %s, after every message was settled", stamp(d.start))
		}
		for _, later := range m.deliveries[i+1:] {
			if !j.mayOverlap(d, later) {
				j.wrongf(m, "was delivered at %s during the call that began at %s", stamp(later.start), stamp(d.start))
			}
		}
	}
	if len(ids) > 1 || ids[""] {
		j.wrongf(m, "has %d delivery ids", len(ids))
	}
	if m.unwanted && (len(m.deliveries) > 0 || len(j.deadLetters[m.name]) > 0) {
		j.wrongf(m, "was delivered, or is a dead letter, although the plugin does not accept it")
	}
	// An operator may have lowered the maximum to 2.
	if least := min(m.maxReceive(), 2); !j.former(m) && len(j.deadLetters[m.name]) > 0 && failures < least {
		j.wrongf(m, "is a dead letter after %d failed calls, want %d or a permanent error", failures, least)
	}
}

func (m *message) maxReceive() int {
	if m.once {
		return 1
	}
	return maxMaxReceive
}

// did reports whether a delivery had a result.
func (d *delivery) did(a subscriptions.Action) bool {
	return slices.ContainsFunc(d.actions, func(b *action) bool { return b.Action == a })
}

// mayOverlap reports whether the later one of two calls may have begun: the former one has
// ended, or its instance had lost the partition, or may have.
func (j *judge) mayOverlap(d, later *delivery) bool {
	c, at := d.call, later.start
	over := func(t time.Time) bool { return !t.IsZero() && !t.After(at) }
	switch {
	case over(c.ended), over(c.canceled), over(c.process.deathTime()), c.process.frozenBetween(d.start, at), j.loose(d.message):
		return true
	case c.expired.IsZero() || c.expired.After(at):
		return false
	}
	// A call that hangs keeps its key until the partition is assigned anew.
	return j.w.assigned(d.start, at)
}

// backwards: no call begins for a message that was delivered, after a call for a later one
// of its key: that began after the confirmation.
func (j *judge) backwards(lane []*message) {
	for i, m := range lane {
		if j.loose(m) || len(j.mu.replayed[m.name]) > 0 {
			continue
		}
		for _, after := range lane[i+1:] {
			if len(after.deliveries) == 0 || j.loose(after) {
				continue
			}
			first := after.deliveries[0].start
			acked := func(d *delivery) bool { return d.did(subscriptions.ActionAck) && !d.call.ended.After(first) }
			if slices.ContainsFunc(m.deliveries, acked) && m.deliveries[len(m.deliveries)-1].start.After(first) {
				j.wrongf(m, "was delivered again after %s, which followed the confirmation%s", after, after.story())
			}
		}
	}
}
