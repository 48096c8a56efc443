package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gocql/gocql"
	"github.com/thejerf/suture/v4"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/failure"
	"github.com/scylla-outbox/scylla-outbox/relay/hint"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/backfill"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/checkpoint"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/publish"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/readback"
)

// saveTimeout bounds saving the checkpoints when the reader has ended.
const saveTimeout = 10 * time.Second

// Relay carries events from one outbox table to Kafka. Its methods are safe
// for concurrent use; Run is called once.
type Relay struct {
	cfg     Config
	log     *slog.Logger
	metrics *metrics
	store   checkpoint.Store
	table   outbox.Table // with lookup and own, known in Run
	lookup  cdclog.Lookup
	own     cdclog.Portion // what this shard has of the table
	streams *checkpoint.Streams

	publisher atomic.Pointer[publish.Publisher] // nil until Run
	readback  atomic.Pointer[readback.Reader]   // nil until Run
	tail      atomic.Pointer[tail]              // nil until Run, and without a tail
	backfill  atomic.Pointer[backfill.Backfill] // nil until Run
	aside     atomic.Pointer[aside]             // nil while the sweep does not run

	hints *hint.Receiver // used by Run alone

	born   time.Time // which process it is to others of its name
	others others
	giving giving
	row    chan struct{} // has room for one that makes and writes the relay's heartbeat

	shardMetrics *shardMetrics // nil for the whole table

	mu       sync.Mutex
	reading  bool
	lastErr  error // why the reader ended last
	started  time.Time
	stuck    error // why the start does not get on
	idle     bool  // the table is carried whole by another shard
	tableErr error // why new events do not come to the CDC log
	restarts int
}

// New checks the configuration and returns a Relay that does nothing yet.
func New(cfg Config) (*Relay, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	var registered *shardMetrics
	if cfg.Shard.Count > 0 {
		cfg.onlyShare()
		registered = newShardMetrics(cfg.Registerer, cfg.Shard)
		cfg.Logger, cfg.Registerer = cfg.Logger.With("shard", cfg.Shard.String()), registered
	}
	if cfg.DeadLetters == DeadLettersOn {
		var err error
		if cfg.letters, err = dlq.Open(cfg.Session, cfg.Keyspace, dlq.WithLogger(cfg.Logger), dlq.WithFence(cfg.Fence)); err != nil {
			return nil, err
		}
	}
	store := checkpoint.NewCQLStore(cfg.Session, cfg.Keyspace, cfg.shardName(), cfg.TableKeyspace+"."+cfg.Table,
		cfg.Name, cfg.Fence) // an event may have been published by any shard, of any layout
	r := &Relay{cfg: cfg, log: cfg.Logger, metrics: newMetrics(cfg.Registerer), store: checkpoint.NewSteadyStore(store), shardMetrics: registered, born: time.Now().UTC(), row: make(chan struct{}, 1)}
	r.streams = checkpoint.NewStreams(r.store, cfg.MaxStreamBacklog, r.log, cfg.Registerer)
	registerState(cfg.Registerer, r)
	backfill.Register(cfg.Registerer, r.backfill.Load)
	return r, nil
}

// Committed makes the tail read the stream of an aggregate at once: an event of
// it was just stored, by who shares the process. It does not wait, and does
// nothing before Run, or where another relay has the stream. Others tell by
// package hint.
func (r *Relay) Committed(aggregate gocql.UUID) {
	if t := r.tail.Load(); t != nil {
		t.hint([]int64{hint.Token(aggregate)})
	}
}

// Run carries events until ctx ends, through any outage of the database or the
// broker. Then it stops reading, waits for what is under way for at most
// Config.DrainTimeout, saves the checkpoints and returns nil.
//
// An error means that the relay is wrongly set up: its Class is Fatal. What was
// acknowledged is checkpointed then too.
func (r *Relay) Run(ctx context.Context) error {
	if r.shardMetrics != nil {
		if err := r.shardMetrics.register(); err != nil {
			return err
		}
		defer r.shardMetrics.unregister()
	}
	for {
		err := r.run(ctx)
		if errors.Is(err, readback.ErrReadable) {
			r.log.Info("starting anew, to read back partitions that could not be read")
			continue
		}
		if !errors.Is(err, backfill.ErrOutrun) {
			return err
		}
		// Nothing in memory survives: what the scan needs to know is in the topics.
		r.log.Warn("starting anew, because the CDC log is about to lose what is not published; the outbox table has it")
		if retry.Wait(ctx, r.cfg.RestartDelay) != nil {
			return nil
		}
	}
}

// finish waits for what is under way, unless the relay failed, and saves the checkpoints.
func (r *Relay) finish(ctx context.Context, p *publish.Publisher, fatal error) error {
	if r.cfg.fenced() {
		// What is out the next owner learns from the topics, and by now it may have
		// saved checkpoints that are further.
		r.log.Warn("stopping at once: another relay may own what this one carries; what is under way is given up", "events", p.State().Open)
		return nil
	}
	if fatal == nil || errors.Is(fatal, readback.ErrReadable) {
		drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.cfg.DrainTimeout)
		left := p.Drain(drain)
		cancel()
		if left > 0 {
			r.log.Warn("stopping with events that are not acknowledged; they are read again at the next start", "events", left)
		}
	}
	save, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveTimeout)
	defer cancel()
	if err := r.streams.Reset(save); err != nil {
		r.log.Warn("checkpoints not saved; the next start reads further back", "err", err)
	}
	if f := r.backfill.Load(); f != nil {
		if _, err := f.SaveDone(save); err != nil {
			r.log.Warn("the progress of the backfill is not saved; the next start scans more again", "err", err)
		}
	}
	if fatal != nil {
		return fmt.Errorf("relay %s: %w", r.cfg.shardName(), fatal)
	}
	return nil
}

// generations are those of the table, with the streams that the shard has a part of.
func (r *Relay) generations() cdclog.Generations {
	return cdclog.NewGenerations(r.cfg.Session, r.cfg.TableKeyspace, r.cfg.Table, &r.own)
}

// standBy waits for the end of ctx where another shard carries the table whole.
func (r *Relay) standBy(ctx context.Context) error {
	if !r.own.None() {
		return nil
	}
	r.readback.Load().Ticket.Withdraw()
	r.log.Info("the partition key of the outbox table is not the aggregate, so it is carried whole, by shard 0; this one has nothing to do")
	r.mu.Lock()
	r.idle = true
	r.mu.Unlock()
	<-ctx.Done()
	return context.Cause(ctx)
}

// errReaderEnded is why the reader is started again when it returned no error.
var errReaderEnded = errors.New("the CDC reader ended")

// read runs the reader once.
func (r *Relay) read(ctx context.Context) error {
	r.setReading(true, nil)
	reading, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	s := &sweep{
		cfg: &r.cfg, log: r.log, store: r.store, streams: r.streams, metrics: r.metrics, table: &r.table,
		own: &r.own, generations: r.generations(),
		sequencer: newSequencer(reading, &r.cfg, r.metrics, r.publisher.Load(), r.lookup),
	}
	waiting := s.sequencer.aside
	waiting.fail = fail
	r.aside.Store(waiting)
	err := s.run(reading)
	fail(nil)
	waiting.wg.Wait()
	r.aside.Store(nil)
	r.setReading(false, err)
	if ctx.Err() != nil {
		return err // the relay is stopping and saves the checkpoints itself
	}
	// The next reader goes on from the checkpoints, so they are saved first. What
	// it reads again is recognized.
	save, cancel := context.WithTimeout(ctx, saveTimeout)
	defer cancel()
	if saveErr := r.streams.Reset(save); saveErr != nil {
		r.log.Warn("checkpoints not saved; the reader begins further back", "err", saveErr)
	}
	r.metrics.readerRestarts.Inc()
	if err == nil {
		err = errReaderEnded
	}
	return err
}

// forget lets go of events that the sweep passed, until ctx ends.
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

// supervised logs why a service ended and what is done about it.
func (r *Relay) supervised(e suture.Event) {
	switch e := e.(type) {
	case suture.EventServiceTerminate:
		err, _ := e.Err.(error)
		if err != nil && failure.Classify(err) == failure.Stopped {
			return
		}
		r.log.Warn("part of the relay ended; it is started again", "part", e.ServiceName, "at_once", e.Restarting, "err", err)
	case suture.EventBackoff:
		r.log.Warn("waiting before the next start", "wait", r.cfg.RestartDelay)
	case suture.EventResume:
		r.log.Info("starting again")
	case suture.EventStopTimeout:
		r.log.Warn("part of the relay does not stop in time", "part", e.ServiceName)
	}
}

// service is a part of the relay under supervision.
type service struct {
	name string
	run  func(context.Context) error
	fail func(error)
}

// Serve runs the part once. A Fatal error ends the relay, any other the
// supervisor answers with another run.
func (s *service) Serve(ctx context.Context) error {
	err := s.run(ctx)
	if ctx.Err() == nil && err != nil && failure.Classify(err) == failure.Fatal {
		s.fail(err)
		return suture.ErrDoNotRestart
	}
	return err
}

// String is the service's name in the log.
func (s *service) String() string { return s.name }
