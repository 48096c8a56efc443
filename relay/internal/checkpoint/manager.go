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

// Manager tells the reader where to go on. It saves no stream's
// progress for the reader: the checkpointer does, when events are acknowledged.
//
// What the running reader asks of it is tried until it works or the reader is to
// end: an error would end the reader, which then never returns if more
// generations are waiting.
type Manager struct {
	store   Store
	streams *Streams
	log     *slog.Logger
	skipped *Skipped
}

// The waits between two tries of progressManager.
const progressRetryMin, progressRetryMax = 100 * time.Millisecond, 10 * time.Second

// until tries do until it works, ctx ends, or the error is Fatal.
func (m *Manager) until(ctx context.Context, do func() error) error {
	for attempt := 1; ; attempt++ {
		err := do()
		if err == nil || ctx.Err() != nil || failure.Classify(err) == failure.Fatal {
			return err
		}
		if attempt == 1 {
			m.log.Warn("the reader waits for a checkpoint", "err", err)
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

// GetCurrentGeneration returns the generation that was saved last.
func (m *Manager) GetCurrentGeneration(ctx context.Context) (time.Time, error) {
	generation, _, err := m.store.Start(ctx)
	return generation, err
}

// StartGeneration waits until everything read so far is acknowledged and then
// saves that the relay reads gen. Without the wait a crash would begin with gen
// and never look at the streams before it again.
func (m *Manager) StartGeneration(ctx context.Context, gen time.Time) error {
	return m.until(ctx, func() error {
		if err := m.streams.finishBefore(ctx, gen); err != nil {
			return fmt.Errorf("finish the generation before %s: %w", gen.UTC(), err)
		}
		if err := m.skipped.choose(ctx, gen); err != nil {
			return err
		}
		return m.store.SaveGeneration(ctx, gen)
	})
}

// GetProgress returns the stream's checkpoint, or what a backfill has put behind it.
// Of a stream with nothing of this shard it is so far ahead that the reader never
// asks for it; nobody saves that.
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

// SaveProgress is not used: nothing calls the library's ProgressReporter.
func (m *Manager) SaveProgress(context.Context, time.Time, string, scyllacdc.StreamID, scyllacdc.Progress) error {
	return nil
}

// GetApplicationReadStartTime returns where the first run of this relay began.
func (m *Manager) GetApplicationReadStartTime(ctx context.Context) (time.Time, error) {
	_, first, err := m.store.Start(ctx)
	return first, err
}

// SaveApplicationReadStartTime saves where the first run begins.
func (m *Manager) SaveApplicationReadStartTime(ctx context.Context, start time.Time) error {
	return m.store.SaveFirst(ctx, start)
}
