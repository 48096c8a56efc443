package checkpoint

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/gocql/gocql"
	scyllacdc "github.com/scylladb/scylla-cdc-go"

	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/relay/failure"
)

// Manager is the progress manager of the sweep reader: it returns the positions from
// which the reader resumes. It does not save the progress of streams; Streams.Run does,
// once events are acknowledged.
//
// Calls of the running reader are retried until they succeed, ctx ends, or the error is Fatal:
// an error ends the reader.
type Manager struct {
	store   Store
	streams *Streams
	log     *slog.Logger
	skipped *Skipped
}

// Minimum and maximum backoff between attempts.
const progressRetryMin, progressRetryMax = 100 * time.Millisecond, 10 * time.Second

// until retries do until it succeeds, ctx ends, or the error is Fatal.
func (m *Manager) until(ctx context.Context, do func() error) error {
	for attempt := 1; ; attempt++ {
		err := do()
		if err == nil || ctx.Err() != nil || failure.Classify(err) == failure.Fatal {
			return err
		}
		if attempt == 1 {
			m.log.Warn("checkpoint access failed; retrying", "err", err)
		}
		if err := retry.Wait(ctx, retry.Backoff(progressRetryMin, progressRetryMax, attempt)); err != nil {
			return err
		}
	}
}

// NewManager returns the progress manager of a reader; skipped may be nil.
func NewManager(store Store, s *Streams, log *slog.Logger, skipped *Skipped) *Manager {
	return &Manager{store: store, streams: s, log: log, skipped: skipped}
}

// GetCurrentGeneration returns the last saved generation.
func (m *Manager) GetCurrentGeneration(ctx context.Context) (time.Time, error) {
	generation, _, err := m.store.Start(ctx)
	return generation, err
}

// StartGeneration waits until everything read so far is acknowledged and then saves gen
// as the generation being read. Without the wait, a relay would resume at gen after a
// crash and never read the remaining changes of earlier streams.
func (m *Manager) StartGeneration(ctx context.Context, gen time.Time) error {
	return m.until(ctx, func() error {
		if err := m.streams.finishBefore(ctx, gen); err != nil {
			return fmt.Errorf("finish the generation before %s: %w", gen.UTC(), err)
		}
		for wait := m.streams.PassesNewest(gen); wait > 0; wait = m.streams.PassesNewest(gen) { // a clock that is ahead ends the streams too soon
			if err := retry.Wait(ctx, wait); err != nil {
				return err
			}
		}
		if m.streams.IsHeld(gen) {
			<-ctx.Done() // the relay starts again
			return context.Cause(ctx)
		}
		if err := m.skipped.choose(ctx, gen); err != nil {
			return err
		}
		return m.store.SaveGeneration(ctx, gen)
	})
}

// GetProgress returns the checkpoint of the stream, or a later position set by a
// backfill. For a stream without rows of this shard it returns a time so far ahead that
// the reader never queries the stream; that position is not saved.
func (m *Manager) GetProgress(ctx context.Context, gen time.Time, _ string, stream scyllacdc.StreamID) (scyllacdc.Progress, error) {
	if m.skipped.Has(stream) {
		return scyllacdc.Progress{LastProcessedRecordTime: farAhead}, nil
	}
	var pos gocql.UUID
	err := m.until(ctx, func() (err error) {
		pos, err = m.store.Position(ctx, gen, stream)
		return err
	})
	if err == nil {
		pos = m.streams.raise(gen, pos)
		m.streams.Starts(gen, stream, pos)
	}
	return scyllacdc.Progress{LastProcessedRecordTime: pos}, err
}

// SaveProgress does nothing: the library's ProgressReporter is not used.
func (m *Manager) SaveProgress(context.Context, time.Time, string, scyllacdc.StreamID, scyllacdc.Progress) error {
	return nil
}

// GetApplicationReadStartTime returns the time from which the first run of this relay
// read.
func (m *Manager) GetApplicationReadStartTime(ctx context.Context) (time.Time, error) {
	_, first, err := m.store.Start(ctx)
	return first, err
}

// SaveApplicationReadStartTime saves the time from which the first run reads.
func (m *Manager) SaveApplicationReadStartTime(ctx context.Context, start time.Time) error {
	return m.store.SaveFirst(ctx, start)
}
