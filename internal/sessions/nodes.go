package sessions

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
)

// ReconnectInterval is how often the driver tries to connect to a node that is down.
const ReconnectInterval = 2 * time.Second

const (
	// quiet is how long a node with an unanswered request may send nothing before it is
	// probed, and how long the probe may take: after both its connections are closed.
	quiet = 250 * time.Millisecond
	// reprobe is the pause after a probe that was answered: the node is slow, not silent.
	reprobe = time.Second
	// maxHosts limits the cache of the driver's hosts, which the driver recreates at
	// times.
	maxHosts = 1024
)

// Nodes finds the nodes of a database that stopped answering and closes the driver's
// connections to them, so that the driver repeats idempotent statements on the next
// node within a second. The driver alone would keep a silent connection for minutes.
//
// A node owes an answer while a request of the driver is unanswered. If it has sent
// nothing on any connection for 250 ms, it is probed on a connection of its own. If the
// probe has no answer within 250 ms, the node's connections are closed, and new ones
// fail immediately until it answers again. The last node is never cut off.
//
// Which nodes are members is read from system.peers: see [Nodes.Follow].
//
// All sessions of a process share one Nodes. It is safe for concurrent use.
type Nodes struct {
	log   *slog.Logger
	began time.Time

	showing sync.Mutex // writes down
	down    *prometheus.GaugeVec

	mu     sync.Mutex
	byHost map[string]*node // by IP address
	// followed are the sessions to read the members with, of which the first is read.
	followed []*gocql.Session

	hosts struct {
		sync.Map // *gocql.HostInfo -> *node
		count    atomic.Int64
	}
}

// NewNodes returns a Nodes with its metrics in reg, nil for none.
func NewNodes(log *slog.Logger, reg prometheus.Registerer) *Nodes {
	n := &Nodes{log: log, began: time.Now(), byHost: map[string]*node{}, down: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "outbox_scylla_node_down", Help: "1 while a node of the database does not answer or refuses connections, by its address; 0 while it answers.",
	}, []string{"node"})}
	if reg != nil {
		reg.MustRegister(n.down)
	}
	return n
}

// Watch makes the sessions of a cluster report to n. It comes after the cluster's
// Dialer, SslOpts, ConnectTimeout and host selection policy are set.
func (n *Nodes) Watch(cluster *gocql.ClusterConfig) {
	d := &dialer{nodes: n, inner: cluster.Dialer, ssl: cluster.SslOpts}
	if d.inner == nil {
		d.inner = &gocql.ScyllaShardAwareDialer{Dialer: net.Dialer{Timeout: cluster.ConnectTimeout, KeepAlive: cluster.SocketKeepalive}}
	}
	cluster.Dialer, cluster.StreamObserver = d, streams{n}
	hosts := cluster.PoolConfig.HostSelectionPolicy
	if hosts == nil {
		hosts = gocql.TokenAwareHostPolicy(gocql.RoundRobinHostPolicy())
	}
	cluster.PoolConfig.HostSelectionPolicy = policy{hosts, n}
}

// Down returns the addresses of the nodes that do not answer, sorted; a nil Nodes has none.
func (n *Nodes) Down() []string {
	if n == nil {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	var down []string
	for _, one := range n.byHost {
		if one.down.Load() && !one.left.Load() {
			down = append(down, one.addr)
		}
	}
	slices.Sort(down)
	return down
}

// Probe probes every node that was ever connected, and returns Down.
func (n *Nodes) Probe(ctx context.Context) []string {
	n.mu.Lock()
	var wg sync.WaitGroup
	for _, one := range n.byHost {
		one.mu.Lock()
		probe := one.probe
		one.mu.Unlock()
		if probe == nil {
			continue
		}
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, 2*quiet)
			defer cancel()
			if err := probe(ctx); err != nil {
				one.set(true, err)
			}
		})
	}
	n.mu.Unlock()
	wg.Wait()
	return n.Down()
}

// now returns the time since n began, by the monotonic clock.
func (n *Nodes) now() time.Duration { return time.Since(n.began) }

// at returns the node with an address of host and port.
func (n *Nodes) at(addr string) *node {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		host = addr
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	one := n.byHost[host]
	if one == nil {
		one = &node{nodes: n, addr: host, conns: map[*conn]struct{}{}}
		n.byHost[host] = one
		one.show()
	}
	return one
}

// of returns the node of one of the driver's hosts.
func (n *Nodes) of(h *gocql.HostInfo) *node {
	if one, ok := n.hosts.Load(h); ok {
		return one.(*node)
	}
	one := n.at(h.ConnectAddress().String())
	if n.hosts.count.Add(1) > maxHosts {
		n.hosts.Clear()
		n.hosts.count.Store(1)
	}
	n.hosts.Store(h, one)
	return one
}

// markMember marks a host of the driver as a member.
func (n *Nodes) markMember(h *gocql.HostInfo) {
	one := n.of(h)
	if id := h.HostID(); id != "" {
		one.id.Store(&id)
	}
	one.leave(false)
}

// others reports whether any other node is connected.
func (n *Nodes) others(one *node) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, other := range n.byHost {
		if other != one && !other.down.Load() && other.open.Load() > 0 {
			return true
		}
	}
	return false
}

// streams counts the driver's requests that are not answered.
type streams struct{ n *Nodes }

// StreamContext implements gocql.StreamObserver.
func (s streams) StreamContext(context.Context) gocql.StreamObserverContext { return s }

// StreamStarted implements gocql.StreamObserverContext, as the others do.
func (s streams) StreamStarted(o gocql.ObservedStream) { s.n.of(o.Host).noteRequest() }

// StreamAbandoned is called for a request whose connection was closed.
func (s streams) StreamAbandoned(o gocql.ObservedStream) { s.n.of(o.Host).noteResponse() }

// StreamFinished is called for a request that was answered.
func (s streams) StreamFinished(o gocql.ObservedStream) { s.n.of(o.Host).noteResponse() }

// node is one node of the database.
type node struct {
	nodes *Nodes
	addr  string // its IP address
	down  atomic.Bool
	left  atomic.Bool            // it left the cluster
	open  atomic.Int64           // connections
	heard atomic.Int64           // when it last sent something, by Nodes.now
	id    atomic.Pointer[string] // its host id, if the driver knows it
	// absent is the number of consecutive comparisons in which it was no member; guarded by
	// Nodes.mu.
	absent int

	mu    sync.Mutex
	conns map[*conn]struct{}
	probe func(context.Context) error // of the latest dialer
	owed  int                         // requests without an answer
	since time.Duration               // when owed became positive
	due   time.Duration               // when timer fires
	armed bool                        // timer runs, or a probe does
	timer *time.Timer
}

func (n *node) noteRequest() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.owed++; n.owed == 1 {
		n.since = n.nodes.now()
	}
	if !n.armed {
		n.arm(quiet)
	}
}

func (n *node) noteResponse() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.owed = max(n.owed-1, 0)
}

// arm schedules check; n.mu is held.
func (n *node) arm(after time.Duration) {
	n.armed, n.due = true, n.nodes.now()+after
	if n.timer == nil {
		n.timer = time.AfterFunc(after, n.check)
		return
	}
	n.timer.Reset(after)
}

// check probes a node that has owed an answer for too long.
func (n *node) check() {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.nodes.now()
	if n.owed == 0 || len(n.conns) == 0 {
		n.armed, n.owed = false, 0
		return
	}
	silent := now - max(n.since, time.Duration(n.heard.Load()))
	switch {
	case now-n.due > quiet: // this process was suspended: data may have arrived that is not read yet
		n.arm(quiet)
	case silent < quiet:
		n.arm(quiet - silent)
	default:
		go n.inquire(now, n.probe)
	}
}

// inquire probes the node and cuts it off if it does not answer.
func (n *node) inquire(began time.Duration, probe func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), quiet)
	err := probe(ctx)
	cancel()
	wait := quiet
	switch {
	case err == nil:
		wait = reprobe
	case time.Duration(n.heard.Load()) >= began, n.nodes.now()-began > 2*quiet:
		// It answered on another connection, or this process was suspended.
	case !n.nodes.others(n):
		wait = reprobe // no other node can be used
	default:
		n.cutOff(err)
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.arm(wait)
}

// cutOff closes the connections of a node that does not answer.
func (n *node) cutOff(cause error) {
	n.set(true, cause)
	time.Sleep(time.Millisecond) // a statement that has just picked the node must not find its pool empty, which would wait for the driver's lock
	n.mu.Lock()
	conns := n.conns
	n.conns = map[*conn]struct{}{}
	n.armed, n.owed = false, 0
	n.mu.Unlock()
	for c := range conns {
		c.cut()
	}
}

// set records whether the node answers.
func (n *node) set(down bool, cause error) {
	if n.down.Swap(down) == down {
		return
	}
	n.show()
	if down {
		n.nodes.log.Warn("database node does not answer; its statements go to other nodes", "node", n.addr, "err", cause)
		return
	}
	n.nodes.log.Info("database node answers again", "node", n.addr)
}

// show updates the node's metric. A node that left the cluster has none, also if a connection
// to it that was in progress fails later.
func (n *node) show() {
	n.nodes.showing.Lock()
	defer n.nodes.showing.Unlock()
	if n.left.Load() {
		n.nodes.down.DeleteLabelValues(n.addr)
		return
	}
	down := 0.0
	if n.down.Load() {
		down = 1
	}
	n.nodes.down.WithLabelValues(n.addr).Set(down)
}

// leave records whether the node left the cluster.
func (n *node) leave(left bool) {
	if n.left.Swap(left) != left {
		n.show()
	}
}

// errSilent is the error of a connection to a node that does not answer.
var errSilent = errors.New("the node does not answer")
