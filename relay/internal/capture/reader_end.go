package capture

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	scyllacdc "github.com/scylladb/scylla-cdc-go"

	"github.com/scylla-outbox/scylla-outbox/relay/internal/checkpoint"
)

// endReader ends the reader if err is not nil, and returns err once ctx, the context of the
// library's call, has ended. fail ends the reader.
//
// After an error scylla-cdc-go never returns while three generations are pending: its fetcher
// waits until the third one is taken, or for Stop, and the error ends the goroutine to which
// Stop is passed. Sweep.read calls Stop before it ends the context, so Stop comes first here.
func endReader(ctx context.Context, fail context.CancelCauseFunc, err error) error {
	if err != nil && ctx.Err() == nil {
		fail(fmt.Errorf("read the CDC log: %w", err))
		<-ctx.Done()
	}
	return err
}

// progress is the manager of a reader that ends by the manager's errors.
type progress struct {
	*checkpoint.Manager
	fail context.CancelCauseFunc // ends the reader
}

var _ scyllacdc.ProgressManagerWithStartTime = progress{}

// StartGeneration implements scyllacdc.ProgressManager.
func (p progress) StartGeneration(ctx context.Context, gen time.Time) error {
	return endReader(ctx, p.fail, p.Manager.StartGeneration(ctx, gen))
}

// GetProgress implements scyllacdc.ProgressManager.
func (p progress) GetProgress(ctx context.Context, gen time.Time, table string, stream scyllacdc.StreamID) (scyllacdc.Progress, error) {
	from, err := p.Manager.GetProgress(ctx, gen, table, stream)
	return from, endReader(ctx, p.fail, err)
}

// errNoStreams is the reason for a restart of the reader whose generation has no streams.
var errNoStreams = errors.New("a CDC generation has no streams: it was removed or is not known to all nodes yet")

// readerLog is the log of scylla-cdc-go, which ends the reader before the library does so in a
// way that cannot be recovered from.
//
// The library divides by the number of streams of a generation right after it has logged it. It
// reads the start of a generation and its streams in two queries; with tablets each node answers
// them from its memory, so there are none if the node of the second one does not know the
// generation yet, or has removed it.
//
// It returns an error (endReader) when it misses the log once more after the last attempt that
// it logs.
type readerLog struct {
	scyllacdc.Logger
	fail context.CancelCauseFunc // of the reader
}

// Printf logs a line. If the reader has to end, it ends it and the goroutine, which an
// errgroup.Group started, and does not return.
func (l *readerLog) Printf(format string, args ...any) {
	l.Logger.Printf(format, args...)
	switch {
	case format == "grouped %d streams into %d batches" && args[1] == 0:
		l.fail(errNoStreams)
	case format == "table not found (attempt %d/%d, will retry): %s" && args[0] == args[1]:
		err, _ := args[2].(error)
		l.fail(fmt.Errorf("read the CDC log: the table was not found %d times: %w", args[0], err))
	default:
		return
	}
	runtime.Goexit()
}
