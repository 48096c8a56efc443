package share

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// world is an in-memory broker and the instances that share by it. It is created inside a
// synctest bubble, so waits take no real time.
type world struct {
	t       *testing.T
	net     kfake.VirtualNetwork
	cluster *kfake.Cluster

	mu    sync.Mutex
	owner map[int][]*claim // by shard: instances that believe to own it
	seen  []*instance

	closers []func()
	end     chan struct{} // stuck functions end with the test
}

// claim is a running function of an instance.
type claim struct {
	i    *instance
	hold *Hold
}

// instance is a member with its own network.
type instance struct {
	w      *world
	name   string
	member *Member
	reg    *prometheus.Registry
	link   *link
	stop   context.CancelFunc
	ended  chan error

	// drain is the time that its functions take to drain; stuck functions never return.
	drain time.Duration
	stuck bool
	// divided is the database that it divides; "" is "a database".
	divided string
	// work, if set, replaces the default function.
	work Work

	dead bool // killed; under world.mu
}

func newWorld(t *testing.T, opts ...kfake.Opt) *world {
	t.Helper()
	w := &world{t: t, owner: make(map[int][]*claim), end: make(chan struct{})}
	var err error
	w.cluster, err = kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1), kfake.Ports(9092), kfake.ListenFn(w.net.Listen)}, opts...)...)
	if err != nil {
		t.Fatalf("NewCluster() error = %v", err)
	}
	return w
}

// close ends everything: a bubble must be empty at its end.
func (w *world) close() {
	close(w.end)
	for _, i := range w.seen {
		i.link.heal()
		i.leave()
	}
	for _, c := range w.closers {
		c()
	}
	w.cluster.Close()
}

// join starts an instance.
func (w *world) join(name string, change func(*Config, *instance)) *instance {
	w.t.Helper()
	i := &instance{w: w, name: name, link: &link{net: &w.net}, ended: make(chan error, 1), reg: prometheus.NewRegistry()}
	cfg := Config{
		Brokers: []string{"127.0.0.1:9092"}, Kafka: []kgo.Opt{kgo.Dialer(i.link.dial), kgo.MetadataMinAge(100 * time.Millisecond)},
		Name: "outbox.relay.test", Shards: 4, Logger: slog.New(slog.NewTextHandler(w.t.Output(), nil)).With("instance", name), Registerer: i.reg,
	}
	if change != nil {
		change(&cfg, i)
	}
	var err error
	if i.member, err = New(cfg); err != nil {
		w.t.Fatalf("New() error = %v", err)
	}
	work := i.work
	if work == nil {
		work = i.checkOwnership
	}
	ctx, stop := context.WithCancel(context.Background())
	i.stop = stop
	go func() { i.ended <- i.member.Run(ctx, cmp.Or(i.divided, "a database"), work) }()
	w.seen = append(w.seen, i)
	return i
}

// admin returns a client that changes topics, closed at the end of the test.
func (w *world) admin() *kadm.Client {
	w.t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers("127.0.0.1:9092"), kgo.Dialer(w.net.DialContext))
	if err != nil {
		w.t.Fatal(err)
	}
	w.closers = append(w.closers, client.Close)
	return kadm.NewClient(client)
}

// leave stops the instance and waits for it.
func (i *instance) leave() {
	i.stop()
	if err, ok := <-i.ended; ok {
		close(i.ended)
		if err != nil && !i.isDead() && i.work == nil {
			i.w.t.Errorf("%s: Run() error = %v", i.name, err)
		}
	}
}

// kill has the effect of SIGKILL: the instance no longer counts.
func (i *instance) kill() {
	i.w.mu.Lock()
	i.dead = true
	i.w.mu.Unlock()
	i.link.cut()
}

func (i *instance) isDead() bool {
	i.w.mu.Lock()
	defer i.w.mu.Unlock()
	return i.dead
}

// checkOwnership is work that continuously checks that no other instance believes to own the
// shard.
func (i *instance) checkOwnership(ctx context.Context, h *Hold) error {
	c := &claim{i, h}
	i.w.claim(c)
	defer i.w.release(c)
	for ctx.Err() == nil {
		i.w.check(c)
		time.Sleep(20 * time.Millisecond)
	}
	for end := time.Now().Add(i.drain); (i.stuck || time.Now().Before(end)) && h.Check() == nil; time.Sleep(20 * time.Millisecond) {
		i.w.check(c)
	}
	if i.stuck {
		<-i.w.end
	}
	return nil
}

func (w *world) claim(c *claim) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.owner[c.hold.Shard()] = append(w.owner[c.hold.Shard()], c)
}

func (w *world) release(c *claim) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.owner[c.hold.Shard()] = slices.DeleteFunc(w.owner[c.hold.Shard()], func(x *claim) bool { return x == c })
}

// check fails the test if the shard has two owners now.
func (w *world) check(c *claim) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.i.dead || c.hold.Check() != nil {
		return
	}
	for _, x := range w.owner[c.hold.Shard()] {
		if x != c && !x.i.dead && x.hold.Check() == nil {
			w.t.Errorf("shard %d is owned by %s and by %s at the same time", c.hold.Shard(), c.i.name, x.i.name)
		}
	}
}

// owners returns the owner of each shard, "" without one.
func (w *world) owners() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make([]string, 4)
	for s, claims := range w.owner {
		for _, c := range claims {
			if !c.i.dead && c.hold.Check() == nil {
				out[s] = c.i.name
			}
		}
	}
	return out
}

// number returns the number of shards that the instance works on.
func (w *world) number(name string) (n int) {
	for _, o := range w.owners() {
		if o == name {
			n++
		}
	}
	return n
}

// until waits for a condition, fails the test after limit, and returns the duration of
// the wait.
func (w *world) until(limit time.Duration, what string, done func() bool) time.Duration {
	w.t.Helper()
	for begin := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if done() {
			return time.Since(begin)
		}
		if time.Since(begin) > limit {
			w.t.Fatalf("after %s not yet: %s; owners are %q", limit, what, w.owners())
		}
	}
}

// link is the connection of one instance to the broker. While it is cut, writes are
// discarded and reads block.
type link struct {
	net *kfake.VirtualNetwork

	mu     sync.Mutex
	broken bool
	slow   time.Duration // delay of each read
	conns  []*wire
}

func (l *link) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	for l.isCut() {
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	c, err := l.net.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	w := &wire{Conn: c, l: l}
	l.conns = append(l.conns, w)
	return w, nil
}

func (l *link) isCut() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.broken
}

func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.broken = true
	for _, c := range l.conns {
		c.dumb = true
	}
}

// heal restores the link; connections that were cut are reset.
func (l *link) heal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.broken = false
	for _, c := range l.conns {
		if c.dumb {
			_ = c.Conn.Close()
		}
	}
	l.conns = slices.DeleteFunc(l.conns, func(c *wire) bool { return c.dumb })
}

// wire is a connection over a link.
type wire struct {
	net.Conn
	l    *link
	dumb bool // under l.mu
}

func (w *wire) isDumb() bool {
	w.l.mu.Lock()
	defer w.l.mu.Unlock()
	return w.dumb
}

func (w *wire) slowness() time.Duration {
	w.l.mu.Lock()
	defer w.l.mu.Unlock()
	return w.l.slow
}

func (w *wire) Write(p []byte) (int, error) {
	if w.isDumb() {
		return len(p), nil
	}
	return w.Conn.Write(p)
}

func (w *wire) Read(p []byte) (int, error) {
	for {
		n, err := w.Conn.Read(p)
		if d := w.slowness(); err == nil && d > 0 {
			time.Sleep(d)
		}
		if !w.isDumb() {
			return n, err
		}
		if errors.Is(err, io.EOF) {
			return 0, io.ErrUnexpectedEOF
		}
		if err != nil {
			return 0, err
		}
	}
}
