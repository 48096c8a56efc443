package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/gocql/gocql"
	scyllacdc "github.com/scylladb/scylla-cdc-go"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/failure"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/checkpoint"
)

// sweep reads the CDC log with scylla-cdc-go and passes its events to the
// sequencer.
type sweep struct {
	cfg       *Config
	log       *slog.Logger
	store     checkpoint.Store
	streams   *checkpoint.Streams
	sequencer *sequencer
	metrics   *metrics
	table     *outbox.Table
	own       *cdclog.Portion
	// generations are those with the streams of own alone.
	generations cdclog.Generations
	skipped     *checkpoint.Skipped
}

// maxFailedDelay bounds the library's backoff after failed queries. Its default of
// 30 s would be most of the time to catch up after a short outage.
const maxFailedDelay = 5 * time.Second

// run reads until ctx ends or the reader fails. Either way the checkpoints
// that can be saved are saved.
func (s *sweep) run(ctx context.Context) error {
	s.skipped = checkpoint.NewSkipped(s.own, s.generations, s.log)
	reader, err := scyllacdc.NewReader(ctx, &scyllacdc.ReaderConfig{
		Session:               s.cfg.Session,
		TableNames:            []string{s.table.String()},
		Consistency:           gocql.LocalQuorum,
		ChangeConsumerFactory: s,
		ProgressManager:       checkpoint.NewManager(s.store, s.streams, s.log, s.skipped),
		Logger:                &readerLog{log: s.log, metrics: s.metrics},
		Advanced: scyllacdc.AdvancedReaderConfig{
			ConfidenceWindowSize:     s.cfg.ConfidenceWindow,
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

// CreateChangeConsumer opens a stream. It never fails: the library would continue
// with a nil consumer.
func (s *sweep) CreateChangeConsumer(_ context.Context, in scyllacdc.CreateChangeConsumerInput) (scyllacdc.ChangeConsumer, error) {
	if s.skipped.Has(in.StreamID) {
		return passedOver{}, nil
	}
	return &consumer{sweep: s, progress: s.streams.Begin(in.StreamID)}, nil
}

// consumer takes the changes of one stream. The library calls it from one
// goroutine. An error that it returns ends the whole reader, so it returns one
// only when the reader is to end.
type consumer struct {
	sweep    *sweep
	progress *checkpoint.Stream
}

var _ scyllacdc.ChangeOrEmptyNotificationConsumer = (*consumer)(nil)

// Consume submits the events of a change. It blocks while the publisher is full, which
// throttles the reader.
func (c *consumer) Consume(ctx context.Context, change scyllacdc.Change) error {
	s := c.sweep
	s.streams.SawWindow()
	var events []cdclog.StoredEvent
	for i, row := range change.Delta {
		if !s.own.HasRow(row) {
			continue // of a stream at the edge of the shard
		}
		e, ok, err := cdclog.EventOf(s.table, row)
		bad, isRow := errors.AsType[*outbox.RowError](err)
		switch {
		case err != nil && (!isRow || bad.Mismatch):
			return c.hold(ctx, change, err)
		case err != nil:
			s.metrics.rowsUndecodable.Inc()
			fallthrough
		case ok:
			events = append(events, cdclog.BadRow(s.table, cdclog.StoredEvent{Event: e, Written: cdclog.WriteTime(change.Time), Err: err}, i))
		default:
			s.metrics.rowsIgnored.Inc()
		}
	}
	return s.sequencer.take(ctx, c.progress, change.Time, events)
}

// hold stops the stream at a change that cannot be read because the table was altered
// after the relay started. No later change is submitted and the checkpoint stays before
// this one until the relay is restarted.
func (c *consumer) hold(ctx context.Context, change scyllacdc.Change, err error) error {
	c.progress.Begin(change.Time, 1)
	c.sweep.streams.Hold(c.progress, err)
	c.sweep.log.Error("a row of the log cannot be read; its stream is held, nothing is skipped",
		"stream", c.progress.ID.String(), "time", change.Time.Time(), "err", err)
	<-ctx.Done()
	return context.Cause(ctx)
}

// Empty records a window without rows.
func (c *consumer) Empty(_ context.Context, upTo gocql.UUID) error {
	c.sweep.streams.SawWindow()
	c.progress.Idle(upTo)
	return nil
}

// End does nothing: StartGeneration waits for what is not acknowledged yet.
func (c *consumer) End() error { return nil }

// readerLog receives the library's log lines. Lines with an error are warnings;
// repeated ones are rate-limited by repeatAfter.
type readerLog struct {
	log     *slog.Logger
	metrics *metrics

	mu     sync.Mutex
	last   string
	lastAt time.Time
}

// repeatAfter is the minimum interval between identical warnings of the reader.
const repeatAfter = time.Minute

// Printf is the library's Logger.
func (l *readerLog) Printf(format string, args ...any) {
	failed := false
	for _, a := range args {
		err, ok := a.(error)
		failed = failed || ok && failure.Classify(err) != failure.Stopped
	}
	text := fmt.Sprintf(format, args...)
	if !failed {
		l.log.Debug("cdc reader: " + text)
		return
	}
	l.metrics.readerErrors.Inc()
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); text != l.last || now.Sub(l.lastAt) > repeatAfter {
		l.last, l.lastAt = text, now
		l.log.Warn("cdc reader: " + text)
	}
}

// passedOver is the consumer of a stream without rows of the shard.
type passedOver struct{}

// Consume does nothing.
func (passedOver) Consume(context.Context, scyllacdc.Change) error { return nil }

// End does nothing.
func (passedOver) End() error { return nil }
