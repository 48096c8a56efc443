package capture

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
	scyllacdc "github.com/scylladb/scylla-cdc-go"

	"github.com/scylla-outbox/scylla-outbox/relay/internal/checkpoint"
)

// The library opens a stream and reads it after Run has returned an error. Nothing is
// passed on.
func TestSweep_StreamOpenedAfterTheEnd(t *testing.T) {
	t.Parallel()
	s := &Sweep{streams: checkpoint.NewStreams(nil, 1, slog.New(slog.DiscardHandler), prometheus.NewRegistry())}
	factory := &consumers{sweep: s} // a call of the sequencer panics
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

// A window ends too late because a clock was set. Its rows, and that it has none, are not believed:
// the reader ends, and the position of the stream remains.
func TestSweep_WindowEndsTooLate(t *testing.T) {
	t.Parallel()
	const window = 2 * time.Minute
	for name, read := range map[string]func(c scyllacdc.ChangeConsumer, ctx context.Context, t gocql.UUID) error{
		"without rows": func(c scyllacdc.ChangeConsumer, ctx context.Context, t gocql.UUID) error {
			return c.(scyllacdc.ChangeOrEmptyNotificationConsumer).Empty(ctx, t)
		},
		"with rows": func(c scyllacdc.ChangeConsumer, ctx context.Context, t gocql.UUID) error {
			return c.Consume(ctx, scyllacdc.Change{Time: t})
		},
	} {
		for _, late := range []time.Duration{0, 500 * time.Millisecond, 2 * time.Second, 10 * time.Minute, time.Hour} {
			t.Run(fmt.Sprintf("%s/late=%s", name, late), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					streams := checkpoint.NewStreams(nil, 10, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
					streams.Newest = func() time.Time { return time.Now().Add(-window) }
					s := &Sweep{cfg: &Config{Settings: Settings{ConfidenceWindow: window}}, streams: streams}
					ctx, fail := context.WithCancelCause(t.Context())
					defer fail(nil)
					before := gocql.MinTimeUUID(time.Now().Add(-time.Hour))
					streams.Starts(time.Now().Add(-2*time.Hour), scyllacdc.StreamID{1}, before)
					factory := &consumers{sweep: s, sequencer: &Sequencer{}, fail: fail}
					c, err := factory.CreateChangeConsumer(ctx, scyllacdc.CreateChangeConsumerInput{StreamID: []byte{1}})
					if err != nil {
						t.Fatal(err)
					}
					end := gocql.MinTimeUUID(time.Now().Add(late - window))
					err = read(c, ctx, end)
					want := end
					if refused := late > time.Second; (err != nil) != refused || (ctx.Err() != nil) != refused {
						t.Errorf("the error is %v, and the reader ends: %t, want %t", err, ctx.Err() != nil, refused)
					} else if refused {
						want = before
					}
					if pos, _ := streams.All()[0].Quiescent(); pos != want {
						t.Errorf("the position is %s, want %s", pos.Time(), want.Time())
					}
				})
			})
		}
	}
}
