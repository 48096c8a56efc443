package publish

import (
	"context"
	"slices"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
)

const (
	// maxGaps is the maximum number of skipped numbers that the relay remembers per
	// aggregate. The newest are kept.
	maxGaps = 1000
	// recentNumbers is the number of last sequence numbers of an aggregate in which
	// missing ones count (sequencer.patience).
	recentNumbers = 32
	// The relay queries skipped numbers again with the next event of their aggregate,
	// then after twice as many events each time (maxGapStep at most), and in any case
	// with the first event after gapsAgain.
	maxGapStep = 1024
	gapsAgain  = time.Minute
)

// gaps contains the numbers that an aggregate skipped. Their events may still become
// visible.
type gaps struct {
	numbers []int64 // ascending
	step    int64   // events until the next lookup
	due     int64   // sequence number of the event that triggers the next lookup
	at      time.Time
}

func (g *gaps) found(seq int64) {
	if i, ok := slices.BinarySearch(g.numbers, seq); ok {
		g.numbers = slices.Delete(g.numbers, i, i+1)
	}
}

// skip records that the aggregate continues with seq although the numbers from next to
// seq-1 are missing.
func (m *memory) skip(aggregate gocql.UUID, next, seq int64) {
	g := m.gaps[aggregate]
	if g == nil {
		g = &gaps{step: 1, due: seq + 1, at: time.Now()}
		m.gaps[aggregate] = g
	}
	for n := max(next, seq-maxGaps); n < seq; n++ {
		g.numbers = append(g.numbers, n)
	}
	if over := len(g.numbers) - maxGaps; over > 0 {
		g.numbers = slices.Delete(g.numbers, 0, over)
	}
}

// isGap reports whether the aggregate continued without event seq.
func (m *memory) isGap(aggregate gocql.UUID, seq int64) bool {
	g := m.gaps[aggregate]
	if g == nil {
		return false
	}
	_, ok := slices.BinarySearch(g.numbers, seq)
	return ok
}

// gapsDue reports whether the skipped numbers of the aggregate are due for another
// lookup before event seq.
func (m *memory) gapsDue(aggregate gocql.UUID, seq int64) bool {
	if len(m.gaps) == 0 {
		return false
	}
	g := m.gaps[aggregate]
	return g != nil && (seq >= g.due || time.Since(g.at) >= gapsAgain)
}

// lookedUp records a lookup before event seq and schedules the next one.
func (m *memory) lookedUp(aggregate gocql.UUID, seq int64) {
	if g := m.gaps[aggregate]; g != nil {
		g.step = min(2*g.step, maxGapStep)
		g.due, g.at = seq+g.step, time.Now()
	}
}

// Missing returns how many of the last recentNumbers numbers of an aggregate are missing.
func (p *Publisher) Missing(aggregate gocql.UUID) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	g := p.memory.gaps[aggregate]
	if g == nil {
		return 0
	}
	l, _ := p.line(aggregate)
	i, _ := slices.BinarySearch(g.numbers, l.next-recentNumbers)
	return len(g.numbers) - i
}

// FindGaps queries the skipped numbers of an aggregate if a lookup is due before event
// seq, and offers the events that became visible since. A lookup is one query. The caller
// must have claimed the aggregate.
func (p *Publisher) FindGaps(ctx context.Context, find cdclog.Lookup, of *outbox.Event, seq int64) error {
	p.mu.Lock()
	due := p.memory.gapsDue(of.AggregateID, seq)
	var from, to int64
	if due {
		numbers := p.memory.gaps[of.AggregateID].numbers
		from, to = numbers[0], numbers[len(numbers)-1]+1
	}
	p.mu.Unlock()
	if !due {
		return nil
	}
	err := find(ctx, of, from, to, func(f cdclog.StoredEvent) error {
		p.mu.Lock()
		missed := p.memory.isGap(of.AggregateID, f.Sequence)
		p.mu.Unlock()
		if !missed {
			return nil
		}
		if err := p.Submit(ctx, f, ByKey, nil); err != nil {
			return &HandoverError{err}
		}
		return nil
	})
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.memory.lookedUp(of.AggregateID, seq)
	return nil
}

// HandoverError is the error of offering an event that a lookup returned, as opposed to
// an error of the lookup.
type HandoverError struct{ Err error }

// Error returns the text of the wrapped error.
func (h *HandoverError) Error() string { return h.Err.Error() }

// Unwrap returns the wrapped error.
func (h *HandoverError) Unwrap() error { return h.Err }
