package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/thejerf/suture/v4"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/dbclock"
	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/failure"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/backfill"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/capture"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/checkpoint"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/fence"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/hints"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/publish"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/readback"
)

// saveTimeout limits saving the checkpoints after the reader ended.
const saveTimeout = 10 * time.Second

// Relay publishes events from one outbox table to Kafka. Its methods are safe for
// concurrent use; Run is called once.
type Relay struct {
	cfg     Config
	log     *slog.Logger
	metrics *metrics
	store   checkpoint.Store
	table   outbox.Table // set in Run, with facts, lookup and own
	facts   cdclog.TableInfo
	lookup  cdclog.Lookup
	own     cdclog.Portion // this shard's part of the table
	streams *checkpoint.Streams

	publisher atomic.Pointer[publish.Publisher] // nil until Run
	readback  atomic.Pointer[readback.Reader]   // nil until Run
	tail      atomic.Pointer[capture.Tail]      // nil until Run, and without a tail
	backfill  atomic.Pointer[backfill.Backfill] // nil until Run
	sweep     atomic.Pointer[capture.Sweep]     // nil while the sweep does not run

	hints *hints.Receiver // used by Run alone

	shardMetrics *shardMetrics // nil for the whole table

	openGap backfill.OpenGap

	mu       sync.Mutex
	reading  bool
	lastErr  error // error that ended the reader last
	started  time.Time
	stuck    error         // error that delays the start
	idle     bool          // another shard processes the whole table
	tableErr error         // why new events are not written to the CDC log
	gap      *backfill.Gap // the last gap of the CDC log, nil if there was none
	gapAt    time.Time     // when it was found
	gapFix   string
	restarts int
	skewed   bool // the clock of this host differs from the database's, which was logged
}

// New validates the configuration and returns a Relay. Run starts it.
func New(cfg Config) (*Relay, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	var registered *shardMetrics
	if cfg.Shard.Count > 0 {
		cfg.onlyShare()
		registered = newShardMetrics(cfg.Registerer, cfg.Shard)
		cfg.Logger, cfg.Registerer = cfg.Logger.With("shard", cfg.Shard.Index), registered
	}
	cfg.placed, cfg.clock = nil, new(dbclock.Clock)
	if cfg.DeadLetters == DeadLettersOn {
		var err error
		if cfg.deadLetters, err = dlq.Open(cfg.Session, cfg.Keyspace, dlq.WithLogger(cfg.Logger), dlq.WithFence(cfg.Fence), dlq.WithClock(cfg.clock)); err != nil {
			return nil, err
		}
	}
	cfg.place()
	store := checkpoint.NewCQLStore(cfg.Session, cfg.Keyspace, cfg.shardName(), cfg.TableKeyspace+"."+cfg.Table,
		cfg.Name, cfg.Fence, cfg.ConfidenceWindow) // any shard of any layout may have published an event
	newest := func() time.Time { return cfg.clock.Now().Add(-cfg.ConfidenceWindow) }
	r := &Relay{
		cfg: cfg, log: cfg.Logger, metrics: newMetrics(cfg.Registerer), store: checkpoint.NewSteadyStore(store, newest),
		shardMetrics: registered,
	}
	r.streams = checkpoint.NewStreams(r.store, cfg.MaxStreamBacklog, r.log, cfg.Registerer)
	r.streams.Newest = newest
	registerState(cfg.Registerer, r)
	backfill.Register(cfg.Registerer, r.backfill.Load)
	return r, nil
}

// Committed makes the tail reader read the stream of an aggregate immediately, after the
// process stored an event of it. It does not block. It has no effect before Run, or if
// another relay has the stream. Other processes use package hint.
func (r *Relay) Committed(aggregate outbox.ID) {
	if t := r.tail.Load(); t != nil {
		t.Committed(aggregate)
	}
}

// TailLag returns how long the tail reader takes at the moment to read new rows of the table, from when
// a reading is due, and false without recent ones. It is safe for concurrent use.
func (r *Relay) TailLag() (lag time.Duration, known bool) {
	return r.cfg.place().turns.Lag(time.Now())
}

// Run publishes events until ctx ends, and continues after outages of the database and
// the broker. It then stops reading, waits up to Config.DrainTimeout for the events in
// progress, saves the checkpoints and returns nil.
//
// An error means that the relay is misconfigured: its Class is Fatal. The checkpoints of
// acknowledged events are saved in that case too.
func (r *Relay) Run(ctx context.Context) error {
	if r.shardMetrics != nil {
		if err := r.shardMetrics.register(); err != nil {
			return err
		}
		defer r.shardMetrics.unregister()
	}
	r.cfg.place().join()
	defer r.cfg.place().leave()
	for {
		err := r.run(ctx)
		if isResumable(err) {
			r.log.Info("restarting to publish what waits in the CDC log", "reason", err)
			continue
		}
		if !errors.Is(err, backfill.ErrOutrun) && !errors.Is(err, backfill.ErrUnlogged) {
			return err
		}
		// The state in memory is discarded: the scan reads the published events from the topics.
		r.log.Warn("restarting to scan the outbox table", "reason", err)
		if retry.Wait(ctx, r.cfg.RestartDelay) != nil {
			return nil
		}
	}
}

// isResumable reports whether the run ended because gated partitions take records again, the table
// was altered and fits its mapping, or an epoch has begun.
func isResumable(err error) bool {
	return errors.Is(err, readback.ErrReadable) || errors.Is(err, publish.ErrPartitionResumed) || errors.Is(err, errAltered) || errors.Is(err, errEpoch)
}

// finish waits for the events in progress, unless the relay failed, and saves the
// checkpoints.
func (r *Relay) finish(ctx context.Context, p *publish.Publisher, fatal error) error {
	if fence.Check(r.cfg.Fence) != nil {
		// The next owner reads the published events from the topics, and may already
		// have saved later checkpoints.
		r.log.Warn("fenced; stopping immediately and discarding events in progress", "events", p.State().Open)
		return nil
	}
	// Events in progress may be of an epoch that this run does not know.
	if fatal == nil || isResumable(fatal) && !errors.Is(fatal, errEpoch) {
		drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.cfg.DrainTimeout)
		left := p.Drain(drain)
		cancel()
		if left > 0 {
			r.log.Warn("stopping with unacknowledged events; the next start reads them again", "events", left)
		}
	}
	save, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveTimeout)
	defer cancel()
	if err := r.streams.Reset(save); err != nil {
		r.log.Warn("failed to save checkpoints; the next start reads further back", "err", err)
	}
	if f := r.backfill.Load(); f != nil {
		if _, err := f.SaveDone(save); err != nil {
			r.log.Warn("failed to save backfill progress; the next start repeats a part of the scan", "err", err)
		}
	}
	if fatal != nil {
		return fmt.Errorf("relay %s: %w", r.cfg.shardName(), fatal)
	}
	return nil
}

// generations returns the generations of the table, with the streams of which the shard
// has a part.
func (r *Relay) generations() cdclog.Generations {
	return cdclog.NewGenerations(r.cfg.Session, r.cfg.TableKeyspace, r.cfg.Table, &r.own)
}

// input returns the shard's part of the table.
func (r *Relay) input() capture.Input {
	own := r.own // hints may arrive while another run starts
	return capture.Input{Table: &r.table, Own: &own, Generations: r.generations(), Lookup: r.lookup, TTL: r.facts.CDCTTL}
}

// standBy waits for the end of ctx if another shard processes the whole table.
func (r *Relay) standBy(ctx context.Context) error {
	if !r.own.None() {
		return nil
	}
	r.readback.Load().Ticket.Withdraw()
	r.cfg.place().leave()
	r.log.Info("shard idle; shard 0 processes the whole table because its partition key is not the aggregate")
	r.mu.Lock()
	r.idle = true
	r.mu.Unlock()
	<-ctx.Done()
	return context.Cause(ctx)
}

// errReaderEnded is the reason for a restart of the reader that returned no error.
var errReaderEnded = errors.New("the CDC reader ended")

// read runs the reader once.
func (r *Relay) read(ctx context.Context) error {
	r.setReading(true, nil)
	s := capture.NewSweep(r.cfg.capture(), r.metrics.capture, r.input(), r.store, r.streams, r.publisher.Load())
	r.sweep.Store(s)
	err := s.Run(ctx)
	r.sweep.Store(nil)
	r.setReading(false, err)
	if ctx.Err() != nil {
		return err // the relay is stopping and saves the checkpoints itself
	}
	// The next reader starts at the checkpoints, so they are saved first. The streams and
	// the dedup index recognize rows that it reads again.
	save, cancel := context.WithTimeout(ctx, saveTimeout)
	defer cancel()
	if saveErr := r.streams.Reset(save); saveErr != nil {
		r.log.Warn("failed to save checkpoints; the reader starts further back", "err", saveErr)
	}
	r.metrics.readerRestarts.Inc()
	if err == nil {
		err = errReaderEnded
	}
	return err
}

// forget removes events that the sweep reader has passed from the dedup index, until ctx
// ends.
func (r *Relay) forget(ctx context.Context, p *publish.Publisher) error {
	every := max(r.cfg.ConfidenceWindow/4, time.Second)
	for retry.Wait(ctx, every) == nil {
		if _, opened, upTo := r.streams.HandedAll(); opened > 0 {
			p.Pass(upTo, every)
		}
	}
	return context.Cause(ctx)
}

func (r *Relay) setStuck(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stuck = err
}

func (r *Relay) setReading(on bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reading = on
	if err != nil {
		r.lastErr = err
		r.restarts++
	}
}

// logSupervision logs the end and the restart of a service.
func (r *Relay) logSupervision(e suture.Event) {
	switch e := e.(type) {
	case suture.EventServiceTerminate:
		err, _ := e.Err.(error)
		if err != nil && failure.Classify(err) == failure.Stopped {
			return
		}
		r.log.Warn("part of the relay ended; restarting", "part", e.ServiceName, "immediately", e.Restarting, "err", err)
	case suture.EventBackoff:
		r.log.Warn("delaying the restart", "wait", r.cfg.RestartDelay)
	case suture.EventResume:
		r.log.Info("restarting")
	case suture.EventStopTimeout:
		r.log.Warn("part of the relay exceeded the stop timeout", "part", e.ServiceName)
	}
}

// service is a supervised part of the relay.
type service struct {
	name string
	run  func(context.Context) error
	pass *pass
}

// Serve runs the part once. A Fatal error ends the relay; after any other error the
// supervisor restarts the part.
func (s *service) Serve(ctx context.Context) error {
	err := s.run(ctx)
	if ctx.Err() == nil && err != nil {
		err = s.pass.blameTable(ctx, err)
	}
	if ctx.Err() == nil && err != nil && failure.Classify(err) == failure.Fatal {
		s.pass.fail(err)
		return suture.ErrDoNotRestart
	}
	return err
}

// String returns the name of the service for the log.
func (s *service) String() string { return s.name }
