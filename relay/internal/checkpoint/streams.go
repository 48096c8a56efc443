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

// saveConcurrency is how many checkpoints are written at the same time.
const saveConcurrency = 16

// saveAgain is after how many intervals checkpoints that only passed empty time are
// tried again which could not be saved.
const saveAgain = 10

// Streams are the streams being read, and saves their checkpoints. It is safe
// for concurrent use.
type Streams struct {
	store  Store
	limit  int
	log    *slog.Logger
	saves  prometheus.Counter
	errors prometheus.Counter

	saving chan struct{} // holds one token per save under way: one at a time, so that none overtakes a newer one

	mu     sync.Mutex
	loaded map[string]loadedPosition // by stream, until its consumer is made
	open   map[*Stream]struct{}
	held   map[*Stream]error
	// byID has the streams of the generation being read, also while the reader
	// is started again: what was handed on stays so.
	byID map[string]*Stream
	// floor is until when scans of the outbox table answer: no stream is read
	// from before it.
	floor time.Time
	// entered is the generation being read, and resumed where its streams go on
	// that were not opened yet: by stream, write times in microseconds as handed
	// gives them. nil if that is not known.
	entered time.Time
	resumed map[string]int64
	// first is the first generation that this run reads, and begun where its
	// streams were opened first, in microseconds. What was written there later was
	// handed on by this run, or not at all.
	first time.Time
	begun map[string]int64
	// lastIdle is when positions that only passed empty time were last saved.
	lastIdle time.Time
	failing  time.Time // since when positions cannot be saved
	saveErr  error     // why
	lastRead time.Time
}

// NewStreams returns streams that save their checkpoints to store. A stream waits once
// limit of its changes follow one that is not acknowledged.
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

// loadedPosition is the checkpoint that the reader goes on from.
type loadedPosition struct {
	generation time.Time
	position   gocql.UUID
}

// Starts notes where the reader goes on. The library asks for the checkpoint of
// a stream right before it makes its consumer, and only then names the generation.
func (s *Streams) Starts(gen time.Time, stream scyllacdc.StreamID, pos gocql.UUID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loaded[string(stream)] = loadedPosition{generation: gen, position: pos}
}

// Forget drops what was handed on before: the relay starts anew.
func (s *Streams) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.byID)
	clear(s.begun)
	s.entered, s.resumed, s.first = time.Time{}, nil, time.Time{}
}

// StartFrom makes no stream be read from before the given time: a scan of the
// outbox table answers for what was written until then.
func (s *Streams) StartFrom(floor time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.floor = floor
}

// raise is where a stream with that checkpoint is read from.
func (s *Streams) raise(gen time.Time, pos gocql.UUID) gocql.UUID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.raised(gen, pos)
}

// raised is raise. Called locked.
//
// The low bits of a cdc$time are random and not those of a UUID, so of the
// floor's own time only the first of the next microsecond is behind all changes:
// gocql.MaxTimeUUID is behind three quarters of them.
func (s *Streams) raised(gen time.Time, pos gocql.UUID) gocql.UUID {
	if floor := gocql.MinTimeUUID(s.floor.Add(time.Microsecond)); s.floor.After(gen) && scyllacdc.CompareTimeUUID(pos, floor) < 0 {
		return floor
	}
	return pos
}

// Begin opens a stream.
func (s *Streams) Begin(stream scyllacdc.StreamID) *Stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	from := s.loaded[string(stream)]
	delete(s.loaded, string(stream))
	start := from.position
	if first := gocql.MinTimeUUID(from.generation); scyllacdc.CompareTimeUUID(start, first) < 0 {
		start = first
	}
	p := NewStream(from.generation, stream, start, s.limit)
	s.open[p] = struct{}{}
	if before := s.byID[string(stream)]; before != nil && before.generation.Equal(p.generation) {
		p.handed.Store(max(p.handed.Load(), before.handed.Load()))
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
// however often its reader was restarted; false if that is not known yet. What the
// stream shows that was written later was handed on by this run, or by nobody. All
// streams of later generations count from where the last stream of the first one began.
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
		return 0, false // some streams are not opened yet
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

// resumesAt is what is handed on of a stream of the generation being read that was not
// opened yet. Called locked.
func (s *Streams) resumesAt(stream []byte) int64 {
	if upTo, ok := s.resumed[string(stream)]; ok {
		return upTo
	}
	return s.unread()
}

// Hold notes that the stream cannot go on because of err.
func (s *Streams) Hold(p *Stream, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[p] = err
}

func (s *Streams) All() []*Stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*Stream, 0, len(s.open))
	for p := range s.open {
		out = append(out, p)
	}
	return out
}

// finishBefore waits until the streams of generations before gen are
// acknowledged to the end, saves their checkpoints and drops them.
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

// resume reads where the streams of a generation go on. The library opens them
// one after the other, over as long as Config.BusyDelay, and the tail need not
// wait for the last. Without an answer it does: nil.
func (s *Streams) resume(ctx context.Context, gen time.Time) map[string]int64 {
	positions, err := s.store.Positions(ctx, gen)
	if err != nil {
		s.log.Debug("checkpoints not read at once; the tail waits for the sweep's streams", "err", err)
		return nil
	}
	out := make(map[string]int64, len(positions))
	for stream, pos := range positions {
		out[stream] = handedAt(gen, s.raise(gen, pos))
	}
	return out
}

// handedAt is what is handed on of a stream that goes on at a position; without
// one it begins with its generation.
func handedAt(gen time.Time, pos gocql.UUID) int64 {
	first := gocql.MinTimeUUID(gen)
	if scyllacdc.CompareTimeUUID(pos, first) < 0 {
		pos = first
	}
	return cdclog.WriteTime(pos) - 1 // another change may have its time
}

// Handed returns the write time in microseconds up to which everything in a
// stream of the given generation was handed on; false if that is not known yet,
// as of every generation but the one being read.
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

// unread is what is handed on of a stream of the generation being read that has
// neither been opened nor a checkpoint. Called locked.
func (s *Streams) unread() int64 { return handedAt(s.entered, s.raised(s.entered, gocql.UUID{})) }

// HandedAll returns the generation being read, zero before the first, the
// number of its streams that were opened, and up to when everything in them was
// handed on.
func (s *Streams) HandedAll() (gen time.Time, opened int, upTo int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	upTo = math.MaxInt64
	for _, p := range s.byID {
		upTo = min(upTo, p.handed.Load())
	}
	return s.entered, len(s.byID), upTo
}

// HandedOf is up to when everything was handed on of some streams of the generation
// being read: those that were not opened yet count as at their checkpoints. It is
// false if these are not known.
func (s *Streams) HandedOf(which [][]byte) (upTo int64, ok bool) {
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

// Reset saves what can be saved and drops all streams: the reader has ended.
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

// save writes the checkpoints of those that moved. The first error is
// returned; the others are tried nevertheless.
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
		if !ok {
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

// saveDue saves the positions that passed events, and the others when idle has
// gone by since they were saved. It says whether there were any.
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
			wait = min(idle, saveAgain*every) // or a quiet relay would go on saying that nothing can be saved
		}
		due, err := s.saveDue(ctx, wait)
		if !due {
			continue // which says nothing of whether they can be saved
		}
		s.tried(err, time.Now())
		switch {
		case err == nil && failing:
			s.log.Info("checkpoints are saved again")
		case err != nil && ctx.Err() == nil && failure.Classify(err) == failure.Fatal:
			return err
		case err != nil && !failing && ctx.Err() == nil:
			s.log.Warn("checkpoint not saved; a start after a crash now would read further back", "err", err)
		}
		failing = err != nil
	}
}

// tried notes how saving positions went.
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

// Unsaved is since when positions cannot be saved, and why; zero if they can.
func (s *Streams) Unsaved() (since time.Time, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failing, s.saveErr
}

// SawWindow notes that the log was read.
func (s *Streams) SawWindow() {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastRead = now
}

func (s *Streams) LastWindow() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lastRead
}

func (s *Streams) Count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)
}

func (s *Streams) HeldCount() int { return len(s.Holds()) }

// Holds returns why streams are held, by stream id.
func (s *Streams) Holds() map[string]error {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[string]error, len(s.held))
	for p, err := range s.held {
		out[p.ID.String()] = err
	}
	return out
}

// OldestAge is how long ago the oldest unacknowledged change was read.
func (s *Streams) OldestAge(now time.Time) time.Duration {
	var age time.Duration
	for _, p := range s.All() {
		if t, ok := p.oldest(); ok {
			age = max(age, now.Sub(t))
		}
	}
	return age
}

// OldestPosition is that of the stream that is furthest behind, false without a stream.
func (s *Streams) OldestPosition() (oldest time.Time, ok bool) {
	for _, p := range s.All() {
		if t := p.Reached(); !ok || t.Before(oldest) {
			oldest, ok = t, true
		}
	}
	return oldest, ok
}

// PositionAge is how far the stream that is furthest behind is behind now.
func (s *Streams) PositionAge(now time.Time) time.Duration {
	var age time.Duration
	for _, p := range s.All() {
		age = max(age, now.Sub(p.Reached()))
	}
	return age
}
