package relay

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/logtest"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// awaitUnsharded returns a channel that is closed when AwaitUnsharded returns nil, and one
// that is closed when it begins to wait.
func (w *world) awaitUnsharded(log *slog.Logger) (passed, waits chan struct{}, stop func()) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	passed, waits, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		a := Agreement{Session: w.session, Keyspace: "outbox", Name: DefaultName}
		if a.AwaitUnsharded(ctx, log, func() { close(waits) }) == nil {
			close(passed)
		}
	}()
	return passed, waits, func() {
		cancel()
		<-ended
	}
}

// passes reports whether the channel is closed.
func passes(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// heartbeatOf writes the row of an instance, with a clock that is a day behind.
func (w *world) heartbeatOf(relay, status string) {
	w.t.Helper()
	if err := w.session.Query("INSERT INTO relay_instances (scope, relay, table_name, instance, at, status) VALUES ('keyspace', ?, 'outbox.outbox_messages', 'pod-b/1', ?, ?)",
		relay, time.Now().Add(-24*time.Hour), status).Exec(); err != nil {
		w.t.Fatal(err)
	}
}

// An instance with shards does not start beside a relay without shards, whatever its clock.
// It starts when that relay has stopped, or has sent no heartbeat for 10 s.
func TestAwaitUnsharded_WaitsForTheEnd(t *testing.T) {
	t.Parallel()
	for last, wait := range map[string]time.Duration{`{"state":"stopped"}`: 2 * DefaultHeartbeat, "": silence + 2*DefaultHeartbeat} {
		inBubble(t, func(t *testing.T) {
			w := newWorld(t, scyllafake.Config{Tokens: 4}, nil)
			defer w.close()
			w.heartbeatOf(DefaultName, `{"state":"running"}`)
			var log logtest.Buffer
			passed, waits, stop := w.awaitUnsharded(slog.New(slog.NewTextHandler(&log, nil)))
			defer stop()
			for range 20 {
				time.Sleep(DefaultHeartbeat)
				w.heartbeatOf(DefaultName, `{"state":"running"}`)
			}
			if passes(passed) || !passes(waits) {
				t.Error("it starts beside a relay without shards, or does not report that it waits")
			}
			if last != "" {
				w.heartbeatOf(DefaultName, last)
			}
			time.Sleep(wait)
			if !passes(passed) {
				t.Errorf("last status %q: it waits still after %s", last, wait)
			}
			if n := strings.Count(log.String(), "waiting for a relay without shards to stop"); n != 1 || !strings.Contains(log.String(), "other_instance=pod-b/1") {
				t.Errorf("logged %d times, want once, with the instance: %s", n, log.String())
			}
		})
	}
}

// Rows of instances with shards, of stopped and of other relays do not delay a start.
func TestAwaitUnsharded_StartsImmediately(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, nil)
		defer w.close()
		for _, row := range [][2]string{
			{DefaultName, `{"state":"stopped"}`},
			{DefaultName, `{"state":"waiting"}`},
			{DefaultName, `{"state":"running","sharing":{"shards":1,"owned":[0],"joined":true}}`},
			{DefaultName + "/00-of-01", `{"state":"running","shard":{"index":0,"count":1}}`},
			{"another", `{"state":"running"}`},
		} {
			w.heartbeatOf(row[0], row[1])
			passed, waits, stop := w.awaitUnsharded(relaytest.Logger(t))
			time.Sleep(time.Second)
			if !passes(passed) || passes(waits) {
				t.Errorf("it waits for %s with status %s", row[0], row[1])
			}
			stop()
		}
	})
}

// One shard takes over from a relay without shards that runs when it starts: checkpoints,
// dead letters and blocked aggregates. Each event is published once and in order, and the
// start reads the topics back to the last checkpoint only.
func TestUnsharded_OneShardTakesOver(t *testing.T) {
	relaytest.Long(t)
	t.Parallel()
	for _, tt := range shardEngines {
		for _, killed := range []bool{false, true} {
			for _, tail := range []string{TailOn, TailOff} {
				name := tt.name + " tail " + tail
				if killed {
					name += " killed"
				}
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					inBubble(t, func(t *testing.T) {
						w := newWorld(t, tt.conf, func(c *Config) {
							c.GenerationDelay, c.IdleCheckpoint, c.Tail, c.MaxRecordBytes = 3*time.Second, 5*time.Second, tail, 2<<10
							if killed {
								c.DrainTimeout = time.Millisecond
							}
						})
						defer w.close()
						takeOverUnsharded(t, w)
					})
				})
			}
		}
	}
}

func takeOverUnsharded(t *testing.T, w *world) {
	all := relaytest.Events(10, 24, "OrderUpdated")
	large := &all[15] // the second event of its aggregate
	large.Payload = make([]byte, 4<<10)
	write := func(events []outbox.Event) {
		t.Helper()
		for _, e := range events {
			w.write(e)
			time.Sleep(300 * time.Millisecond)
		}
	}
	old, stopOld := w.runShard(Shard{})
	ctx, cancel := context.WithCancel(t.Context())
	beating := make(chan struct{})
	go func() {
		defer close(beating)
		old.Heartbeat(ctx, "v0", 0)
	}()
	write(all[:100])
	time.Sleep(2 * time.Minute)
	passed, _, stopWaiting := w.awaitUnsharded(relaytest.Logger(t))
	defer stopWaiting()
	write(all[100:150])
	if passes(passed) {
		t.Error("the shard starts beside the relay without shards")
	}
	stopOld()
	cancel()
	<-beating
	write(all[150:160])
	if !passes(passed) {
		t.Error("the shard waits for a relay that has stopped")
	}

	began := time.Now()
	w.cfg.MaxRecordBytes = 1 << 20
	r, stop := w.runShard(Shard{Index: 0, Count: 1})
	write(all[160:])
	time.Sleep(time.Minute)
	if from := r.readback.Load().Position; began.Sub(from) > time.Minute {
		t.Errorf("the shard reads back to %s, %s before its start", from, began.Sub(from))
	}
	if s := r.Status(); s.ParkedAggregates != 1 || s.DeadLetters == 0 {
		t.Errorf("%d aggregates are blocked by %d dead letters, want those of the relay without shards", s.ParkedAggregates, s.DeadLetters)
	}
	store, err := dlq.Open(w.session, "outbox")
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Replay(t.Context(), large.ID, dlq.Actor{Name: "ada", Reason: "limit raised"}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Minute)
	stop()
	relaytest.CheckOrder(t, w.consume("OrderUpdated"), all)
}
