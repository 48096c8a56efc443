package subscribing

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/verify"
)

// judge checks the ledger.
type judge struct {
	*ledger
	deadLetters map[string][]*dlq.DeadLetter // by message
}

// judge checks a subscription whose instances have stopped.
func (l *ledger) judge() {
	l.mu.Lock()
	defer l.mu.Unlock()
	j := judge{l, l.deadLetters()}
	for name := range l.mu.early {
		l.w.t.Errorf("%s: %s was delivered and never published", l.Name, name)
	}
	lanes := make(map[string][]*message)
	for _, m := range l.mu.messages {
		slices.SortStableFunc(m.deliveries, func(a, b *delivery) int { return a.start.Compare(b.start) })
		lane := fmt.Sprint(m.topic, "/", m.made, "/", m.partition, "/", m.key)
		lanes[lane] = append(lanes[lane], m)
		j.lost(m)
		j.moved(m)
		j.settledOnce(m)
		j.gaveUp(m)
		j.oneLease(m)
		j.attempts(m)
		if l.Push != nil {
			j.calls(m)
		}
	}
	if l.Ordering != subscriptions.OrderingNone {
		for _, lane := range lanes {
			slices.SortFunc(lane, func(a, b *message) int { return cmp.Compare(a.offset, b.offset) })
			j.order(lane)
			if l.Push != nil {
				j.backwards(lane)
			}
		}
	}
	j.verify()
}

// deadLetters returns all dead letters by message, also resolved ones.
func (l *ledger) deadLetters() map[string][]*dlq.DeadLetter {
	out := make(map[string][]*dlq.DeadLetter)
	must(l.w.t, l.w.deadLetters.List(l.w.t.Context(), dlq.Filter{Table: l.DeadLetterTable()}, func(d *dlq.DeadLetter) error {
		full, err := l.w.deadLetters.Read(l.w.t.Context(), d.EventID)
		must(l.w.t, err)
		name := full.Headers["name"]
		out[name] = append(out[name], &full)
		l.w.counts.deadLettered.Add(1)
		return nil
	}))
	return out
}

// leftOpen returns the number of dead letters that stay open at the end.
func (l *ledger) leftOpen() (n int64) {
	must(l.w.t, l.w.deadLetters.Chains(l.w.t.Context(), l.DeadLetterTable(), func(c dlq.ChainEntry) error {
		if c.Status == dlq.Suspended && !(l.Ordering == subscriptions.OrderingStrict) {
			n++
		}
		return nil
	}))
	return n
}

// former reports whether the topic of a message was deleted after it was published.
func (j *judge) former(m *message) bool { return m.made < j.w.made(m.topic) }

// excused reports whether an operator or the broker may have removed a message.
func (j *judge) excused(m *message) bool {
	p := place{m.topic, m.partition}
	if j.former(m) || m.at.Before(j.mu.purged) || m.offset < j.mu.deleted[p] {
		return true
	}
	return slices.ContainsFunc(j.mu.seeks[p], func(s seek) bool { return !m.at.After(s.at) && m.offset < s.offset || !s.ok })
}

// loose reports whether a seek may have ended leases of a message and repeated it.
func (j *judge) loose(m *message) bool { return len(j.mu.seeks[place{m.topic, m.partition}]) > 0 }

// unwanted reports whether the plugin does not accept a message.
func (j *judge) unwanted(m *message) bool { return j.Push != nil && m.unwanted }

func (m *message) String() string {
	return fmt.Sprintf("%s (%s/%d/%d)", m.name, m.topic, m.partition, m.offset)
}

// story returns what happened to a message.
func (m *message) story() string {
	var b strings.Builder
	for _, d := range m.deliveries {
		fmt.Fprintf(&b, "\n  %s leased to %s by %s, attempt %d", stamp(d.start), stamp(d.until), d.by, d.attempt)
		for _, a := range d.actions {
			fmt.Fprintf(&b, "\n    %s %s: %q at %s", stamp(a.asked), a.Action, a.code, stamp(a.done))
		}
	}
	return b.String()
}

func stamp(t time.Time) string { return t.UTC().Format("04:05.000") }

func (j *judge) wrongf(m *message, format string, args ...any) {
	j.w.t.Errorf("%s (%s): %s %s%s", j.Name, j.Ordering, m, fmt.Sprintf(format, args...), m.story())
}

// lost: a message was acknowledged, rejected, dead-lettered, or removed by an operator. One
// that the plugin rejected must be a dead letter.
func (j *judge) lost(m *message) {
	if len(j.deadLetters[m.name]) > 0 || j.excused(m) || j.unwanted(m) {
		return
	}
	for _, d := range m.deliveries {
		if slices.ContainsFunc(d.actions, func(a *action) bool {
			return a.ends() && a.possible() && (j.Push == nil || a.Action == subscriptions.ActionAck)
		}) {
			return
		}
	}
	j.wrongf(m, "is lost")
}

// moved: after the last seek to or before a message it was delivered again.
func (j *judge) moved(m *message) {
	seeks := j.mu.seeks[place{m.topic, m.partition}]
	if len(seeks) == 0 || j.former(m) || m.at.Before(j.mu.purged) || m.offset < j.mu.deleted[place{m.topic, m.partition}] {
		return
	}
	last := seeks[len(seeks)-1]
	if j.unwanted(m) || !last.ok || m.offset < last.offset || slices.ContainsFunc(m.deliveries, func(d *delivery) bool { return !d.start.Before(last.at) }) {
		return
	}
	if slices.ContainsFunc(j.deadLetters[m.name], func(d *dlq.DeadLetter) bool { return d.LastFailedAt.After(last.at) }) {
		return // its deliveries went to consumers that crashed
	}
	j.wrongf(m, "was not delivered after the seek at %s", stamp(last.at))
}

// settledOnce: after a confirmed acknowledgement or rejection there is no other delivery,
// except for a replay. A replay that is requested while its message is in progress again, as
// after the failure of the owner that wrote the dead letter, waits for the end of that.
func (j *judge) settledOnce(m *message) {
	if j.loose(m) {
		return
	}
	for _, d := range m.deliveries {
		for _, a := range d.actions {
			if !a.ends() || a.code != subscriptions.CodeOK {
				continue
			}
			for _, later := range m.deliveries {
				replayed := slices.ContainsFunc(j.mu.replayed[m.name], func(at time.Time) bool { return !at.After(later.start) })
				if later.start.After(d.start) && !replayed {
					j.wrongf(m, "was delivered at %s, after the confirmed %s of the delivery at %s", stamp(later.start), a.Action, stamp(d.start))
				}
			}
		}
	}
}

// gaveUp: a message that became a dead letter is delivered only by a replay or a seek. Dead
// letters have times in milliseconds.
func (j *judge) gaveUp(m *message) {
	if j.loose(m) || len(j.mu.replayed[m.name]) > 0 {
		return
	}
	for _, l := range j.deadLetters[m.name] {
		for _, d := range m.deliveries {
			if d.start.After(l.LastFailedAt.Add(time.Millisecond)) {
				j.wrongf(m, "was delivered at %s, after it became a dead letter at %s", stamp(d.start), stamp(l.LastFailedAt))
			}
		}
	}
}

// oneLease: a receipt has no effect after another one was issued.
func (j *judge) oneLease(m *message) {
	if j.loose(m) {
		return
	}
	for i, d := range m.deliveries {
		for _, later := range m.deliveries[i+1:] {
			if !later.start.After(d.start) {
				continue
			}
			asked := make(map[subscriptions.Action]bool)
			for _, a := range d.actions {
				if a.asked.After(later.start) && a.code == subscriptions.CodeOK && !asked[a.Action] {
					j.wrongf(m, "has two leases: %s of the one at %s was accepted at %s, after the lease at %s", a.Action, stamp(d.start), stamp(a.asked), stamp(later.start))
				}
				if a.Action != subscriptions.ActionExtend && !a.asked.After(later.start) {
					asked[a.Action] = true // the results of the last leases are known
				}
			}
		}
	}
}

// attempts: no delivery has a number above the maximum. A lower one takes effect with the
// next failure.
func (j *judge) attempts(m *message) {
	for _, d := range m.deliveries {
		if d.attempt < 1 || d.attempt > d.max && (d.max == 1 || d.attempt > maxMaxReceive) {
			j.wrongf(m, "has attempt %d of %d", d.attempt, d.max)
		}
	}
}

// order: a message of a key is delivered after the former ones are settled.
func (j *judge) order(lane []*message) {
	for i, m := range lane {
		if j.loose(m) {
			continue
		}
		for _, d := range m.deliveries {
			for _, before := range lane[:i] {
				if !j.settledBy(before, d.start) && !(j.runs && before.leasedWith(d)) {
					j.wrongf(m, "was delivered at %s, before the end of %s%s", stamp(d.start), before, before.story())
				}
			}
		}
	}
}

// leasedWith reports whether a message was leased together with a delivery: they are a run.
func (m *message) leasedWith(d *delivery) bool {
	return slices.ContainsFunc(m.deliveries, func(o *delivery) bool { return o.by == d.by && o.start.Equal(d.start) })
}

// settledBy reports whether a message may have been settled at a time.
func (j *judge) settledBy(m *message, at time.Time) bool {
	if j.excused(m) || j.unwanted(m) {
		return true
	}
	for _, d := range m.deliveries {
		if slices.ContainsFunc(d.actions, func(a *action) bool {
			return !a.asked.After(at) && a.possible() && (a.Action == subscriptions.ActionAck || a.Action == subscriptions.ActionReject && j.Push == nil && j.Ordering != subscriptions.OrderingStrict)
		}) {
			return true
		}
	}
	if dropped, ok := j.mu.dropped[m.name]; ok && !dropped.After(at) {
		return true
	}
	if j.Ordering == subscriptions.OrderingStrict {
		return false
	}
	return slices.ContainsFunc(j.deadLetters[m.name], func(l *dlq.DeadLetter) bool {
		if len(j.mu.replayed[m.name]) > 0 { // the last failure is that of a replay
			return !l.FirstFailedAt.After(at)
		}
		return !l.LastFailedAt.After(at)
	})
}

// verify: the stored state has neither losses nor work left.
func (j *judge) verify() {
	r, err := verify.Check(context.Background(), verify.Config{Store: j.w.store, DeadLetters: j.w.deadLetters, Kafka: j.w.admin}, j.Name)
	must(j.w.t, err)
	for _, p := range r.Problems {
		if p.Kind == verify.Skipped && j.w.made(p.Topic) > 0 {
			continue // the records of the former topic, which are reported
		}
		j.w.t.Errorf("%s: verify reports %+v", j.Name, p)
	}
	if r.Waiting != 0 || r.Stored != 0 {
		j.w.t.Errorf("%s: %d messages wait and %d are stored at the end", j.Name, r.Waiting, r.Stored)
	}
}
