package capture

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/gocql/gocql"
	scyllacdc "github.com/scylladb/scylla-cdc-go"

	"github.com/scylla-outbox/scylla-outbox/internal/clientlog"
	"github.com/scylla-outbox/scylla-outbox/internal/dbclock"
	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/outbox/rows"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/checkpoint"
)

// Sweep reads the CDC log with scylla-cdc-go and passes its events to a Sequencer.
type Sweep struct {
	cfg     *Config
	log     *slog.Logger
	metrics *Metrics
	in      Input
	store   checkpoint.Store
	streams *checkpoint.Streams
	sink    SweepSink
	skipped *checkpoint.Skipped

	sequencer atomic.Pointer[Sequencer] // nil unless Run runs
}

// NewSweep returns a sweep reader of the input. It begins at the positions of the store.
func NewSweep(cfg *Config, m *Metrics, in Input, store checkpoint.Store, streams *checkpoint.Streams, sink SweepSink) *Sweep {
	return &Sweep{cfg: cfg, log: cfg.Logger, metrics: m, in: in, store: store, streams: streams, sink: sink}
}

// Run reads until ctx ends, the reader fails, or an event cannot be passed on, and returns
// the reason. The events that wait beside their streams are then discarded. Run must not be
// called concurrently.
func (s *Sweep) Run(ctx context.Context) error {
	reading, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	sequencer := NewSequencer(reading, s.cfg, s.metrics, s.sink, s.in.Lookup)
	sequencer.blocked.fail = fail
	s.sequencer.Store(sequencer)
	// The library's windows end by the clock of this host.
	ahead := s.cfg.Clock.Ahead()
	go func() {
		for {
			changed := s.cfg.Clock.Changed()
			if now := s.cfg.Clock.Ahead(); (now - ahead).Abs() >= s.toleratedSkew() {
				fail(fmt.Errorf("the clock of this host was set: it is %s ahead of the database's, and was %s", now, ahead))
			}
			select {
			case <-changed:
			case <-reading.Done():
				return
			}
		}
	}()
	err := s.read(reading, fail, sequencer, ahead)
	fail(nil)
	sequencer.blocked.wg.Wait()
	s.sequencer.Store(nil)
	return err
}

// toleratedSkew is by how much the library's windows may end too late.
func (s *Sweep) toleratedSkew() time.Duration {
	return min(dbclock.SkewTolerated, s.cfg.ConfidenceWindow/4)
}

// windowPace is the least time between the first published rows of two windows of a stream.
func (s *Sweep) windowPace() time.Duration {
	return min(windowsInOne*s.cfg.BusyDelay, s.cfg.IdleDelay, s.cfg.ConfidenceWindow/16)
}

// windowsInOne is how many windows of published rows are read as one.
const windowsInOne = 5

// isUrgent reports whether the sweep reader has no time to leave: the tail reader left rows to it,
// or its share is full because of the ids in the dedup index or of the ttl.
func (s *Sweep) isUrgent(now time.Time) bool {
	s.update(now)
	return s.cfg.Turns.isUrgent()
}

// yield waits for the turn of a row that is published already. It returns the error of a ctx that has ended.
func (s *Sweep) yield(ctx context.Context) error {
	s.update(time.Now())
	return s.cfg.Turns.take(ctx)
}

// update computes the share of the sweep reader, unless it is recent.
func (s *Sweep) update(now time.Time) {
	t := s.cfg.Turns
	if t.isOutdated(now) {
		state := readingState{ttl: s.in.TTL}
		state.ids, state.limit, _ = s.sink.MemoryUse()
		if oldest, ok := s.streams.OldestPosition(); ok {
			state.age = s.cfg.Clock.Now().Sub(oldest)
			state.unpublished = !oldest.After(s.sink.Swept().SweptFirst())
		}
		t.update(state, now)
	}
}

// checkVisible returns an error if rows at the time t may not be visible yet. The library has read
// that far because the clock of this host was set, or the database's was believed to be ahead.
func (s *Sweep) checkVisible(t gocql.UUID) error {
	if early := s.streams.PassesNewest(t.Time()); early > s.toleratedSkew() {
		return fmt.Errorf("a window of the CDC log ends %s too late: the clock of this host or the database's was set", early)
	}
	return nil
}

// Waiting returns the aggregates that wait beside their streams; zero for a nil Sweep and
// while Run does not run. It is safe for concurrent use.
func (s *Sweep) Waiting() WaitingAggregates {
	if s == nil {
		return WaitingAggregates{}
	}
	return s.sequencer.Load().Waiting()
}

// maxFailedDelay bounds the library's backoff after failed queries. Its default of
// 30 s would be most of the time to catch up after a short outage.
const maxFailedDelay = 5 * time.Second

// read reads until ctx ends or the reader fails; fail ends ctx. Either way the checkpoints
// that can be saved are saved.
func (s *Sweep) read(ctx context.Context, fail context.CancelCauseFunc, sequencer *Sequencer, ahead time.Duration) error {
	s.skipped = checkpoint.NewSkipped(s.in.Own, s.in.Generations, s.log)
	reader, err := scyllacdc.NewReader(ctx, &scyllacdc.ReaderConfig{
		Session:               s.cfg.Session,
		TableNames:            []string{s.in.Table.String()},
		Consistency:           gocql.LocalQuorum,
		ChangeConsumerFactory: &consumers{s, sequencer, fail},
		ProgressManager:       progress{checkpoint.NewManager(s.store, s.streams, s.log, s.skipped), fail},
		Logger:                &readerLog{clientlog.CDC(s.log, s.metrics.readerErrors.Inc), fail},
		Advanced: scyllacdc.AdvancedReaderConfig{
			ConfidenceWindowSize:     s.cfg.ConfidenceWindow + ahead | 1, // the library replaces 0
			PostNonEmptyQueryDelay:   s.cfg.BusyDelay,
			PostEmptyQueryDelay:      s.cfg.IdleDelay,
			QueryTimeWindowSize:      s.cfg.QueryWindow,
			MaxPostFailedQueryDelay:  maxFailedDelay,
			ChangeAgeLimit:           s.cfg.FirstAge,
			PostGenerationFetchDelay: s.cfg.GenerationDelay,
		},
	})
	if err != nil {
		return fmt.Errorf("start the CDC reader: %w", err)
	}
	s.log.Info("reading the CDC log", "confidence_window", s.cfg.ConfidenceWindow)
	// While the library waits for the next generation it checks only Stop, not the
	// context, so Stop comes first.
	reading, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	defer context.AfterFunc(ctx, func() {
		reader.Stop()
		end(context.Cause(ctx))
	})()
	err = reader.Run(reading)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("read the CDC log: %w", err)
	}
	return nil
}

// consumers opens the streams of one Run. The library may open one, and read it, after its
// Run has returned an error.
type consumers struct {
	sweep     *Sweep
	sequencer *Sequencer
	fail      context.CancelCauseFunc // ends the reader
}

// CreateChangeConsumer opens a stream. It never fails: the library would continue
// with a nil consumer.
func (c *consumers) CreateChangeConsumer(_ context.Context, in scyllacdc.CreateChangeConsumerInput) (scyllacdc.ChangeConsumer, error) {
	if c.sweep.skipped.Has(in.StreamID) {
		return passedOver{}, nil
	}
	opened := &consumer{consumers: c, progress: c.sweep.streams.Begin(in.StreamID)}
	opened.pages = NewSweptPages(c.sequencer, opened.progress, opened.yield)
	return opened, nil
}

// consumer takes the changes of one stream. The library calls it from one
// goroutine. An error that it returns ends the whole reader, so it returns one
// only when the reader is to end.
type consumer struct {
	*consumers
	progress *checkpoint.Stream
	pages    *SweptPages
	// events are the events of a change; the next one uses the array.
	events []cdclog.StoredEvent
	// waited is when the consumer last waited at the begin of a window, and end the latest time at
	// which that window may end.
	waited, end time.Time
}

var _ scyllacdc.ChangeOrEmptyNotificationConsumer = (*consumer)(nil)

// Consume adds the events of a change to the page of the stream. It blocks while the publisher is full,
// which throttles the reader.
func (c *consumer) Consume(ctx context.Context, change scyllacdc.Change) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	s := c.sweep
	if err := s.checkVisible(change.Time); err != nil {
		return endReader(ctx, c.fail, err)
	}
	s.streams.SawWindow()
	c.events = c.events[:0]
	for i, row := range change.Delta {
		if !s.in.Own.HasRow(row) {
			continue // of a stream at the edge of the shard
		}
		e, ok, err := cdclog.DecodeEvent(s.in.Table, row, change.Time)
		bad, isRow := errors.AsType[*rows.RowError](err)
		switch {
		case err != nil && (!isRow || bad.Mismatch):
			return c.hold(ctx, change, err)
		case err != nil && s.streams.IsHeld(change.Time.Time()):
			<-ctx.Done() // the log has only keys; the scan reads the row from the table
			return context.Cause(ctx)
		case err != nil:
			s.metrics.RowsUndecodable.Inc()
			fallthrough
		case ok:
			c.events = append(c.events, cdclog.BadRow(s.in.Table, cdclog.StoredEvent{Event: e, Written: cdclog.WriteTime(change.Time), Err: err}, i))
		default:
			s.metrics.rowsIgnored.Inc()
		}
	}
	err := c.pages.Add(ctx, change.Time, c.events)
	clear(c.events)
	return endReader(ctx, c.fail, err)
}

// yield waits for the turns of rows that are published already, of a page whose last change was written
// at a time. Before that it waits once in each window at the end of the log, where the sweep reader has
// time to leave: the next page, and so the next query, waits too, and a window contains the rows of
// several.
func (c *consumer) yield(ctx context.Context, rows int, at time.Time) error {
	s := c.sweep
	if s.cfg.Turns == nil {
		return nil
	}
	// The window of the last wait ended a confidence window before that at the latest.
	if now := time.Now(); at.After(c.end) && !s.isUrgent(now) {
		c.end = s.cfg.Clock.Now().Add(-s.cfg.ConfidenceWindow)
		if err := retry.Wait(ctx, c.waited.Add(s.windowPace()).Sub(now)); err != nil {
			return err
		}
		c.waited = time.Now()
	}
	for range rows {
		if err := s.yield(ctx); err != nil {
			return err
		}
	}
	return nil
}

// hold stops the stream at a change that cannot be read because the table was altered
// after the relay started. No later change is submitted and the checkpoint stays before
// this one until the pass ends, which it does when the table fits its mapping again.
func (c *consumer) hold(ctx context.Context, change scyllacdc.Change, err error) error {
	c.progress.Begin(change.Time, 1)
	c.sweep.streams.Hold(c.progress, err)
	c.sweep.log.Error("a row of the log cannot be read; its stream is held until the table fits its mapping, nothing is skipped",
		"stream", c.progress.ID.String(), "time", change.Time.Time(), "err", err)
	<-ctx.Done()
	return context.Cause(ctx)
}

// Empty records a window without rows.
func (c *consumer) Empty(ctx context.Context, upTo gocql.UUID) error {
	if err := c.sweep.checkVisible(upTo); err != nil {
		return endReader(ctx, c.fail, err)
	}
	c.sweep.streams.SawWindow()
	return endReader(ctx, c.fail, c.pages.Idle(ctx, upTo))
}

// End submits the remaining events of the stream. StartGeneration waits for the unacknowledged ones.
func (c *consumer) End() error {
	c.pages.Submit()
	return nil
}

// passedOver is the consumer of a stream without rows of the shard.
type passedOver struct{}

// Consume does nothing.
func (passedOver) Consume(context.Context, scyllacdc.Change) error { return nil }

// End does nothing.
func (passedOver) End() error { return nil }
