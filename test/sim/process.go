package sim

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/relay"
)

// process is one run of a relay.
type process struct {
	name    string
	config  relay.Config
	session *session
	metrics *prometheus.Registry
	relay   *relay.Relay
	cancel  context.CancelFunc
	done    chan struct{}
	err     error // of Run, once done is closed

	// ended is the time of its kill or stop, zero while it runs.
	ended   time.Time
	crashed bool
	// unsaved is true if a checkpoint could not be saved.
	unsaved bool
	// stranded is true if it ended while the broker was frozen or slow: the broker may
	// execute its requests later.
	stranded bool
}

// relay returns the current relay.
func (w *world) relay() *process {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.relays[len(w.relays)-1]
}

// Intervals at which the tail reader and the sweep reader read idle streams. At
// production intervals these reads would dominate a simulation.
const (
	tailInterval = 20 * time.Second
	idleDelay    = 20 * time.Second
)

// startRelay starts a relay as a new process, which waits for the database and the CDC log.
func (w *world) startRelay() {
	w.t.Helper()
	w.startShard(relay.Shard{})
}

// startShard is startRelay for a relay that owns a shard.
func (w *world) startShard(s relay.Shard) *process {
	w.t.Helper()
	w.mu.Lock()
	p := &process{name: fmt.Sprint("relay", len(w.relays)+1), metrics: prometheus.NewRegistry(), done: make(chan struct{})}
	w.mu.Unlock()
	// A failed session leaves goroutines behind (gocql), and a bubble must be empty at
	// its end.
	for p.session == nil {
		<-w.database
		if !w.net.isAway(database) && !w.frozen && !w.unlogged {
			p.session = w.connect(p.name, keyspace)
		}
		w.database <- struct{}{}
		if p.session == nil {
			time.Sleep(5 * time.Second)
		}
	}
	c := w.settings.relay
	c.Shard, c.Process = s, w.together
	c.Session, c.Keyspace, c.Registerer, c.Logger = p.session.Session, keyspace, p.metrics, w.log.With("process", p.name)
	c.Brokers, c.Kafka = []string{brokerAddr}, append(w.kafka.options(w.net, p.name), kgo.WithHooks(recordClock{w}))
	c.ConfidenceWindow = cmp.Or(c.ConfidenceWindow, relay.Defaults().ConfidenceWindow)
	c.TailMaxInterval = cmp.Or(c.TailMaxInterval, tailInterval)
	c.IdleDelay = cmp.Or(c.IdleDelay, idleDelay)
	c.ReplayPoll = cmp.Or(c.ReplayPoll, min(c.IdleDelay, time.Minute))
	if w.hints != nil {
		c.Hints, c.HintKey = w.hints.listen(), hintKey
	}
	p.config = c
	var err error
	if p.relay, err = relay.New(c); err != nil {
		w.t.Fatalf("make the relay: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	go func() {
		defer close(p.done)
		p.err = p.relay.Run(ctx)
	}()
	go w.watch(ctx, p)
	w.mu.Lock()
	w.relays = append(w.relays, p)
	w.mu.Unlock()
	return p
}

// cutDatabase disconnects the database, but not while a relay connects to it.
func (w *world) cutDatabase() {
	<-w.database
	w.net.cut(database)
	w.database <- struct{}{}
}

// freezeDatabase stops the database like SIGSTOP until thaw is called, but not while a
// relay connects to it.
func (w *world) freezeDatabase() (thaw func()) {
	<-w.database
	w.frozen = true
	w.faults().Freeze()
	w.database <- struct{}{}
	return func() {
		<-w.database
		w.frozen = false
		w.faults().Thaw()
		w.database <- struct{}{}
	}
}

// launchRelay starts a relay without waiting for it.
func (w *world) launchRelay() { w.launching.Go(w.startRelay) }

// relayRuns reports whether a relay is running rather than waiting for the database.
func (w *world) relayRuns() bool { return w.relay().ended.IsZero() }

// stopRelay stops the relay like SIGTERM.
func (w *world) stopRelay() {
	w.t.Helper()
	w.stop(w.relay())
}

func (w *world) stop(p *process) {
	w.t.Helper()
	w.checkRuns(p)
	sharded := p.config.Shard.Count > 0
	if sharded {
		w.count(p) // its metrics are unregistered at its end
	}
	p.cancel()
	<-p.done
	if p.err != nil {
		w.t.Errorf("%s stopped with %v, want nil", p.name, p.err)
	}
	p.ended = time.Now()
	if !sharded {
		w.count(p)
	}
	p.session.Close()
}

// crashRelay stops the relay like SIGKILL: its further messages are dropped. Its
// goroutines end in the background.
func (w *world) crashRelay() {
	w.t.Helper()
	w.crash(w.relay())
}

func (w *world) crash(p *process) {
	w.t.Helper()
	w.checkRuns(p)
	p.crashed, p.ended = true, time.Now()
	w.count(p)
	w.net.cut(p.name)
	p.cancel()
	w.ending.Go(func() {
		<-p.done
		p.session.Close()
	})
}

// checkRuns fails the test if the relay has ended on its own.
func (w *world) checkRuns(p *process) {
	w.t.Helper()
	select {
	case <-p.done:
		w.t.Errorf("%s ended on its own: %v", p.name, p.err)
	default:
	}
}

// count adds the relay's metrics to the outcome, before it ends.
func (w *world) count(p *process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p.stranded = w.kafka.holdsBack()
	w.ending.Go(func() { // requests that it sent at its end have arrived
		time.Sleep(50 * time.Millisecond)
		w.mu.Lock()
		defer w.mu.Unlock()
		p.stranded = p.stranded || w.kafka.holdsBack()
	})
	p.unsaved = p.value(w, "outbox_relay_checkpoint_errors_total") > 0
	w.seen.restarts += int(p.value(w, "outbox_relay_reader_restarts_total"))
	w.seen.scanned += int(p.value(w, "outbox_relay_events_found_total", "backfill"))
}

// watch checks a relay until it ends: the events in flight must stay within their limits.
func (w *world) watch(ctx context.Context, p *process) {
	tick := time.NewTicker(p.config.IdleDelay)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.done:
			return // reported by checkRuns
		case <-tick.C:
		}
		s := p.relay.Status()
		bytes := 0.0
		if s.InFlight > 0 { // gathering all metrics takes time
			bytes = p.value(w, "outbox_relay_in_flight_bytes")
		}
		if s.InFlight > p.config.MaxInFlightRecords || int64(bytes) > p.config.MaxInFlightBytes {
			w.t.Errorf("%s: %d events of %.0f bytes in flight, want at most %d and %d",
				p.name, s.InFlight, bytes, p.config.MaxInFlightRecords, p.config.MaxInFlightBytes)
		}
		w.mu.Lock()
		w.seen.inFlight = max(w.seen.inFlight, s.InFlight)
		w.seen.behind = max(w.seen.behind, s.Behind)
		for _, problem := range s.Problems {
			w.seen.problems[problem] = true
		}
		w.mu.Unlock()
	}
}

// value returns the value of a metric of the relay, without labels or with a label of the
// given value.
func (p *process) value(w *world, name string, label ...string) float64 {
	families, err := p.metrics.Gather()
	if err != nil {
		w.t.Errorf("gather %s: %v", name, err)
		return 0
	}
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				if len(label) == 0 || slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetValue() == label[0] }) {
					return m.GetGauge().GetValue() + m.GetCounter().GetValue()
				}
			}
		}
	}
	if p.config.Shard.Count == 0 { // metrics of a shard are unregistered at its end
		w.t.Errorf("the relay has no metric %s", name)
	}
	return 0
}
