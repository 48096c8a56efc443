package relay

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/internal/heartbeat"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/checkpoint"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/publish"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// lastBeat returns the row in relay_instances.
func (w *world) lastBeat() (h heartbeat.RelayStatus, at time.Time, ttl int) {
	w.t.Helper()
	var text string
	err := w.session.Query("SELECT at, status, TTL(status) FROM outbox.relay_instances WHERE scope = 'keyspace'").Scan(&at, &text, &ttl)
	if err != nil {
		w.t.Fatalf("read the heartbeat: %v", err)
	}
	if err := json.Unmarshal([]byte(text), &h); err != nil {
		w.t.Fatalf("heartbeat %s: %v", text, err)
	}
	return h, at, ttl
}

// A relay writes its status as a heartbeat; while the database refuses it, the relay publishes
// events as before, and writes it again afterwards. Its last heartbeat reports its end.
func TestHeartbeat_ReportsTheRelayAndDisturbsNothing(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, nil)
		defer w.close()
		r, stop := w.run()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { r.Heartbeat(ctx, "v1.2.3", 0); close(done) }()

		all := relaytest.Events(30, 1, "OrderCreated")
		for _, e := range all[:20] {
			w.write(e)
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(10 * time.Second)
		h, at, ttl := w.lastBeat()
		if h.State != "running" || !h.Ready || h.Version != "v1.2.3" || h.Host == "" || h.Breaker.State != "closed" || h.Streams == 0 || len(h.Lag) == 0 || len(h.Groups) == 0 || h.Behind < h.Lag[0].BehindSeconds-1 || h.MemoryBytes == 0 || !h.Tail.On {
			t.Errorf("heartbeat %+v", h)
		}
		if age := time.Since(at); age > DefaultHeartbeat+time.Second || ttl < int(heartbeatLife.Seconds())-10 {
			t.Errorf("it is %s old and lives for %d s", age, ttl)
		}

		id := w.db.Faults().MustAdd(faults.Rule{Match: faults.Match{Table: "relay_instances", Kinds: []engine.OpKind{engine.OpWrite}}, Effect: faults.Effect{Delay: time.Hour}})
		for _, e := range all[20:] {
			w.write(e)
			time.Sleep(time.Second)
		}
		time.Sleep(10 * time.Second)
		if hits := w.db.Faults().Hits(id); hits == 0 {
			t.Error("no heartbeat was tried")
		}
		if _, since, _ := w.lastBeat(); time.Since(since) < 15*time.Second {
			t.Error("the heartbeat was written in spite of the fault")
		}
		if n := sum(r.metrics.Published); n != 30 {
			t.Errorf("%v events published while no heartbeat could be written, want 30", n)
		}
		w.db.Faults().Remove(id)
		time.Sleep(3 * DefaultHeartbeat)
		if _, since, _ := w.lastBeat(); time.Since(since) > DefaultHeartbeat+heartbeatTimeout {
			t.Errorf("the last heartbeat is %s old though the database takes them again", time.Since(since))
		}

		if err := stop(); err != nil {
			t.Error(err)
		}
		cancel()
		<-done
		if h, _, _ := w.lastBeat(); h.State != "stopped" || h.Ready {
			t.Errorf("at the end: %+v", h)
		}
	})
}

func TestHeartbeat_RatesAndBeforeTheStart(t *testing.T) {
	t.Parallel()
	cfg := Config{Brokers: []string{"127.0.0.1:1"}, Settings: Settings{DeadLetters: DeadLettersOff}}
	r := &Relay{cfg: cfg.withDefaults()}
	r.metrics = newMetrics(r.cfg.Registerer)
	b := newBeating(r, "")
	b.r.streams = checkpoint.NewStreams(nil, 1, b.r.log, prometheus.NewRegistry())
	now := time.Unix(1_700_000_000, 0)
	if h := b.report("running", now); h.State != "starting" || h.Ready || len(h.Problems) == 0 || h.Rates.Published != 0 || len(h.Lag) != 0 {
		t.Errorf("before the start: %+v", h)
	}
	b.r.metrics.Published.WithLabelValues("a").Add(10)
	b.r.metrics.Published.WithLabelValues("b").Add(30)
	b.r.metrics.Found[publish.BySweep].Add(4)
	b.r.metrics.CommitSeconds.Observe(.003)
	h := b.report("running", now.Add(2*time.Second))
	if h.Rates.Published != 20 || h.Rates.Found["sweep"] != 2 || h.Rates.Found["tail"] != 0 || h.Rates.Failures != 0 {
		t.Errorf("rates %+v, want 20 published and 2 found by the sweep each second", h.Rates)
	}
	if l := h.Latency; l == nil || l.P50 < 2 || l.P99 > 4 {
		t.Errorf("latency %+v, want about 3 ms", l)
	}
	if h.Published != 40 || h.Commits == nil || h.Commits.All() != 1 {
		t.Errorf("%v events since the start, latencies %+v, want 40 and one", h.Published, h.Commits)
	}
	if h := b.report("running", now.Add(4*time.Second)); h.Rates.Published != 0 || h.Latency != nil || h.Published != 40 {
		t.Errorf("rates %+v when nothing happened", h.Rates)
	}
}

// The rows of an instance report it as starting until it has joined the group, and its
// problems as problems from then on.
func TestMembership_StartsUntilItHasJoined(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, nil)
		defer w.close()
		var joined atomic.Bool
		m := Membership{Session: w.session, Keyspace: "outbox", Name: Defaults().Name, Tables: []string{"outbox.outbox_messages"}, Status: func() (heartbeat.RelaySharing, []string) {
			if joined.Load() {
				return heartbeat.RelaySharing{Shards: 1, Owned: []int{0}, Joined: true}, nil
			}
			return heartbeat.RelaySharing{Shards: 1}, []string{"joining the group of instances"}
		}}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { m.Beat(ctx); close(done) }()
		check := func(state string, ready bool) {
			t.Helper()
			time.Sleep(2 * DefaultHeartbeat)
			if h, _, _ := w.lastBeat(); h.State != state || h.Ready != ready {
				t.Errorf("state %s, ready %t, want %s, %t", h.State, h.Ready, state, ready)
			}
		}
		check("starting", false)
		joined.Store(true)
		check("running", true)
		joined.Store(false) // the broker does not answer
		check("running", false)
		cancel()
		<-done
		check("stopped", false)
	})
}
