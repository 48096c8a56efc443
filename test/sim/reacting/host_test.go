package reacting

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/react"
	"github.com/scylla-outbox/scylla-outbox/test/sim/line"
)

var errDead = errors.New("the process is dead")

// rules are the ones of every process: one that is tried often, one without order that
// gives up soon, one whose plugin hangs, and one whose plugin is always well.
var rules = []react.Rule{
	{Name: "strict", Topics: topics, To: "strict", Attempts: 6, Backoff: 500 * time.Millisecond, MaxBackoff: 5 * time.Second, Timeout: 2 * time.Second, Concurrency: 3, From: react.FromStart},
	{Name: "loose", Topics: topics, To: "loose", Attempts: 2, Backoff: 500 * time.Millisecond, Timeout: 2 * time.Second, Order: react.OrderNone, From: react.FromStart},
	{Name: "slow", Topics: topics, To: "slow", Attempts: 8, Backoff: time.Second, MaxBackoff: 5 * time.Second, Timeout: 3 * time.Second, Concurrency: 2, Queue: 20, From: react.FromStart},
	{Name: "clear", Topics: topics, To: "clear", From: react.FromStart},
}

// host is a machine on which one process runs after the other.
type host struct {
	w    *world
	name string
	rnd  *rand.Rand
	// life is about how many messages its processes send to the database before they
	// die; 0 means that they do not die so. Mortal ones also die after a call, and stop.
	life   int
	mortal bool
	lives  int
}

// life is a process.
type life struct {
	*line.Line
	name  string
	w     *world
	mu    sync.Mutex
	conns []net.Conn // to the broker
	gone  bool
}

// live runs processes until ctx ends.
func (h *host) live(ctx context.Context) {
	for ctx.Err() == nil {
		h.lives++
		l := &life{Line: &line.Line{}, w: h.w, name: fmt.Sprint(h.name, "/", h.lives)}
		s := l.Connect(h.w.t, h.w.node)
		process, end := context.WithCancel(ctx)
		if h.mortal && h.rnd.IntN(3) == 0 { // it is stopped
			process, end = context.WithTimeout(ctx, time.Duration(h.rnd.Int64N(int64(busy/2))))
		}
		n := 0
		if h.life > 0 && h.rnd.IntN(4) > 0 {
			n = 1 + int(h.rnd.ExpFloat64()*float64(h.life))
		}
		l.Arm(n, h.rnd.IntN(2) == 0, func() { l.cut(); end() })
		h.run(process, l, react.Config{Deliveries: h.w.store(s)})
		if l.Dead() {
			h.w.deaths.Add(1)
		}
		end()
		s.Close()
		wait := time.Duration(h.rnd.Int64N(int64(5 * time.Second)))
		if l.Dead() {
			wait += 13 * time.Second // until then the broker takes it for a member
		}
		time.Sleep(wait)
	}
}

func (h *host) run(ctx context.Context, l *life, c react.Config) {
	c.Kafka = []kgo.Opt{kgo.SeedBrokers(brokerAddr), kgo.Dialer(l.dial)}
	c.Rules, c.Instance, c.DrainTimeout = rules, l.name, time.Second
	c.Plugins = make(map[string]react.Plugin)
	for _, r := range rules {
		c.Plugins[r.To] = &plugin{life: l, rnd: rand.New(rand.NewPCG(h.rnd.Uint64(), 'p')), mortal: h.mortal}
	}
	reactor, err := react.New(c)
	if err != nil {
		h.w.t.Error(err)
		return
	}
	if err := reactor.Run(ctx); err != nil {
		h.w.t.Errorf("Run() = %v", err)
	}
}

// dial is the process's way to the broker, until it dies.
func (l *life) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := l.w.net.DialContext(ctx, network, addr)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if l.gone {
		return nil, errors.Join(errDead, conn.Close())
	}
	l.conns = append(l.conns, conn)
	return conn, nil
}

// cut takes the broker from a process that dies.
func (l *life) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gone = true
	for _, c := range l.conns {
		_ = c.Close()
	}
}
