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

// Stream follows the changes of one CDC stream of one generation from
// the moment they are read until all their events are acknowledged. Its
// position is the last change of the acknowledged prefix: the furthest point a
// checkpoint may name.
//
// One goroutine reads the stream and calls begin, idle and wait; any goroutine
// may call settle and the rest.
type Stream struct {
	generation time.Time
	ID         scyllacdc.StreamID
	// start is where this reader began: what is older was settled before it.
	start gocql.UUID
	// Since is the write time in microseconds from which this run reads the stream,
	// which is start unless the reader was restarted (streams.began).
	Since int64
	// limit is how many changes may stand behind an unsettled one.
	limit int
	// handed is the write time in microseconds up to which everything that the
	// stream has shown was handed on, acknowledged or not.
	handed atomic.Int64

	mu       sync.Mutex
	pending  []pendingChange
	base     uint64 // id of pending[0]
	position gocql.UUID
	moved    bool // position passed an event since it was last saved
	saved    gocql.UUID
	changed  chan struct{} // closed when pending shrinks; nil while nobody waits
}

// pendingChange is a change that was read, or a window that was found empty.
type pendingChange struct {
	time   gocql.UUID
	read   time.Time
	open   int // events not yet acknowledged
	events bool
}

func NewStream(gen time.Time, stream scyllacdc.StreamID, start gocql.UUID, limit int) *Stream {
	s := &Stream{
		generation: gen, ID: stream, start: start, limit: limit,
		saved: start, position: start, Since: cdclog.WriteTime(start),
	}
	s.handed.Store(cdclog.WriteTime(start) - 1) // another change may have its time
	return s
}

// HandedOn notes that all changes before t were handed on: others may have the
// same time.
func (s *Stream) HandedOn(t gocql.UUID) {
	n := cdclog.WriteTime(t) - 1
	for {
		before := s.handed.Load()
		if n <= before || s.handed.CompareAndSwap(before, n) {
			return
		}
	}
}

// Begin enters a change with n events, at least one, and returns the id that settle wants.
func (s *Stream) Begin(t gocql.UUID, n int) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := s.base + uint64(len(s.pending))
	s.pending = append(s.pending, pendingChange{time: t, read: time.Now(), open: n, events: true})
	return id
}

// Settle notes that one event of the change is acknowledged.
func (s *Stream) Settle(id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending[id-s.base].open--
	s.advance()
}

// Idle notes that the log was read up to t and held nothing new.
func (s *Stream) Idle(t gocql.UUID) {
	s.HandedOn(t)
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.pending); n > 0 && !s.pending[n-1].events {
		s.pending[n-1].time = t
	} else {
		s.pending = append(s.pending, pendingChange{time: t})
	}
	s.advance()
}

// Quiescent is where the stream stands if nothing that was read waits to be settled.
func (s *Stream) Quiescent() (from gocql.UUID, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.position, len(s.pending) == 0
}

// PassQuiet notes that the log holds nothing from a position up to t, unless the
// stream has moved since. Any goroutine may call it: what the reader begins
// meanwhile is behind t.
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

// advance moves the position over the settled prefix. Called locked.
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
		s.pending = nil // let go of the array that the slice has walked through
	}
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// Wait blocks while the stream has read too far ahead of its oldest unsettled
// change.
func (s *Stream) Wait(ctx context.Context) error { return s.waitBelow(ctx, s.limit) }

// waitSettled blocks until everything that was read is acknowledged.
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

// Unsaved returns the position if it is ahead of the saved one, and whether
// events lie between the two.
func (s *Stream) Unsaved() (pos gocql.UUID, events, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.position, s.moved, s.position != s.saved
}

// markSaved notes that pos was stored.
func (s *Stream) markSaved(pos gocql.UUID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.saved = pos
	if s.position == pos {
		s.moved = false
	}
}

// oldest is when the oldest unsettled change was read, and whether there is one.
func (s *Stream) oldest() (time.Time, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pending) == 0 {
		return time.Time{}, false
	}
	return s.pending[0].read, true
}

// Reached is the position as wall clock time.
func (s *Stream) Reached() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.position.Time()
}
