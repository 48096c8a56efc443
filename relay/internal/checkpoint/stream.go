package checkpoint

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gocql/gocql"
	scyllacdc "github.com/scylladb/scylla-cdc-go"

	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
)

// Stream tracks the changes of one CDC stream of one generation from the read until all
// their events are settled. Its position is the last change of the settled prefix: the
// furthest position that a checkpoint may have.
//
// One goroutine reads the stream and calls Begin, Idle, Pass and Wait; any goroutine may call
// Settle and the other methods.
type Stream struct {
	generation time.Time
	ID         scyllacdc.StreamID
	// start is the position from which this reader reads: older changes were settled
	// before.
	start gocql.UUID
	// Since is the write time in microseconds from which this run reads the stream, which
	// is start unless the reader was restarted (Streams.Began).
	Since int64
	// limit is the maximum number of pending changes.
	limit int
	// handed is the write time in microseconds up to which all changes of the stream were
	// handed on, acknowledged or not.
	handed atomic.Int64
	// settled are the changes that an earlier reader of this run settled: all up to
	// settledTo, and single ones after it. They never change.
	settled   map[gocql.UUID]struct{}
	settledTo gocql.UUID

	mu       sync.Mutex
	pending  []pendingChange
	base     uint64 // id of pending[0]
	position gocql.UUID
	moved    bool // position has passed an event since the last save
	saved    gocql.UUID
	changed  chan struct{} // closed when pending shrinks; nil without a waiter
}

// pendingChange is a change that was read, or an empty window.
type pendingChange struct {
	time   gocql.UUID
	read   time.Time
	open   int // unsettled events
	events bool
}

// NewStream returns a stream that is read from start. Wait blocks while limit or more
// changes are pending.
func NewStream(gen time.Time, stream scyllacdc.StreamID, start gocql.UUID, limit int) *Stream {
	s := &Stream{
		generation: gen, ID: stream, start: start, limit: limit,
		saved: start, position: start, Since: cdclog.WriteTime(start),
	}
	s.handed.Store(cdclog.WriteTime(start) - 1) // another change may have the same time
	return s
}

// Settled reports whether an earlier reader of this run settled all events of the change t.
// The dedup index may have evicted them.
func (s *Stream) Settled(t gocql.UUID) bool {
	_, ok := s.settled[t]
	return ok || scyllacdc.CompareTimeUUID(t, s.settledTo) <= 0
}

// Generation returns the start of the stream's generation.
func (s *Stream) Generation() time.Time { return s.generation }

// restarted takes over what before, the stream of an earlier reader, has settled and handed on,
// up to newest: if the database's clock was believed to be ahead, before has passed rows that were
// not visible.
func (s *Stream) restarted(before *Stream, newest func() time.Time) {
	before.mu.Lock()
	defer before.mu.Unlock()
	s.settledTo = before.settledTo
	if scyllacdc.CompareTimeUUID(s.settledTo, before.position) < 0 {
		s.settledTo = before.position
	}
	s.settledTo = notAfter(s.settledTo, newest)
	if notAfter(before.saved, newest) != before.saved {
		s.saved = before.saved // to be replaced
	}
	handed := before.handed.Load()
	if newest != nil {
		handed = min(handed, newest().UnixMicro()-1)
	}
	s.handed.Store(max(s.handed.Load(), handed))
	s.settled = make(map[gocql.UUID]struct{})
	for t := range before.settled {
		if scyllacdc.CompareTimeUUID(t, s.settledTo) > 0 {
			s.settled[t] = struct{}{}
		}
	}
	for i := range before.pending {
		if c := &before.pending[i]; c.events && c.open == 0 {
			s.settled[c.time] = struct{}{}
		}
	}
}

// HandedOn records that all changes before t were handed on; other changes may have the
// time t.
func (s *Stream) HandedOn(t gocql.UUID) {
	n := cdclog.WriteTime(t) - 1
	for {
		before := s.handed.Load()
		if n <= before || s.handed.CompareAndSwap(before, n) {
			return
		}
	}
}

// Begin adds a change with n events, at least one, and returns its id for Settle.
func (s *Stream) Begin(t gocql.UUID, n int) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := s.base + uint64(len(s.pending))
	s.pending = append(s.pending, pendingChange{time: t, read: time.Now(), open: n, events: true})
	return id
}

// Settle records that one event of the change is settled.
func (s *Stream) Settle(id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending[id-s.base].open--
	s.advance()
}

// Idle records that the log contains no new changes up to t, and that those before are handed on.
func (s *Stream) Idle(t gocql.UUID) {
	s.HandedOn(t)
	s.Pass(t)
}

// Pass is Idle while changes before t are not handed on.
func (s *Stream) Pass(t gocql.UUID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.pending); n > 0 && !s.pending[n-1].events {
		s.pending[n-1].time = t
	} else {
		s.pending = append(s.pending, pendingChange{time: t})
	}
	s.advance()
}

// Quiescent returns the position and whether no change is pending.
func (s *Stream) Quiescent() (from gocql.UUID, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.position, len(s.pending) == 0
}

// PassQuiet moves the position from from to t, for a log without changes between them,
// unless the stream has moved since. Any goroutine may call it: changes that the reader
// begins concurrently are after t.
func (s *Stream) PassQuiet(from, t gocql.UUID) {
	s.mu.Lock()
	still := s.position == from && len(s.pending) == 0
	if still {
		s.position = t
	}
	s.mu.Unlock()
	if still {
		s.HandedOn(t)
	}
}

// advance moves the position to the end of the settled prefix. Called locked.
func (s *Stream) advance() {
	n := 0
	for n < len(s.pending) && s.pending[n].open == 0 {
		if scyllacdc.CompareTimeUUID(s.position, s.pending[n].time) < 0 {
			s.position = s.pending[n].time
		}
		s.moved = s.moved || s.pending[n].events
		n++
	}
	if n == 0 {
		return
	}
	s.base += uint64(n)
	s.pending = s.pending[n:]
	if len(s.pending) == 0 {
		s.pending = nil // release the array
	}
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// Wait blocks while too many changes are pending.
func (s *Stream) Wait(ctx context.Context) error { return s.waitBelow(ctx, s.limit) }

// waitSettled blocks until every change that was read is settled.
func (s *Stream) waitSettled(ctx context.Context) error { return s.waitBelow(ctx, 1) }

func (s *Stream) waitBelow(ctx context.Context, n int) error {
	for {
		s.mu.Lock()
		ok := len(s.pending) < n
		if !ok && s.changed == nil {
			s.changed = make(chan struct{})
		}
		changed := s.changed
		s.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Unsaved returns the position, whether it has passed events since the last save, and
// whether it differs from the saved position.
func (s *Stream) Unsaved() (pos gocql.UUID, events, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.position, s.moved, s.position != s.saved
}

// markSaved records that pos was saved.
func (s *Stream) markSaved(pos gocql.UUID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.saved = pos
	if s.position == pos {
		s.moved = false
	}
}

// oldest returns the time when the oldest pending change was read, false without one.
func (s *Stream) oldest() (time.Time, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pending) == 0 {
		return time.Time{}, false
	}
	return s.pending[0].read, true
}

// Reached returns the position as wall clock time.
func (s *Stream) Reached() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.position.Time()
}
