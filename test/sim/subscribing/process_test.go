package subscribing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/scyllatest"
	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/schema"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/engine"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/forward"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/plugin"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/store"
	"github.com/scylla-outbox/scylla-outbox/test/sim/line"
)

var errNetwork = errors.New("the connection was closed")

// host is a machine on which one process follows another.
type host struct {
	w    *world
	name string
	rnd  *rand.Rand
	// life is the mean number of messages to the database and the broker before a process
	// dies; 0 for none.
	life int
	// stay is the mean time after which a process is stopped as planned; 0 for never.
	stay  time.Duration
	lives int
}

// process is an instance.
type process struct {
	*line.Line
	w     *world
	name  string
	clock scyllatest.Clock
	// mortal processes also die after calls of the plugin.
	mortal bool
	*forward.Service
	mu struct {
		sync.Mutex
		frozen chan struct{} // closed when the network of the process continues
		stuck  bool          // consumers have to wait, too
		conns  []net.Conn
		cut    time.Time // of the connections to the broker, for ever
		pauses []pause
	}
}

// pause is a time in which the network of a process was frozen.
type pause struct{ from, to time.Time }

// live runs processes until ctx ends.
func (h *host) live(ctx context.Context) {
	for ctx.Err() == nil {
		if h.w.dark.Load() {
			_ = retry.Wait(ctx, time.Second)
			continue
		}
		h.lives++
		p := &process{Line: new(line.Line), w: h.w, name: fmt.Sprint(h.name, "-", h.lives), mortal: h.life > 0}
		if h.rnd.IntN(3) == 0 {
			p.clock.Set(time.Duration(1-2*h.rnd.IntN(2)) * (time.Minute + time.Duration(h.rnd.Int64N(int64(time.Hour)))))
		}
		running, stop := context.WithCancel(ctx)
		s := h.w.connect(p)
		n := 0
		if h.life > 0 && h.rnd.IntN(4) > 0 && !h.w.calm.Load() {
			n = 20 + int(h.rnd.ExpFloat64()*float64(h.life))
		}
		p.Arm(n, h.rnd.IntN(2) == 0, func() { p.cutOff(); stop() })
		h.w.running.Go(func() {
			for retry.Wait(running, time.Second) == nil {
				if h.w.dark.Load() {
					stop()
				}
			}
		})
		if h.stay > 0 && !h.w.calm.Load() {
			time.AfterFunc(h.stay/2+time.Duration(h.rnd.Int64N(int64(h.stay))), stop)
		}
		died, rnd := make(chan struct{}), rand.New(rand.NewPCG(h.rnd.Uint64(), 'p'))
		h.w.running.Go(func() {
			defer s.Close()
			defer close(died)
			p.run(running, h.name, s, rnd)
		})
		<-running.Done()
		h.w.mu.Lock()
		if h.w.mu.processes[h.name] == p {
			delete(h.w.mu.processes, h.name)
		}
		h.w.mu.Unlock()
		if p.Dead() {
			h.w.counts.deaths.Add(1)
		} else {
			<-died
			h.w.counts.stops.Add(1)
		}
		stop()
		_ = retry.Wait(ctx, time.Duration(h.rnd.Int64N(int64(8*time.Second))))
	}
}

// run runs the instance until ctx ends. A dead one runs on, with no effect.
func (p *process) run(ctx context.Context, host string, session *gocql.Session, rnd *rand.Rand) {
	w := p.w
	st, err := store.Open(session, schema.DefaultKeyspace, store.WithTimeouts(2*time.Second, 6*time.Second))
	must(w.t, err)
	deadLetters, err := dlq.Open(session, schema.DefaultKeyspace, dlq.WithTimeouts(2*time.Second, 6*time.Second))
	must(w.t, err)
	log := slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug})).With("instance", p.name)
	e, err := engine.New(engine.Config{
		// The broker begins its rebalance timeout anew with each repeated request to join.
		Kafka: []kgo.Opt{kgo.SeedBrokers(brokerAddr), kgo.Dialer(p.dial), kgo.RequestTimeoutOverhead(2 * time.Minute), kgo.WithLogger(kgo.BasicLogger(w.log, kgo.LogLevelInfo, func() string {
			return "time=" + time.Now().UTC().Format(time.RFC3339Nano) + " level=client " + p.name + " "
		}))},
		Store: st, DeadLetters: deadLetters, Instance: p.name, Address: "http://" + host, Logger: log,
		Push: plugin.Destinations{Plugins: map[string]plugin.Plugin{"plugin": &destination{p: p, rnd: rnd}}},
	})
	must(w.t, err)
	f, err := forward.New(forward.Config{Local: e, Instance: p.name, Key: w.key, Reports: st, Receipts: e, HTTP: &http.Client{Transport: p}, Logger: log})
	must(w.t, err)
	p.Service = f
	w.mu.Lock()
	w.mu.processes[host] = p
	w.mu.Unlock()
	if err := e.Run(ctx); err != nil {
		w.t.Errorf("Run() = %v", err)
	}
	if err := f.Close(); err != nil {
		w.t.Errorf("Close() = %v", err)
	}
}

// any returns a process to which a consumer is connected, nil for none.
func (w *world) any(rnd *rand.Rand) *process {
	w.mu.Lock()
	defer w.mu.Unlock()
	hosts := w.hostsLocked()
	if len(hosts) == 0 {
		return nil
	}
	return w.mu.processes[hosts[rnd.IntN(len(hosts))]]
}

func (w *world) hostsLocked() (hosts []string) {
	for _, name := range hostNames {
		if w.mu.processes[name] != nil {
			hosts = append(hosts, name)
		}
	}
	return hosts
}

// at returns the process of a host.
func (w *world) at(host string) *process {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.processes[host]
}

// RoundTrip sends a request to another instance, or loses its response.
func (p *process) RoundTrip(r *http.Request) (*http.Response, error) {
	to := p.w.at(r.URL.Host)
	if to == nil || p.Dead() || to.Dead() {
		return nil, errNetwork
	}
	done := make(chan *http.Response, 1)
	go func() {
		to.wait(r.Context(), true)
		rec := httptest.NewRecorder()
		to.Handler().ServeHTTP(rec, r)
		done <- rec.Result()
	}()
	select {
	case resp := <-done:
		if p.Dead() || to.Dead() {
			return nil, errNetwork
		}
		return resp, nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// dial connects the process to the broker.
func (p *process) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := line.Dialer{Line: p.Line, Dial: func(ctx context.Context) (net.Conn, error) { return p.w.net.DialContext(ctx, network, addr) }}.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.mu.cut.IsZero() {
		return nil, errors.Join(errNetwork, conn.Close())
	}
	p.mu.conns = append(p.mu.conns, conn)
	return &link{Conn: conn, p: p, reads: true, writes: true}, nil
}

// cutOff closes the connections to the broker for ever.
func (p *process) cutOff() {
	p.mu.Lock()
	p.mu.cut = time.Now()
	p.mu.Unlock()
	p.reset()
}

// deathTime returns the time of the death of a process, zero for none.
func (p *process) deathTime() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.cut
}

// reset closes the connections to the broker.
func (p *process) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.mu.conns {
		_ = c.Close()
	}
	p.mu.conns = nil
}

// freeze stops the network of the process for a time, as SIGSTOP does. Consumers that are
// connected continue, unless stuck is set: then they continue when the process does.
func (p *process) freeze(d time.Duration, stuck bool) {
	c := make(chan struct{})
	p.mu.Lock()
	p.mu.frozen, p.mu.stuck = c, stuck
	from := time.Now()
	p.mu.Unlock()
	time.Sleep(d)
	p.mu.Lock()
	p.mu.frozen = nil
	p.mu.pauses = append(p.mu.pauses, pause{from, time.Now()})
	p.mu.Unlock()
	close(c)
}

// frozenBetween reports whether a process may have lost its partitions between two times
// because it was frozen.
func (p *process) frozenBetween(from, to time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.mu.pauses, func(f pause) bool {
		return !f.from.After(to) && f.to.Add(sessionTimeout).After(from)
	})
}

// wait returns when the process is not frozen, for a consumer when its requests are served.
func (p *process) wait(ctx context.Context, consumer bool) {
	p.mu.Lock()
	c := p.mu.frozen
	if consumer && !p.mu.stuck {
		c = nil
	}
	p.mu.Unlock()
	if c != nil {
		select {
		case <-c:
		case <-ctx.Done():
		}
	}
}

// link is a connection of a process that may be frozen.
type link struct {
	net.Conn
	p             *process
	reads, writes bool
}

func (l *link) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	if l.reads && err == nil {
		l.p.wait(context.Background(), false)
	}
	return n, err
}

func (l *link) Write(b []byte) (int, error) {
	if l.writes {
		l.p.wait(context.Background(), false)
	}
	return l.Conn.Write(b)
}
