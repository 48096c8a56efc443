package engine

import (
	"bytes"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/store"
)

// decision is a conditional write that was decided but not carried out. The next
// conditional or serial operation on its partition carries it out.
type decision struct{ muts []*store.Mutation }

// decide keeps a decided write. The caller holds the partition's lock.
func (e *Engine) decide(id partitionID, muts []*store.Mutation) {
	d := decision{cloneMutations(muts)}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.decided[id] = append(e.decided[id], d)
}

// finishDecided carries out a decided write of a partition, with its original time. A
// write that CDC refuses stays undone and blocks the partition. The caller holds the
// partition's lock.
func (e *Engine) finishDecided(id partitionID) error {
	e.mu.Lock()
	list := e.decided[id]
	e.mu.Unlock()
	for len(list) > 0 {
		d := list[0]
		if err := e.apply(d.muts); err != nil {
			return err
		}
		list = list[1:]
		e.mu.Lock()
		if len(list) == 0 {
			delete(e.decided, id)
		} else {
			e.decided[id] = list
		}
		e.mu.Unlock()
	}
	return nil
}

// replay is a write that waits for its time.
type replay struct{ timer *time.Timer }

// replayLater applies mutations after each of the delays, with their timestamps, as a
// batchlog does: with the log rows of now, whose generation may end before, or, in older
// releases, through CDC again each time, which may refuse them for ever. Like a
// batchlog, it does not report failures of a replay.
func (e *Engine) replayLater(muts []*store.Mutation, times []time.Duration) error {
	muts = cloneMutations(muts)
	if !e.version.HasLogInBatchlog() {
		e.after(times, func() { _ = e.apply(muts) })
		return nil
	}
	all, err := e.addLogRows(muts)
	if err != nil {
		return err
	}
	e.after(times, func() { _ = e.store.Apply(all) })
	return nil
}

// after calls f after each of the delays, unless Close comes first.
func (e *Engine) after(times []time.Duration, f func()) {
	for _, d := range times {
		r := &replay{}
		e.mu.Lock()
		if !e.closed {
			e.replays[r] = struct{}{}
			r.timer = time.AfterFunc(d, func() { e.replay(r, f) })
		}
		e.mu.Unlock()
	}
}

func (e *Engine) replay(r *replay, f func()) {
	e.mu.Lock()
	_, wanted := e.replays[r]
	if wanted {
		delete(e.replays, r)
		e.running.Add(1)
	}
	e.mu.Unlock()
	if !wanted {
		return
	}
	defer e.running.Done()
	f()
}

// Close stops the timers of delayed writes and waits for writes in progress. No request
// may be in progress, and none may follow.
func (e *Engine) Close() {
	e.mu.Lock()
	e.closed = true
	for r := range e.replays {
		r.timer.Stop()
	}
	clear(e.replays)
	e.mu.Unlock()
	e.running.Wait()
}

// cloneMutations copies mutations that outlive their request, because their values are
// in the client's frame.
func cloneMutations(muts []*store.Mutation) []*store.Mutation {
	out := make([]*store.Mutation, len(muts))
	for i, m := range muts {
		c := *m
		c.Key = bytes.Clone(m.Key)
		c.Static = m.Static.Clone()
		c.Rows = make([]store.Row, len(m.Rows))
		for j := range m.Rows {
			c.Rows[j] = *m.Rows[j].Clone()
		}
		c.Ranges = make([]store.RangeDeletion, len(m.Ranges))
		for j, r := range m.Ranges {
			c.Ranges[j] = r
			c.Ranges[j].Start.Prefix = cloneValues(r.Start.Prefix)
			c.Ranges[j].End.Prefix = cloneValues(r.End.Prefix)
		}
		out[i] = &c
	}
	return out
}

func cloneValues(vals [][]byte) [][]byte {
	out := make([][]byte, len(vals))
	for i, v := range vals {
		out[i] = bytes.Clone(v)
	}
	return out
}
