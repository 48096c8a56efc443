package react

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/scylla-outbox/scylla-outbox/react/delivery"
)

// process is the network and the database of one process. After kill its
// operations have no effect.
type process struct {
	*memory
	b     *bundle
	mu    sync.Mutex
	dead  bool
	conns []net.Conn
}

// cut makes a reactor's Config that of the process.
func (p *process) cut(c *Config) {
	c.Deliveries = p
	c.Kafka = []kgo.Opt{kgo.SeedBrokers("127.0.0.1:9092"), kgo.Dialer(p.dial)}
	c.DrainTimeout = time.Second
}

func (p *process) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := p.b.net.DialContext(ctx, network, addr)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil && p.dead {
		_ = conn.Close()
		return nil, errTest
	}
	p.conns = append(p.conns, conn)
	return conn, err
}

func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dead = true
	for _, c := range p.conns {
		_ = c.Close()
	}
}

func (p *process) alive() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead {
		return errTest
	}
	return nil
}

func (p *process) Save(ctx context.Context, d *delivery.Delivery) error {
	if err := p.alive(); err != nil {
		return err
	}
	return p.memory.Save(ctx, d)
}

func (p *process) Read(ctx context.Context, id gocql.UUID) (*delivery.Delivery, error) {
	if err := p.alive(); err != nil {
		return nil, err
	}
	return p.memory.Read(ctx, id)
}

func (p *process) Repeated(ctx context.Context, d *delivery.Delivery) error {
	if err := p.alive(); err != nil {
		return err
	}
	return p.memory.Repeated(ctx, d)
}

// A process that fails after the plugin accepted an event and before that is
// stored delivers it again, and loses none, at any moment.
func TestReactor_CrashBetweenDeliveryAndRecord(t *testing.T) {
	inBubble(t, func(b *bundle) {
		var life *process
		deliveries, killAt := 0, 17
		p := &taker{}
		p.process = func(context.Context, Event) error {
			p.mu.Lock()
			defer p.mu.Unlock()
			if deliveries++; deliveries == killAt {
				life.kill() // delivered, but not recorded
			}
			return nil
		}
		rules := []Rule{{Name: "r", Topics: []string{"a"}, To: "p"}}
		b.store.since["r"] = time.Now()
		const n = 100
		b.many("a", 0, n)
		for lives := 1; ; lives++ {
			life = &process{memory: b.store, b: b}
			r := b.start(map[string]Plugin{"p": p}, rules, life.cut)
			b.sleep(2 * time.Minute) // that of the dead is still a member for its session
			dead := life.alive() != nil
			life.kill()
			r.stop()
			if !dead {
				break
			}
			killAt += 23
			if lives > 20 {
				t.Fatal("it never gets through")
			}
		}
		again := 0
		for i := range n {
			switch got := p.times("e" + strconv.Itoa(i)); {
			case got == 0:
				t.Errorf("e%d is lost", i)
			case got > 1:
				again++
			}
		}
		if again == 0 || again > 4*4*DefaultConcurrency {
			t.Errorf("%d events were repeated, want only those of the crashes", again)
		}
		for id, st := range b.store.states("r") {
			if st != delivery.Delivered {
				t.Errorf("%s is %s", id, st)
			}
		}
	})
}

// A stopped reactor resumes at its position: nothing is lost or repeated, and
// the attempts are preserved.
func TestReactor_RestartResumes(t *testing.T) {
	inBubble(t, func(b *bundle) {
		p := &taker{process: func(ctx context.Context, e Event) error {
			if e.Headers["name"] == "e3" {
				return errTest
			}
			select {
			case <-time.After(time.Second):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}}
		rules := []Rule{{Name: "r", Topics: []string{"a"}, To: "p", Attempts: 5, Backoff: 20 * time.Second}}
		r := b.start(map[string]Plugin{"p": p}, rules)
		b.many("a", 0, 60)
		b.sleep(4500 * time.Millisecond)
		r.stop()
		before := p.count()
		b.many("a", 60, 5) // while no reactor runs
		r = b.start(map[string]Plugin{"p": p}, rules)
		b.sleep(30 * time.Minute)
		if before == 0 || before > 30 {
			t.Fatalf("%d events were delivered before the stop, want some", before)
		}
		for i := range 65 {
			want := 1
			if i == 3 {
				want = 5
			}
			if got := p.times("e" + strconv.Itoa(i)); got != want {
				t.Errorf("e%d arrived %d times, want %d", i, got, want)
			}
		}
		if got := r.metric("outbox_react_deliveries_total", "r", "failed"); got != 1 || b.committed("r", "a") != 65 {
			t.Errorf("%v failed, %d committed", got, b.committed("r", "a"))
		}
	})
}

// Two processes share a rule, and one stops: each event is delivered, in the
// order of its aggregate, and few twice.
func TestReactor_RebalanceLosesNothing(t *testing.T) {
	inBubble(t, func(b *bundle) {
		var mu sync.Mutex
		by := make(map[string]int)
		p := &taker{}
		named := func(name string) Plugin {
			return Func(func(ctx context.Context, e Event) error {
				mu.Lock()
				by[name]++
				mu.Unlock()
				select {
				case <-time.After(50 * time.Millisecond):
				case <-ctx.Done():
					return ctx.Err()
				}
				return p.Process(ctx, e)
			})
		}
		rules := []Rule{{Name: "r", Topics: []string{"a"}, To: "p", Concurrency: 2}}
		one := b.start(map[string]Plugin{"p": named("one")}, rules)
		produced := make(chan struct{})
		go func() {
			defer close(produced)
			for i := range 600 {
				b.many("a", i, 1)
				time.Sleep(100 * time.Millisecond)
			}
		}()
		b.sleep(5 * time.Second)
		two := b.start(map[string]Plugin{"p": named("two")}, rules)
		b.sleep(15 * time.Second)
		one.stop()
		three := b.start(map[string]Plugin{"p": named("three")}, rules)
		<-produced
		b.sleep(time.Minute)
		two.stop()
		three.stop()
		for i := range 600 {
			if got := p.times("e" + strconv.Itoa(i)); got == 0 || got > 2 {
				t.Errorf("e%d arrived %d times", i, got)
			}
		}
		if got := p.count(); got > 620 {
			t.Errorf("%d deliveries of 600 events", got)
		}
		last := make(map[string]int)
		seen := make(map[string]bool)
		for _, e := range p.all {
			if n := number(&e.Event); !seen[e.ID] {
				if n < last[e.AggregateID] {
					t.Errorf("%s: %d arrived after %d", e.AggregateID, n, last[e.AggregateID])
				}
				last[e.AggregateID], seen[e.ID] = n, true
			}
		}
		if by["one"] == 0 || by["two"] == 0 || by["three"] == 0 || b.committed("r", "a") != 600 {
			t.Errorf("they delivered %v, %d are committed", fmt.Sprint(by), b.committed("r", "a"))
		}
	})
}

// A recreated topic is read again, by the rule with its name and by the one
// with a pattern for it.
func TestReactor_RecreatedTopic(t *testing.T) {
	inBubble(t, func(b *bundle) {
		var named, matched taker
		b.start(map[string]Plugin{"named": &named, "matched": &matched}, []Rule{
			{Name: "named", Topics: []string{"a", "b"}, To: "named"}, {Name: "matched", Topics: []string{"a*"}, To: "matched"},
		})
		b.many("a", 0, 10)
		b.sleep(10 * time.Second)
		adm := kadm.NewClient(b.producer)
		if _, err := adm.DeleteTopics(b.t.Context(), "a"); err != nil {
			b.t.Fatal(err)
		}
		if _, err := adm.CreateTopic(b.t.Context(), testPartitions, 1, nil, "a"); err != nil {
			b.t.Fatal(err)
		}
		b.producer.PurgeTopicsFromProducing("a")
		b.many("a", 100, 10)
		b.many("b", 200, 10)
		b.sleep(2 * time.Minute)
		for i := range 10 {
			for _, n := range []int{i, 100 + i} {
				name := "e" + strconv.Itoa(n)
				if x, y := named.times(name), matched.times(name); x != 1 || y != 1 {
					b.t.Errorf("event %s arrived %d times by name and %d by pattern, want once each", name, x, y)
				}
			}
			if n := named.times("e" + strconv.Itoa(200+i)); n != 1 {
				b.t.Errorf("event %d of the other topic arrived %d times", 200+i, n)
			}
		}
	})
}

// The first event of a topic arrives while the rule lists the offsets: between
// the list of start offsets, which is empty, and the list of end offsets.
func TestReactor_EventDuringStart(t *testing.T) {
	inBubble(t, func(b *bundle) {
		asked, came := make(chan struct{}), make(chan struct{})
		var once sync.Once
		b.broker.ControlKey(int16(kmsg.ListOffsets), func(q kmsg.Request) (kmsg.Response, error, bool) {
			b.broker.KeepControl()
			for _, topic := range q.(*kmsg.ListOffsetsRequest).Topics { //nolint:forcetypeassert // of that key
				for _, p := range topic.Partitions {
					if p.Timestamp == -1 { // the end
						once.Do(func() { b.broker.SleepControl(func() { close(asked); <-came }) })
					}
				}
			}
			return nil, nil, false
		})
		var all sync.WaitGroup
		all.Go(func() {
			<-asked
			b.many("a", 0, 5)
			close(came)
		})
		var p taker
		b.start(map[string]Plugin{"p": &p}, []Rule{{Name: "r", Topics: []string{"a"}, To: "p"}})
		all.Wait()
		b.sleep(time.Minute)
		for i := range 5 {
			if n := p.times("e" + strconv.Itoa(i)); n != 1 {
				b.t.Errorf("event %d arrived %d times", i, n)
			}
		}
	})
}
