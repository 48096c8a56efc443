package relay

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/internal/logtest"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/checkpoint"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// Who lives is told by its row changing, not by its clock.
func TestOthers_Look(t *testing.T) {
	t.Parallel()
	start := time.Unix(1_700_000_000, 0)
	own := otherKey{"here/1", start}
	mine := func(at time.Time) otherRow { return otherRow{otherKey: own, version: "v1", at: at} }
	killed := otherRow{otherKey: otherKey{"here/7", start.Add(-time.Hour)}, at: start.Add(-time.Second)}
	twin := func(at time.Time, stopped bool) otherRow {
		return otherRow{otherKey: otherKey{"there/1", start}, version: "v2", at: at, stopped: stopped}
	}
	same := func(at time.Time) otherRow { // in another container
		return otherRow{otherKey: otherKey{"here/1", start.Add(time.Minute)}, at: at}
	}
	const beat = DefaultHeartbeat
	for _, c := range []struct {
		name  string
		rows  func(i int, at time.Time) []otherRow // at each beat
		alive []string                             // after the last one
		came  int
		went  int
	}{
		{"alone, after one that was killed", func(_ int, at time.Time) []otherRow { return []otherRow{mine(at), killed} }, nil, 0, 0},
		{"a twin", func(_ int, at time.Time) []otherRow { return []otherRow{mine(at), killed, twin(at, false)} }, []string{"there/1"}, 1, 0},
		{"whose clock is a day behind", func(_ int, at time.Time) []otherRow {
			return []otherRow{mine(at), twin(at.Add(-24*time.Hour), false)}
		}, []string{"there/1"}, 1, 0},
		{"that stops", func(i int, at time.Time) []otherRow { return []otherRow{mine(at), twin(at, i >= 5)} }, nil, 1, 1},
		{"that is killed", func(i int, at time.Time) []otherRow {
			return []otherRow{mine(at), twin(start.Add(time.Duration(min(i, 3))*beat), false)}
		}, nil, 1, 1},
		{"that goes, with its row", func(i int, at time.Time) []otherRow {
			if i >= 3 {
				return []otherRow{mine(at)}
			}
			return []otherRow{twin(at, false)}
		}, nil, 1, 1},
		{"in the same row", func(_ int, at time.Time) []otherRow { return []otherRow{same(at)} }, []string{"here/1"}, 1, 0},
		{"one before, in the same row", func(i int, at time.Time) []otherRow {
			if i == 0 {
				return []otherRow{same(at)}
			}
			return []otherRow{mine(at)}
		}, nil, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var o others
			came, went := 0, 0
			for i := range 12 {
				at := start.Add(time.Duration(i) * beat)
				in, out := o.look(c.rows(i, at), own, at)
				came, went = came+len(in), went+len(out)
			}
			var alive []string
			for _, a := range o.alive() {
				alive = append(alive, a.Instance)
				if a.Since != start.Add(beat) {
					t.Errorf("noticed after %s, want the second look", a.Since.Sub(start))
				}
			}
			if !slices.Equal(alive, c.alive) || came != c.came || went != c.went {
				t.Errorf("alive %q, %d came and %d went, want %q, %d and %d", alive, came, went, c.alive, c.came, c.went)
			}
			if len(o.seen) > 3 {
				t.Errorf("%d processes are remembered", len(o.seen))
			}
		})
	}
}

// Two relays of one name say so, though they have one row, and stay ready.
func TestHeartbeat_NoticesAnotherInstance(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		var said logtest.Buffer
		w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) {
			c.Logger = slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelWarn}))
		})
		defer w.close()
		r, stop := w.run()
		other := &Relay{cfg: r.cfg, log: relaytest.Logger(t), row: make(chan struct{}, 1)}
		other.metrics, other.streams = r.metrics, checkpoint.NewStreams(nil, 1, other.log, prometheus.NewRegistry())
		beat := func(r *Relay) (end func()) {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { r.Heartbeat(ctx, "v2", 0); close(done) }()
			return func() { cancel(); <-done }
		}
		end := beat(r)
		time.Sleep(20 * time.Second)
		if s := r.Status(); len(s.Others) != 0 {
			t.Errorf("alone it sees %+v", s.Others)
		}
		time.Sleep(time.Second) // they write in turns
		gone := beat(other)
		time.Sleep(5 * DefaultHeartbeat)
		for _, one := range []*Relay{r, other} {
			if s := one.Status(); len(s.Others) != 1 || s.Others[0].Version != "v2" {
				t.Errorf("beside another it sees %+v", s.Others)
			}
		}
		if h, _, _ := w.lastBeat(); len(h.OtherInstances) != 1 {
			t.Errorf("heartbeat %+v does not name the other", h)
		}
		if s := r.Status(); len(s.Problems) > 0 {
			t.Errorf("problems %q: it must stay ready, or nobody could take over from it", s.Problems)
		}
		gone()
		time.Sleep(otherSilent + 2*DefaultHeartbeat)
		if s := r.Status(); len(s.Others) != 0 {
			t.Errorf("alone again it sees %+v", s.Others)
		}
		end()
		if err := stop(); err != nil {
			t.Error(err)
		}
		if n := strings.Count(said.String(), "another process runs a relay of this name"); n != 1 || !strings.Contains(said.String(), "other_instance=") {
			t.Errorf("it is said %d times, want once, with the other's name: %s", n, said.String())
		}
	})
}
