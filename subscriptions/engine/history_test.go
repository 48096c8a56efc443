package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/test/seeds"
)

// history records what consumers saw and did, and checks every promise.
type history struct {
	w        *world
	ordering subscriptions.Ordering
	mu       sync.Mutex
	messages map[string]*seen
	keys     map[string][]string // names by key, in the order of the topic
	wrong    []string
	log      []string
}

// seen is a message.
type seen struct {
	key       string
	index     int
	leases    int
	asked     bool      // an acknowledgement or a rejection was requested
	confirmed time.Time // of an acknowledgement
	receipt   string    // the confirmed one
}

func newHistory(w *world, o subscriptions.Ordering) *history {
	return &history{w: w, ordering: o, messages: make(map[string]*seen), keys: make(map[string][]string)}
}

func (h *history) produce(topic string, first, n, keys int) {
	for i := first; i < first+n; i++ {
		key, name := topic+"k"+strconv.Itoa(i%keys), topic+"e"+strconv.Itoa(i)
		h.mu.Lock()
		h.messages[name] = &seen{key: key, index: len(h.keys[key])}
		h.keys[key] = append(h.keys[key], name)
		h.mu.Unlock()
		h.w.produce(topic, key, name)
	}
}

func (h *history) wrongLocked(format string, args ...any) {
	h.wrong = append(h.wrong, fmt.Sprintf(format, args...))
}

func (h *history) notef(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.log = append(h.log, time.Now().Format("05.000 ")+fmt.Sprintf(format, args...))
}

// dead returns the names of the dead letters.
func (h *history) dead() map[string]bool {
	out := make(map[string]bool)
	for _, l := range h.w.db.letters() {
		out[l.Headers["name"]] = true
	}
	return out
}

// recordDelivery records a delivery. visibility is that of the request.
func (h *history) recordDelivery(by string, m *subscriptions.Message, visibility time.Duration) {
	dead := h.dead()
	h.mu.Lock()
	defer h.mu.Unlock()
	name := nameOfMessage(m)
	s := h.messages[name]
	leased := m.LeaseUntil.Add(-visibility)
	h.log = append(h.log, fmt.Sprintf("%s %s received by %s: %s/%d/%d attempt %d", leased.Format("05.000"), name, by, m.Topic, m.Partition, m.Offset, m.Attempt))
	s.leases++
	if !s.confirmed.IsZero() && leased.After(s.confirmed) {
		h.wrongLocked("%s was leased by %s after its confirmed acknowledgement", name, by)
	}
	if m.Attempt > s.leases || m.Attempt > m.MaxReceive {
		h.wrongLocked("%s: attempt %d of %d at its %d. delivery", name, m.Attempt, m.MaxReceive, s.leases)
	}
	if h.ordering != subscriptions.OrderingNone {
		for _, earlier := range h.keys[s.key][:s.index] {
			if e := h.messages[earlier]; !e.asked && !dead[earlier] {
				h.wrongLocked("%s was delivered before the end of %s", name, earlier)
			}
		}
	}
}

// recordResult records the result of an action.
func (h *history) recordResult(m *subscriptions.Message, a subscriptions.Action, c subscriptions.Code) {
	h.mu.Lock()
	defer h.mu.Unlock()
	name := nameOfMessage(m)
	s := h.messages[name]
	h.log = append(h.log, fmt.Sprintf("%s %s %s: %s", time.Now().Format("05.000"), name, a, c))
	if a != subscriptions.ActionAck || c != subscriptions.CodeOK {
		return
	}
	if s.receipt != "" && s.receipt != m.Receipt {
		h.wrongLocked("%s was acknowledged with two receipts", name)
	}
	s.receipt = m.Receipt
	if s.confirmed.IsZero() {
		s.confirmed = time.Now()
	}
}

func (h *history) recordRequest(m *subscriptions.Message) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.messages[nameOfMessage(m)].asked = true
}

// missing returns the messages that are neither acknowledged nor dead letters.
func (h *history) missing() (out []string) {
	dead := h.dead()
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, s := range h.messages {
		if s.confirmed.IsZero() && !dead[name] && !s.asked {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// cluster are engines and consumers of a history.
type cluster struct {
	*history
	rng  *rand.Rand
	mu   sync.Mutex
	up   []*process
	calm bool // consumers acknowledge everything
}

func (c *cluster) any() *process {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.up) == 0 {
		return nil
	}
	return c.up[c.rng.IntN(len(c.up))]
}

func (c *cluster) intn(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rng.IntN(n)
}

// consume receives and settles until ctx ends, as a program does.
func (c *cluster) consume(ctx context.Context) {
	for ctx.Err() == nil {
		p := c.any()
		if p == nil {
			time.Sleep(100 * time.Millisecond)
			continue
		}
		visibility := time.Duration(2+c.intn(4)) * time.Second
		got, err := p.Receive(ctx, "s", subscriptions.Receive{Max: 1 + c.intn(10), Wait: time.Duration(c.intn(3)) * 100 * time.Millisecond, VisibilityTimeout: visibility})
		for i := range got {
			c.recordDelivery(p.name, &got[i], visibility)
		}
		if err != nil || len(got) == 0 {
			time.Sleep(20 * time.Millisecond)
			continue
		}
		time.Sleep(time.Duration(c.intn(200)) * time.Millisecond)
		for _, m := range got {
			c.act(ctx, p, m)
		}
	}
}

func (c *cluster) act(ctx context.Context, p *process, m subscriptions.Message) {
	c.mu.Lock()
	calm := c.calm
	c.mu.Unlock()
	s := subscriptions.Settle{Action: subscriptions.ActionAck, Receipt: m.Receipt}
	if !calm {
		switch n := c.intn(40); {
		case n < 5:
			s.Action, s.Delay = subscriptions.ActionNack, time.Duration(c.intn(3))*time.Second
		case n < 8:
			s.Action = subscriptions.ActionRelease
		case n == 8:
			s.Action = subscriptions.ActionReject
		case n < 12:
			return // the consumer forgets it
		case n == 12:
			time.Sleep(4 * time.Second) // the lease may be over
		}
	}
	if s.Action == subscriptions.ActionAck || s.Action == subscriptions.ActionReject {
		c.recordRequest(&m)
	}
	for range 5 {
		results, err := p.Settle(ctx, "s", []subscriptions.Settle{s})
		if err != nil {
			return
		}
		c.recordResult(&m, s.Action, results[0].Code)
		if results[0].Code != subscriptions.CodeUnknown {
			return
		}
	}
}

// disturb does one harmful thing.
func (c *cluster) disturb() {
	c.mu.Lock()
	n, i := c.rng.IntN(8), 0
	if len(c.up) > 0 {
		i = c.rng.IntN(len(c.up))
	}
	d := time.Duration(1+c.rng.IntN(25)) * time.Second
	one := c.up[i]
	c.mu.Unlock()
	out := func() {
		c.mu.Lock()
		c.up = slices.Delete(slices.Clone(c.up), i, i+1)
		c.mu.Unlock()
	}
	add := func() {
		p := c.w.start()
		c.mu.Lock()
		c.up = append(c.up, p)
		c.mu.Unlock()
	}
	switch n {
	case 0, 1: // killed; consumers that use it do not learn of it
		c.notef("kill %s", one.name)
		one.kill()
		time.Sleep(time.Second)
		out()
		add()
	case 2:
		c.notef("stop %s", one.name)
		out()
		one.stop()
		add()
	case 3, 4: // its session may expire, and its consumers continue
		c.notef("freeze %s for %s", one.name, d)
		one.freeze(true)
		time.Sleep(d)
		one.freeze(false)
	case 5:
		c.notef("cut %s", one.name)
		one.cut()
	case 6:
		c.notef("the database is away for %s", d)
		c.w.db.fail(func(op string) (bool, error) { return op == "save" || op == "remove", errTest })
		time.Sleep(d)
		c.w.db.fail(nil)
	case 7:
		c.mu.Lock()
		few := len(c.up) < 3
		c.mu.Unlock()
		if few {
			c.notef("another instance")
			add()
		}
	}
}

func runHistory(t *testing.T, seed uint64) {
	inBubble(t, func(w *world) {
		rng := rand.New(rand.NewPCG(seed, 7))
		ordering := []subscriptions.Ordering{subscriptions.OrderingKey, subscriptions.OrderingKey, subscriptions.OrderingNone}[rng.IntN(3)]
		w.put(subscriptions.Subscription{Name: "s", Topics: []string{"a", "b"}, Ordering: ordering, MaxReceive: 4, Backoff: 500 * time.Millisecond, Start: subscriptions.StartEarliest})
		c := &cluster{history: newHistory(w, ordering), rng: rng}
		for range 1 + rng.IntN(3) {
			c.up = append(c.up, w.start())
		}
		ctx, cancel := context.WithCancel(context.Background())
		var all sync.WaitGroup
		for range 6 {
			all.Go(func() { c.consume(ctx) })
		}
		for i := range 8 {
			c.history.produce("a", i*30, 30, 7)
			c.history.produce("b", i*10, 10, 2)
			c.disturb()
			time.Sleep(time.Duration(c.intn(3000)) * time.Millisecond)
		}
		c.mu.Lock()
		c.calm = true
		c.mu.Unlock()
		for end := time.Now().Add(10 * time.Minute); len(c.missing()) > 0 && time.Now().Before(end); {
			time.Sleep(time.Second)
		}
		time.Sleep(time.Minute) // nothing more may be delivered
		cancel()
		all.Wait()
		for _, name := range c.missing() {
			t.Errorf("%s is lost: %+v", name, c.messages[name])
		}
		for _, wrong := range c.wrong {
			t.Error(wrong)
		}
		if t.Failed() {
			for _, l := range c.log {
				t.Log(l)
			}
			for _, p := range c.up {
				p.dump(t)
			}
			for _, r := range w.db.resources {
				members, err := w.adm.DescribeGroups(context.Background(), r.Incarnation())
				t.Logf("%+v, %v", members, err)
			}
		}
	})
}

// Instances are killed, stopped, frozen and cut off, the database is away, and consumers
// fail: nothing is lost, keys stay in order, nothing is delivered after its confirmed
// acknowledgement. SUBSCRIPTION_SEEDS is the number of histories.
func TestEngine_Histories(t *testing.T) {
	t.Parallel()
	n := uint64(12)
	if testing.Short() {
		n = 4
	}
	if _, ok := os.LookupEnv("SUBSCRIPTION_SEEDS"); ok {
		n = seeds.Number(t, "SUBSCRIPTION_SEEDS", n)
	}
	for seed := range seeds.Range(t, n) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) { runHistory(t, seed) })
	}
}

// dump logs the state of an engine.
func (p *process) dump(t *testing.T) {
	t.Helper()
	for _, g := range p.running() {
		t.Logf("%s: session %v", p.name, g.session.valid(time.Now()))
		for _, o := range g.ownedPartitions() {
			o.mu.Lock()
			if o.mu.q == nil {
				t.Logf("  %s/%d is not loaded, closed %v", o.topic, o.number, o.mu.closed)
			} else {
				t.Logf("  %s/%d epoch %d closed %v leaving %v working %v stopped %v %+v", o.topic, o.number, o.mu.epoch, o.mu.closed, o.mu.leaving, o.mu.working, o.mu.stopped, o.mu.q.Counts())
			}
			o.mu.Unlock()
		}
	}
}
