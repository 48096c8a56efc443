package relay

import (
	"context"
	"encoding/binary"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/publish"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// swallowingConn drops produce requests while on is set: the broker never receives them.
type swallowingConn struct {
	net.Conn
	on *atomic.Bool
}

func (c *swallowingConn) Write(p []byte) (int, error) {
	if c.on.Load() && len(p) > 6 && binary.BigEndian.Uint16(p[4:]) == uint16(kmsg.Produce) {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// A broker answers every request except produce requests. The breaker does not close while an
// event or a dead letter waits, so that the outage is one outage; when the broker takes
// records again, what waits is published at full speed.
func TestBreaker_ClosesByAcknowledgedRecords(t *testing.T) {
	t.Parallel()
	for name, events := range map[string]bool{"while events are written": true, "without new events": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				var swallows atomic.Bool
				var w *world
				w = newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) {
					c.ConfidenceWindow = 20 * time.Second
					c.Kafka = append(c.Kafka, kgo.Dialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
						conn, err := w.dialKafka(ctx, network, addr)
						if err != nil {
							return nil, err
						}
						return &swallowingConn{conn, &swallows}, nil
					}))
				})
				defer w.close()
				r, stop := w.run()
				var all []outbox.Event
				write := func() {
					all = append(all, relaytest.Event(len(all), 1, "OrderUpdated"))
					w.write(all[len(all)-1])
				}
				for range 30 {
					write()
				}
				time.Sleep(5 * time.Second)
				swallows.Store(true)
				opened, closed := false, 0
				for i := range 1000 { // 200 s
					if events || i < 100 {
						write()
					}
					time.Sleep(200 * time.Millisecond)
					switch r.Status().Breaker.State {
					case publish.BreakerOpen:
						opened = true
					case publish.BreakerClosed:
						if opened {
							closed++
						}
					}
				}
				if !opened || closed > 0 {
					t.Errorf("the breaker opened: %t; it was closed %d times of 1000 while nothing was acknowledged", opened, closed)
				}
				swallows.Store(false)
				time.Sleep(45 * time.Second) // the time until the breaker is half-open, and some requests
				if s := r.Status(); s.Breaker.State != publish.BreakerClosed || s.DeadLetters > 0 || s.InFlight > 0 {
					t.Errorf("the breaker is %s, with %d dead letters and %d events in flight, 45 s after the end", s.Breaker.State, s.DeadLetters, s.InFlight)
				}
				if err := stop(); err != nil {
					t.Error(err)
				}
				relaytest.CheckOrder(t, w.consume("OrderUpdated"), all)
			})
		})
	}
}

// Dead letters of an outage are for a partition that has no leader when the outage ends. Their
// replays are called off, some at a time. They are published together when it has a leader.
func TestDeadLetters_AStalledPartitionResumesAtFullSpeed(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, nil)
		defer w.close()
		r, stop := w.run()
		var all []outbox.Event
		write := func() {
			all = append(all, relaytest.Event(len(all), 1, "OrderUpdated"))
			w.write(all[len(all)-1])
			time.Sleep(20 * time.Millisecond)
		}
		write()
		time.Sleep(5 * time.Second)
		reached := w.unreachable()
		for range 600 {
			write()
		}
		time.Sleep(time.Minute)
		if n := r.Status().DeadLetters; n < 500 {
			t.Fatalf("%d dead letters after a minute of an outage, want most of 600", n)
		}
		end := w.noLeader("OrderUpdated", 0, true)
		reached()
		for range 150 { // others are published, so the breaker closes
			write()
			time.Sleep(time.Second)
		}
		left := r.Status().DeadLetters
		if left < 100 {
			t.Errorf("%d dead letters of a partition without a leader, want a third of 600", left)
		}
		end()
		time.Sleep(10 * time.Second)
		if n := r.Status().DeadLetters; n > 0 {
			t.Errorf("%d of %d dead letters are open 10 s after the partition has a leader", n, left)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		relaytest.CheckOrder(t, w.consume("OrderUpdated"), all)
	})
}

// All events that wait when an outage ends are behind dead letters that cannot be the probes of the
// half-open breaker, and no more dead letters may be written while it is open. It closes anyway.
func TestBreaker_ClosesWhenNothingCanBeAProbe(t *testing.T) {
	t.Parallel()
	type place struct {
		aggregate int
		seq       int64
	}
	for name, tt := range map[string]struct {
		refused bool  // 1/1 is too large, and an operator decides about it
		first   place // becomes a dead letter in the outage
		behind  []place
		left    int // dead letters
	}{
		"behind one that an operator decides": {true, place{2, 1}, []place{{1, 2}}, 2},
		// A reader has claimed the aggregate, finds 6 missing, and waits for room for 7.
		"behind one of an aggregate with a missing number": {false, place{1, 1}, []place{{1, 2}, {1, 3}, {1, 4}, {1, 5}, {1, 7}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) {
					c.ConfidenceWindow, c.SpillLimit, c.MaxInFlightRecords, c.MaxRecordBytes = 20*time.Second, 1, 4, 100_000
				})
				defer w.close()
				r, stop := w.run()
				var want []outbox.Event
				write := func(p place) {
					want = append(want, relaytest.Event(p.aggregate, p.seq, "OrderUpdated"))
					w.write(want[len(want)-1])
				}
				if tt.refused {
					e := relaytest.Event(1, 1, "OrderUpdated")
					e.Payload = make([]byte, 200_000)
					w.write(e)
				}
				write(place{3, 1})
				time.Sleep(30 * time.Second)
				before := r.Status().DeadLetters
				reached := w.unreachable()
				write(tt.first)
				for r.Status().DeadLetters == before {
					time.Sleep(100 * time.Millisecond)
				}
				all := want
				for _, p := range tt.behind {
					write(p)
				}
				time.Sleep(45 * time.Second)
				reached()
				time.Sleep(time.Minute)
				if s := r.Status(); s.Breaker.State != publish.BreakerClosed || s.DeadLetters != tt.left || s.InFlight > 0 {
					t.Errorf("the breaker is %s, with %d dead letters and %d events in flight; want %d dead letters", s.Breaker.State, s.DeadLetters, s.InFlight, tt.left)
				}
				if err := stop(); err != nil {
					t.Error(err)
				}
				if !tt.refused {
					all = want
				}
				relaytest.CheckOrder(t, w.consume("OrderUpdated"), all)
			})
		})
	}
}
