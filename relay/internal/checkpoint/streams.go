package checkpoint

import (
	"context"
	"log/slog"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
	scyllacdc "github.com/scylladb/scylla-cdc-go"
	"golang.org/x/sync/errgroup"

	"github.com/scylla-outbox/scylla-outbox/relay/failure"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
)

// saveConcurrency is the maximum number of concurrent checkpoint writes.
const saveConcurrency = 16

// saveAgain is the number of intervals after which a failed save is retried when
// positions have only passed empty windows.
const saveAgain = 10

// Streams is the set of streams being read; it saves their checkpoints. It is safe for
// concurrent use.
type Streams struct {
	store Store
	// Newest, if not nil, returns the time that no saved position passes, and from which or
	// before which each stream is read: later rows may not be visible yet.
	Newest func() time.Time
	limit  int
	log    *slog.Logger
	saves  prometheus.Counter
	errors prometheus.Counter

	saving chan struct{} // semaphore of size one: a save must not overtake a newer one

	mu     sync.Mutex
	loaded map[string]loadedPosition // by stream, until its consumer is created
	open   map[*Stream]struct{}
	held   map[*Stream]error
	// byID contains the streams of the current generation by id, also while the reader
	// restarts: handed-on changes remain handed on.
	byID map[string]*Stream
	// floor is the time up to which scans of the outbox table cover the rows: no stream
	// is read from before it.
	floor time.Time
	// hold, if not zero, is a time that no saved position reaches: rows after it may be
	// missing from the log.
	hold time.Time
	// entered is the current generation. resumed contains, for streams not opened yet,
	// the write time in microseconds up to which changes were handed on; nil if unknown.
	entered time.Time
	resumed map[string]int64
	// first is the first generation that this run reads. begun contains the write time in
	// microseconds from which each of its streams was first opened. Later changes were
	// handed on by this run or not at all.
	first time.Time
	begun map[string]int64
	// lastIdle is the time of the last save of positions that only passed empty windows.
	lastIdle time.Time
	failing  time.Time // time of the first failed save since the last success
	saveErr  error
	lastRead time.Time
}

// NewStreams returns streams that save their checkpoints to store. A stream waits once it
// has limit pending changes.
func NewStreams(store Store, limit int, log *slog.Logger, reg prometheus.Registerer) *Streams {
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
		reg.MustRegister(c)
		return c
	}
	return &Streams{
		saves:  counter("outbox_relay_checkpoint_saves_total", "Checkpoints saved."),
		errors: counter("outbox_relay_checkpoint_errors_total", "Failed writes of checkpoints; retried later."),
		store:  store, limit: limit, log: log, saving: make(chan struct{}, 1),
		loaded: make(map[string]loadedPosition), open: make(map[*Stream]struct{}), held: make(map[*Stream]error),
		byID: make(map[string]*Stream), begun: make(map[string]int64),
	}
}

// loadedPosition is the checkpoint from which the reader resumes a stream.
type loadedPosition struct {
	generation time.Time
	position   gocql.UUID
}

// Starts records the position from which the reader resumes a stream. The library
// requests the checkpoint of a stream right before it creates its consumer; only that
// request contains the generation.
func (s *Streams) Starts(gen time.Time, stream scyllacdc.StreamID, pos gocql.UUID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loaded[string(stream)] = loadedPosition{generation: gen, position: pos}
}

// Forget drops the record of handed-on changes, for a new start of the relay.
func (s *Streams) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.byID)
	clear(s.begun)
	s.entered, s.resumed, s.first, s.hold = time.Time{}, nil, time.Time{}, time.Time{}
}

// HoldBefore keeps saved positions before t, until Forget or EndHold: events that were written
// after it may be missing from the log, and the next start must find them. No later generation
// is begun.
func (s *Streams) HoldBefore(t time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hold = Earliest(s.hold, t)
}

// EndHold undoes HoldBefore: a scan finds the events.
func (s *Streams) EndHold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hold = time.Time{}
}

// IsHeld reports whether no saved position reaches t, because of HoldBefore.
func (s *Streams) IsHeld(t time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.hold.IsZero() && !t.Before(s.hold)
}

// StartFrom makes every stream be read from floor or later: a scan of the outbox table
// covers earlier writes.
func (s *Streams) StartFrom(floor time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.floor = floor
}

// raise returns the position from which a stream with checkpoint pos is read.
func (s *Streams) raise(gen time.Time, pos gocql.UUID) gocql.UUID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.raised(gen, pos)
}

// raised is raise. Called locked.
//
// The low bits of a cdc$time are random, unlike in a UUID. Only the first UUID of
// the next microsecond sorts after every change of the floor's microsecond;
// gocql.MaxTimeUUID sorts after three quarters of them.
func (s *Streams) raised(gen time.Time, pos gocql.UUID) gocql.UUID {
	if floor := gocql.MinTimeUUID(s.floor.Add(time.Microsecond)); s.floor.After(gen) && scyllacdc.CompareTimeUUID(pos, floor) < 0 {
		pos = floor
	}
	return notAfter(pos, s.Newest)
}

// Begin opens a stream.
func (s *Streams) Begin(stream scyllacdc.StreamID) *Stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	from := s.loaded[string(stream)]
	delete(s.loaded, string(stream))
	start := notAfter(from.position, s.Newest)
	if first := gocql.MinTimeUUID(from.generation); scyllacdc.CompareTimeUUID(start, first) < 0 {
		start = first
	}
	p := NewStream(from.generation, stream, start, s.limit)
	s.open[p] = struct{}{}
	if before := s.byID[string(stream)]; before != nil && before.generation.Equal(p.generation) {
		p.restarted(before, s.Newest)
	}
	s.byID[string(stream)] = p
	if _, again := s.begun[string(stream)]; !again && p.generation.Equal(s.first) {
		s.begun[string(stream)] = cdclog.WriteTime(p.start)
	}
	if at, ok := s.beganLocked(p.generation, stream); ok {
		p.Since = at
	}
	return p
}

// Began returns the write time in microseconds from which this run reads a stream,
// regardless of restarts of its reader; false while unknown. Later changes of the stream
// were handed on by this run or not at all. For streams of later generations it returns
// the time from which the last stream of the first generation was read.
func (s *Streams) Began(gen time.Time, stream []byte) (int64, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.beganLocked(gen, stream)
}

func (s *Streams) beganLocked(gen time.Time, stream []byte) (int64, bool) {
	switch at, opened := s.begun[string(stream)]; {
	case s.first.IsZero():
		return 0, false
	case opened && gen.Equal(s.first):
		return at, true
	case s.entered.Equal(s.first) && s.resumed == nil:
		return 0, false // streams not opened yet have an unknown start
	case gen.Equal(s.first):
		return s.resumesAt(stream) + 1, s.entered.Equal(s.first)
	}
	var latest int64
	for _, at := range s.begun {
		latest = max(latest, at)
	}
	if s.entered.Equal(s.first) {
		latest = max(latest, s.unread()+1)
		for _, at := range s.resumed {
			latest = max(latest, at+1)
		}
	}
	return latest, true
}

// resumesAt returns the write time up to which a stream of the current generation that is
// not opened yet was handed on. Called locked.
func (s *Streams) resumesAt(stream []byte) int64 {
	if upTo, ok := s.resumed[string(stream)]; ok {
		return upTo
	}
	return s.unread()
}

// Hold records that err stops the stream.
func (s *Streams) Hold(p *Stream, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[p] = err
}

// All returns the open streams in no order.
func (s *Streams) All() []*Stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*Stream, 0, len(s.open))
	for p := range s.open {
		out = append(out, p)
	}
	return out
}

// finishBefore waits until all changes of generations before gen are settled, saves their
// checkpoints and drops their streams.
func (s *Streams) finishBefore(ctx context.Context, gen time.Time) error {
	old := slices.DeleteFunc(s.All(), func(p *Stream) bool { return !p.generation.Before(gen) })
	for _, p := range old {
		if err := p.waitSettled(ctx); err != nil {
			return err
		}
	}
	if err := s.save(ctx, old); err != nil {
		return err
	}
	resumed := s.resume(ctx, gen)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range old {
		delete(s.open, p)
	}
	maps.DeleteFunc(s.byID, func(_ string, p *Stream) bool { return p.generation.Before(gen) })
	s.entered, s.resumed = gen, resumed
	if s.first.IsZero() {
		s.first = gen
	}
	return nil
}

// resume returns the write times up to which the streams of a generation were handed on,
// from their checkpoints, or nil if these cannot be read. The library opens the streams
// one by one, over up to Config.BusyDelay; with this result the tail reader does not wait
// for the last.
func (s *Streams) resume(ctx context.Context, gen time.Time) map[string]int64 {
	positions, err := s.store.Positions(ctx, gen)
	if err != nil {
		s.log.Debug("failed to read checkpoints; the tail reader waits for the streams of the sweep reader", "err", err)
		return nil
	}
	out := make(map[string]int64, len(positions))
	for stream, pos := range positions {
		out[stream] = handedAt(gen, s.raise(gen, pos))
	}
	return out
}

// handedAt returns the write time up to which a stream with checkpoint pos was handed on;
// without a checkpoint the stream begins with its generation.
func handedAt(gen time.Time, pos gocql.UUID) int64 {
	first := gocql.MinTimeUUID(gen)
	if scyllacdc.CompareTimeUUID(pos, first) < 0 {
		pos = first
	}
	return cdclog.WriteTime(pos) - 1 // another change may have the same time
}

// Handed returns the write time in microseconds up to which all changes of a stream of
// the given generation were handed on; false while unknown and for any generation but the
// current one.
func (s *Streams) Handed(gen time.Time, stream []byte) (int64, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.entered.Equal(gen) {
		return 0, false
	}
	if p, ok := s.byID[string(stream)]; ok {
		return p.handed.Load(), true
	}
	if s.resumed == nil {
		return 0, false
	}
	return s.resumesAt(stream), true
}

// unread returns the write time up to which a stream of the current generation that has
// no checkpoint and is not opened counts as handed on. Called locked.
func (s *Streams) unread() int64 { return handedAt(s.entered, s.raised(s.entered, gocql.UUID{})) }

// HandedAll returns the current generation, zero before the first, the number of its
// opened streams, and the write time up to which all of their changes were handed on.
func (s *Streams) HandedAll() (gen time.Time, opened int, upTo int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	upTo = math.MaxInt64
	for _, p := range s.byID {
		upTo = min(upTo, p.handed.Load())
	}
	return s.entered, len(s.byID), upTo
}

// HandedUpTo returns the write time up to which all changes of the given streams of the
// current generation were handed on. Streams not opened yet count with their checkpoints;
// it returns false if these are unknown.
func (s *Streams) HandedUpTo(which [][]byte) (upTo int64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	upTo = math.MaxInt64
	for _, stream := range which {
		if p := s.byID[string(stream)]; p != nil {
			upTo = min(upTo, p.handed.Load())
			continue
		}
		if s.resumed == nil {
			return 0, false
		}
		upTo = min(upTo, s.resumesAt(stream))
	}
	return upTo, true
}

// Reset saves the checkpoints and drops all streams after the reader has stopped. Streams
// are dropped even if a save fails.
func (s *Streams) Reset(ctx context.Context) error {
	all := s.All()
	err := s.save(ctx, all)
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.open)
	clear(s.held)
	clear(s.loaded)
	return err
}

// save writes the checkpoints that moved. It attempts all of them and returns the first
// error.
func (s *Streams) save(ctx context.Context, which []*Stream) error {
	select {
	case s.saving <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-s.saving }()
	var g errgroup.Group
	g.SetLimit(saveConcurrency)
	for _, p := range which {
		pos, _, ok := p.Unsaved()
		if !ok || s.IsHeld(pos.Time()) || s.Newest != nil && pos.Time().After(s.Newest()) {
			continue
		}
		g.Go(func() error {
			if err := s.store.SavePosition(ctx, p.generation, p.ID, pos); err != nil {
				s.errors.Inc()
				return err
			}
			p.markSaved(pos)
			s.saves.Inc()
			return nil
		})
	}
	return g.Wait()
}

// saveDue saves the positions that passed events, and the others once idle has passed
// since their last save. It reports whether there were any.
func (s *Streams) saveDue(ctx context.Context, idle time.Duration) (due bool, err error) {
	now := time.Now()
	s.mu.Lock()
	all := now.Sub(s.lastIdle) >= idle
	if all {
		s.lastIdle = now
	}
	s.mu.Unlock()
	which := slices.DeleteFunc(s.All(), func(p *Stream) bool {
		_, events, ok := p.Unsaved()
		return !ok || !all && !events
	})
	return len(which) > 0, s.save(ctx, which)
}

// Run saves checkpoints until ctx ends.
func (s *Streams) Run(ctx context.Context, every, idle time.Duration) error {
	t := time.NewTicker(every)
	defer t.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-t.C:
		}
		wait := idle
		if failing {
			wait = min(idle, saveAgain*every) // otherwise an idle relay would report the failure for too long
		}
		due, err := s.saveDue(ctx, wait)
		if !due {
			continue // no attempt, no result
		}
		s.tried(err, time.Now())
		switch {
		case err == nil && failing:
			s.log.Info("checkpoint saves succeed again")
		case err != nil && ctx.Err() == nil && failure.Classify(err) == failure.Fatal:
			return err
		case err != nil && !failing && ctx.Err() == nil:
			s.log.Warn("failed to save checkpoint; a restart after a crash would resume further back", "err", err)
		}
		failing = err != nil
	}
}

// tried records the result of a save.
func (s *Streams) tried(err error, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.saveErr = err
	if err == nil {
		s.failing = time.Time{}
	} else if s.failing.IsZero() {
		s.failing = now
	}
}

// Unsaved returns the time since which saves fail and the last error; zero values if the
// last save succeeded.
func (s *Streams) Unsaved() (since time.Time, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failing, s.saveErr
}

// PassesNewest returns by how much t is after Newest, not more than zero if it is not.
func (s *Streams) PassesNewest(t time.Time) time.Duration {
	if s.Newest == nil {
		return 0
	}
	return t.Sub(s.Newest())
}

// SawWindow records a read of the log.
func (s *Streams) SawWindow() {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastRead = now
}

// LastWindow returns the time of the last read of the log.
func (s *Streams) LastWindow() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lastRead
}

// Count returns the number of open streams.
func (s *Streams) Count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)
}

// HeldCount returns the number of held streams.
func (s *Streams) HeldCount() int { return len(s.Holds()) }

// Holds returns the errors of held streams by stream id.
func (s *Streams) Holds() map[string]error {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[string]error, len(s.held))
	for p, err := range s.held {
		out[p.ID.String()] = err
	}
	return out
}

// OldestAge returns the time since the oldest unacknowledged change was read, zero
// without one.
func (s *Streams) OldestAge(now time.Time) time.Duration {
	var age time.Duration
	for _, p := range s.All() {
		if t, ok := p.oldest(); ok {
			age = max(age, now.Sub(t))
		}
	}
	return age
}

// OldestPosition returns the oldest position of a stream, false without a stream.
func (s *Streams) OldestPosition() (oldest time.Time, ok bool) {
	for _, p := range s.All() {
		if t := p.Reached(); !ok || t.Before(oldest) {
			oldest, ok = t, true
		}
	}
	return oldest, ok
}

// PositionAge returns the largest lag of a stream.
func (s *Streams) PositionAge(now time.Time) time.Duration {
	var age time.Duration
	for _, p := range s.All() {
		age = max(age, now.Sub(p.Reached()))
	}
	return age
}
