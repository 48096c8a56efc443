package capture

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	scyllacdc "github.com/scylladb/scylla-cdc-go"

	"github.com/scylla-outbox/scylla-outbox/relay/internal/checkpoint"
)

// The library opens a stream and reads it after Run has returned an error. Nothing is
// passed on.
func TestSweep_StreamOpenedAfterTheEnd(t *testing.T) {
	t.Parallel()
	s := &Sweep{streams: checkpoint.NewStreams(nil, 1, slog.New(slog.DiscardHandler), prometheus.NewRegistry())}
	factory := &consumers{sweep: s} // whoever calls the sequencer panics
	c, err := factory.CreateChangeConsumer(t.Context(), scyllacdc.CreateChangeConsumerInput{StreamID: []byte{1}})
	if err != nil {
		t.Fatal(err)
	}
	ended := errors.New("the reader has ended")
	ctx, end := context.WithCancelCause(t.Context())
	end(ended)
	if err := c.Consume(ctx, scyllacdc.Change{}); !errors.Is(err, ended) {
		t.Errorf("Consume() = %v, want the reason of the end", err)
	}
}
