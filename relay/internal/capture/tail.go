package capture

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/gocql/gocql"
	"golang.org/x/time/rate"

	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/rows"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/checkpoint"
)

const (
	// GroupStreams is the maximum number of streams of one query of the tail reader.
	GroupStreams = 100
	// tailQueries is the maximum number of concurrent queries.
	tailQueries = 8
	// tailLead is how long before the start of a generation its streams are read:
	// ScyllaDB allows writers' clocks to be ahead by 5 s.
	tailLead = 10 * time.Second
	// tailMargin extends the confidence window that is read at the start, to leave no
	// gap to the position of the sweep reader.
	tailMargin = 10 * time.Second
	// tailGenerations is the minimum interval between queries for generations. ScyllaDB
	// announces them at least a minute before they begin.
	tailGenerations = 5 * time.Second
)

// Tail reads new log rows immediately and submits their events long before the sweep
// reader does.
//
// It guarantees nothing: it moves no checkpoint, it may miss rows that become visible
// late, and it leaves uncertain cases to the sweep reader, which reads every row again.
// It submits an event only when all earlier events of its aggregate are known to be
// published, so an error costs only latency.
type Tail struct {
	cfg      *Config
	log      *slog.Logger
	metrics  *Metrics
	source   cdclog.Generations
	rows     Rows
	streams  *checkpoint.Streams
	sink     TailSink
	gaps     *tailGaps
	left     tailLeft
	byTime   bool            // the table has no numbers
	own      *cdclog.Portion // the relay's part of the table; nil is all
	querying chan struct{}   // holds one token for each query under way

	mu          sync.Mutex
	known       []*cdclog.Generation // by their start, only relevant ones
	running     map[*cdclog.Generation][]*tailGroup
	failingFrom time.Time // zero while all is well
	lastErr     error
	lastRead    time.Time
}

// NewTailLimiter returns a limiter of tail readers that may query that many times a second.
func NewTailLimiter(queriesPerSecond float64) *rate.Limiter {
	return rate.NewLimiter(rate.Limit(queriesPerSecond), max(1, int(queriesPerSecond/100)))
}

// NewTail returns a tail reader of the input, with rows as its log.
func NewTail(cfg *Config, m *Metrics, in Input, rows Rows, s *checkpoint.Streams, sink TailSink) *Tail {
	t := &Tail{
		cfg: cfg, log: cfg.Logger, metrics: m, source: in.Generations, rows: rows, streams: s, sink: sink,
		byTime: !in.Table.Numbered(), own: in.Own,
		querying: make(chan struct{}, tailQueries), running: make(map[*cdclog.Generation][]*tailGroup),
	}
	t.left.streams = s
	t.gaps = newTailGaps(cfg, sink, in.Lookup, t.leave)
	return t
}

// Run reads until ctx ends, through any outage.
func (t *Tail) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer func() {
		wg.Wait()
		t.gaps.wg.Wait()
		t.mu.Lock()
		defer t.mu.Unlock()
		t.known = nil
	}()
	type reading struct {
		of   *cdclog.Generation
		stop context.CancelFunc
	}
	var now []reading
	defer func() {
		for _, r := range now {
			r.stop()
		}
	}()
	for failures := 0; ; {
		all, err := t.generations(ctx)
		if err != nil {
			failures++
			t.recordFailure(ctx, err)
			if err := retry.Wait(ctx, retry.Backoff(t.cfg.RetryMin, tailGenerations, failures)); err != nil {
				return err
			}
			continue
		}
		failures = 0
		current := t.current(all)
		now = slices.DeleteFunc(now, func(r reading) bool {
			if slices.Contains(current, r.of) {
				return false
			}
			r.stop()
			return true
		})
		for _, g := range current {
			if slices.ContainsFunc(now, func(r reading) bool { return r.of == g }) {
				continue
			}
			reads, stop := context.WithCancel(ctx)
			now = append(now, reading{g, stop})
			groups := t.makeGroups(g)
			wg.Go(func() { t.readGeneration(reads, g, groups) })
		}
		wait := t.generationDelay()
		if !t.knowsSwept() {
			wait = min(wait, 100*time.Millisecond) // until it does nothing can be read
		}
		if err := retry.Wait(ctx, wait); err != nil {
			return err
		}
	}
}

// generations returns the generations within the confidence window, and the one that
// the sweep reader reads.
func (t *Tail) generations(ctx context.Context) ([]*cdclog.Generation, error) {
	times, err := t.source.Times(ctx)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(times, time.Time.Compare)
	swept, _, _ := t.streams.HandedAll()
	from := t.cfg.Clock.Now().Add(-t.cfg.ConfidenceWindow - tailMargin)
	var all []*cdclog.Generation
	for i, start := range times {
		last := i+1 == len(times) || times[i+1].After(from)
		if !last && !start.Equal(swept) {
			continue
		}
		g, err := t.generation(ctx, start)
		if err != nil {
			return nil, err
		}
		all = append(all, g)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.known = all
	return all, nil
}

// generationDelay returns the interval between queries for generations: no longer than that of
// the sweep reader, and no shorter than that between its reads of idle streams.
func (t *Tail) generationDelay() time.Duration {
	return min(max(tailGenerations, t.cfg.IdleDelay), t.cfg.GenerationDelay)
}

// knowsSwept reports whether the generation that the sweep reader reads is known.
func (t *Tail) knowsSwept() bool {
	swept, _, _ := t.streams.HandedAll()
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.ContainsFunc(t.known, func(g *cdclog.Generation) bool { return g.Start.Equal(swept) })
}

// generation reads the streams of a generation, once.
func (t *Tail) generation(ctx context.Context, start time.Time) (*cdclog.Generation, error) {
	t.mu.Lock()
	i := slices.IndexFunc(t.known, func(g *cdclog.Generation) bool { return g.Start.Equal(start) })
	var g *cdclog.Generation
	if i >= 0 {
		g = t.known[i]
	}
	t.mu.Unlock()
	if g != nil {
		return g, nil
	}
	return t.source.Generation(ctx, start)
}

// current returns the generations that receive writes, recently did, or soon will.
func (t *Tail) current(all []*cdclog.Generation) []*cdclog.Generation {
	now := t.cfg.Clock.Now()
	from := now.Add(-t.cfg.ConfidenceWindow - tailMargin)
	var out []*cdclog.Generation
	for i, g := range all {
		over := i+1 < len(all) && all[i+1].Start.Before(from)
		if !over && g.Start.Before(now.Add(max(tailLead, 2*t.generationDelay()))) {
			out = append(out, g)
		}
	}
	return out
}

// readGeneration reads the streams of a generation until ctx ends.
func (t *Tail) readGeneration(ctx context.Context, g *cdclog.Generation, groups []*tailGroup) {
	// Until the sweep reader has its streams, published events are unknown.
	for {
		if t.knowsHanded(g) {
			break
		}
		if retry.Wait(ctx, 20*time.Millisecond) != nil {
			return
		}
	}
	t.log.Info("tail reader reading CDC generation", "generation", g.Start.UTC(), "streams", len(g.Streams))
	t.mu.Lock()
	t.running[g] = groups
	t.mu.Unlock()
	var wg sync.WaitGroup
	for _, group := range groups {
		wg.Go(func() { group.run(ctx) })
	}
	wg.Wait()
	t.mu.Lock()
	delete(t.running, g)
	t.mu.Unlock()
}

func (t *Tail) makeGroups(g *cdclog.Generation) []*tailGroup {
	n := (len(g.Streams) + GroupStreams - 1) / GroupStreams
	groups := make([]*tailGroup, n)
	for i := range groups {
		groups[i] = newTailGroup(t, g, len(g.Streams)*i/n, len(g.Streams)*(i+1)/n)
	}
	return groups
}

// knowsHanded reports whether the sweep reader's position is known in all streams of
// the generation, or of the earlier generation that it still reads.
func (t *Tail) knowsHanded(g *cdclog.Generation) bool {
	swept, _, _ := t.streams.HandedAll()
	if swept.IsZero() || swept.After(g.Start) {
		return false
	}
	t.mu.Lock()
	i := slices.IndexFunc(t.known, func(k *cdclog.Generation) bool { return k.Start.Equal(swept) })
	var which [][]byte
	if i >= 0 {
		which = t.known[i].Streams
	}
	t.mu.Unlock()
	if i < 0 {
		return false
	}
	_, ok := t.streams.HandedUpTo(which)
	return ok
}

// Committed is Hint for an aggregate.
func (t *Tail) Committed(aggregate outbox.ID) {
	if t.own != nil {
		t.Hint([]int64{rows.Token(t.own.Table, aggregate)})
	}
}

// Hint triggers an immediate reading of the streams of the tokens. It does not block and is
// safe for concurrent use.
func (t *Tail) Hint(tokens []int64) {
	now := t.cfg.Clock.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, g := range t.known {
		// The writer's clock selects the generation, and may differ from this one.
		if g.Start.After(now.Add(time.Second)) || i+1 < len(t.known) && t.known[i+1].Start.Before(now.Add(-time.Second)) {
			continue
		}
		groups := t.running[g]
		for _, token := range tokens {
			if !t.own.HasToken(token) {
				continue // another shard's
			}
			for _, s := range g.StreamsFor(token) {
				if n := slices.IndexFunc(groups, func(group *tailGroup) bool { return s < group.to }); n >= 0 {
					groups[n].hint(s)
				}
			}
		}
	}
}

// recordFailure records an error. It logs only the first one until a reading succeeds.
func (t *Tail) recordFailure(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	t.metrics.tailErrors.Inc()
	t.sink.Swept().Failed(time.Now())
	t.mu.Lock()
	defer t.mu.Unlock()
	first := t.failingFrom.IsZero()
	t.lastErr = err
	if first {
		t.failingFrom = time.Now()
		t.log.Warn("tail reader failed; using the sweep reader until it recovers", "err", err)
	}
}

// recordSuccess records that a group was read.
func (t *Tail) recordSuccess() {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lastRead = now
	t.sink.Swept().Began(now)
	if !t.failingFrom.IsZero() {
		t.log.Info("tail reader recovered", "after", now.Sub(t.failingFrom))
		t.failingFrom = time.Time{}
	}
}

// leave records that an event of the aggregate is left to the sweep reader.
func (t *Tail) leave(aggregate gocql.UUID) {
	t.metrics.TailLeft.Inc()
	t.sink.Swept().Leave(aggregate)
}

// TailStatus is the status of the tail reader.
type TailStatus struct {
	// On reports that the tail reader is configured and runs.
	On bool
	// Streams is the number of streams it reads, Groups the number of queries.
	Streams, Groups int
	// LastRead is the time of the last reading, zero if there was none.
	LastRead time.Time
	// Interval is the mean wait between two readings of a group.
	Interval time.Duration
	// Waiting is the number of aggregates with a missing event.
	Waiting int
	// Paused reports that it waits for the sweep reader, because the share of the dedup
	// index is full of published events that are still to be swept.
	Paused bool
	// Unswept is the number of published events that the sweep has not read yet, at most
	// UnsweptLimit. NearLimit reports that the tail reader is paused or about to pause.
	Unswept, UnsweptLimit int
	NearLimit             bool
	// Err is the error of the last failed reading, nil after a successful one.
	Err error
}

// Status returns the status; zero for a nil Tail. It is safe for concurrent use.
func (t *Tail) Status() TailStatus {
	if t == nil {
		return TailStatus{}
	}
	s := TailStatus{On: true, Waiting: t.gaps.count(), Paused: t.sink.MemoryFull()}
	s.Unswept, s.UnsweptLimit, s.NearLimit = t.sink.MemoryUse()
	t.mu.Lock()
	defer t.mu.Unlock()
	s.LastRead = t.lastRead
	if !t.failingFrom.IsZero() {
		s.Err = t.lastErr
	}
	var sum time.Duration
	for _, groups := range t.running {
		for _, g := range groups {
			s.Streams += g.to - g.from
			s.Groups++
			sum += time.Duration(g.wait.Load())
		}
	}
	if s.Groups > 0 {
		s.Interval = sum / time.Duration(s.Groups)
	}
	return s
}

// Rows reads rows of the log.
type Rows interface {
	// Read calls known for every row of the streams after the write time, in microseconds,
	// and at until or before unless it is 0, and then each for the rows that are not known. The rows of a stream come one after
	// another, in their order; the streams in any order. An error of each ends it. Unless
	// whole is set it reads one page, and more reports that the last row is not the last.
	Read(ctx context.Context, streams *cdclog.StreamList, after, until int64, whole bool, known cdclog.KnownRow, each func(*cdclog.Row) error) (more bool, err error)
}
