package scyllafake

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cdc"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/ddl"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/store"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/topology"
)

// Server is a running node. It is safe for concurrent use.
type Server struct {
	cfg     Config
	version catalog.Version
	log     *slog.Logger
	clock   *faults.Clock

	store      *store.Store
	topology   *topology.Topology
	catalog    *ddl.Catalog
	engine     *engine.Engine
	faults     *faults.Injector
	statements *statements
	times      *engine.NodeTimes // nil without Config.NodeCosts
	nodes      []*node           // with more than one only
	tablets    balancer
	ddl        sync.Mutex // held from a schema statement's execution to its events

	memory         *memory
	listeners      []net.Listener
	tcp            net.Addr // nil without TCP
	port           int      // advertised to clients
	shardAware     net.Listener
	shardAwarePort int

	ctx    context.Context // ends when the server closes
	cancel context.CancelFunc

	mu      sync.Mutex
	conns   map[*conn]struct{}
	closing bool
	broken  bool           // the disk refused a write; Close still has to release open resources
	running sync.WaitGroup // listeners and connections
}

// Start opens the data directory and returns a node that is listening.
func Start(cfg Config) (_ *Server, err error) {
	cfg, err = cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	clock := faults.NewClock(cfg.Now)
	s := &Server{
		cfg: cfg, log: cfg.Logger, clock: clock,
		statements: &statements{byID: map[preparedID]*statement{}},
		memory:     newMemory(defaultAddr),
		conns:      map[*conn]struct{}{},
	}
	s.version, _ = catalog.ParseVersion(cfg.Version) // withDefaults has checked it
	s.ctx, s.cancel = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			s.cancel()
			err = errors.Join(err, s.release())
		}
	}()
	if err := s.open(clock); err != nil {
		return nil, err
	}
	if err := s.listen(); err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	addr := s.clientAddr()
	s.port = int(addr.Port())
	if err := s.makeNodes(addr.Addr()); err != nil {
		return nil, err
	}
	if err := s.listenNodes(); err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	if err := errors.Join(s.writeLocal(s.clock.Now(), addr.Addr()), s.writeNodes(s.clock.Now())); err != nil {
		return nil, err
	}
	s.balanceIn(s.cfg.TabletInterval)
	for _, l := range s.listeners {
		s.running.Add(1)
		go s.accept(l)
	}
	return s, nil
}

// open opens the persistent parts of the node.
func (s *Server) open(clock *faults.Clock) error {
	var err error
	s.store, err = store.Open(store.Options{Dir: s.cfg.Dir, FS: s.cfg.fs, Clock: s.clock, Failed: s.stopService})
	if err != nil {
		return fmt.Errorf("open the data directory: %w", err)
	}
	s.topology, err = topology.Open(s.store, topology.Options{
		Shards: s.cfg.Shards, Tokens: s.cfg.Tokens, Identity: s.cfg.Identity, Seed: s.cfg.Seed,
		RingDelay: s.cfg.RingDelay, Nodes: s.cfg.Nodes, Version: s.version, Clock: s.clock,
	})
	if err != nil {
		return err
	}
	s.catalog, err = ddl.Open(ddl.Options{
		Store: s.store, Topology: s.topology, Version: s.version, Tablets: !s.cfg.Vnodes && s.version.HasTablets(),
		Clock: s.clock,
	})
	if err != nil {
		return err
	}
	s.faults = faults.New(faults.NewNode(s.topology, s.catalog, clock, s.version), clock, s.cfg.Seed, s.cfg.Hook)
	if s.cfg.NodeCosts != nil {
		s.times = engine.NewNodeTimes(*s.cfg.NodeCosts, s.topology.Shards)
	}
	s.engine = engine.New(engine.Config{
		Times: s.times, ShardFor: s.shardFor,
		Store: s.store, Schema: s.catalog, Clock: s.clock, Version: s.version, Hook: s.faults, Costs: s.cfg.Costs, DataCenter: s.topology.DataCenter, Cluster: (*cluster)(s),
		EnsurePaxos: s.ensurePaxos,
		CDC:         cdc.NewManager(s.catalog, s.topology, s.cfg.Seed),
	})
	return nil
}

// clientAddr returns the address for clients in system.local. A node that listens on
// all addresses reports the loopback one.
func (s *Server) clientAddr() netip.AddrPort {
	if s.tcp == nil {
		return defaultAddr
	}
	a := s.tcp.(*net.TCPAddr).AddrPort()
	addr := a.Addr().Unmap()
	if addr.IsUnspecified() {
		addr = defaultAddr.Addr()
	}
	return netip.AddrPortFrom(addr, a.Port())
}

func (s *Server) accept(l net.Listener) {
	defer s.running.Done()
	for {
		nc, err := l.Accept()
		if err != nil {
			if s.ctx.Err() == nil {
				s.log.Error("listener ended", "addr", l.Addr(), "err", err)
			}
			return
		}
		s.connect(nc)
	}
}

func (s *Server) connect(nc net.Conn) {
	if tcp, ok := nc.(*net.TCPConn); ok {
		tcp.SetNoDelay(true) //nolint:errcheck // the default anyway
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.findNode(nc)
	if s.closing || n != nil && n.isDown() {
		nc.Close()
		return
	}
	c := &conn{s: s, node: n, nc: nc, out: newWriter(nc, n), shard: s.chooseShard(nc, n), work: make(chan request)}
	s.conns[c] = struct{}{}
	s.running.Add(1)
	go func() {
		defer s.running.Done()
		c.serve()
	}()
}

// forget removes a connection that reads no more from the list.
func (s *Server) forget(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
}

// eachConn calls f for the open connections.
func (s *Server) eachConn(f func(*conn)) {
	s.mu.Lock()
	conns := make([]*conn, 0, len(s.conns))
	for c := range s.conns {
		conns = append(conns, c)
	}
	s.mu.Unlock()
	for _, c := range conns {
		f(c)
	}
}

// Addr returns the TCP address of the ordinary port, "" without one.
func (s *Server) Addr() string {
	if s.tcp == nil {
		return ""
	}
	return s.tcp.String()
}

// ShardAwareAddr returns the TCP address of the shard-aware port, "" without one.
func (s *Server) ShardAwareAddr() string {
	if s.shardAware == nil {
		return ""
	}
	return s.shardAware.Addr().String()
}

// Dial connects over memory. Client and server may be in one testing/synctest bubble.
func (s *Server) Dial(ctx context.Context) (net.Conn, error) {
	return s.memory.dial(ctx, s.memory.addr, 0)
}

// DialContext is Dial for any address, so that a node can be the Dialer of a
// gocql.ClusterConfig. With the shard-aware port it connects from the source port of
// the driver's choice, and so to the shard of its choice.
func (s *Server) DialContext(ctx context.Context, _, addr string) (net.Conn, error) {
	if len(s.nodes) > 0 {
		return s.dialNode(ctx, addr)
	}
	if _, port, err := net.SplitHostPort(addr); err != nil || port != strconv.Itoa(s.shardAwarePort) {
		return s.Dial(ctx)
	}
	to := netip.AddrPortFrom(defaultAddr.Addr(), uint16(s.shardAwarePort))
	return s.memory.dial(ctx, net.TCPAddrFromAddrPort(to), gocql.ScyllaGetSourcePort(ctx))
}

// Busy returns how long each shard of the node has served requests, by Config.NodeCosts;
// nil without.
func (s *Server) Busy() []time.Duration {
	if s.times == nil {
		return nil
	}
	return s.times.Busy()
}

// shardFor returns the shard of a partition.
func (s *Server) shardFor(t *catalog.Table, key []byte) int {
	shards := s.topology.Shards
	if shards == 1 || len(key) == 0 {
		return 0
	}
	token := t.Token(key)
	if tablets, _ := s.catalog.Tablets(t); tablets > 0 {
		n, _, _ := topology.FindTablet(tablets, token)
		return n % shards
	}
	return topology.ShardFor(shards, token)
}

// Topology returns the node's place in the cluster: its CDC generations and tablets,
// and the methods to change them.
func (s *Server) Topology() *topology.Topology { return s.topology }

// Schema returns the current schema; it must not be changed.
func (s *Server) Schema() *catalog.Schema { return s.catalog.Schema() }

// Close stops the node: it refuses new connections, closes the open ones, and closes
// the data directory. Acknowledged writes are kept. The outcome of requests in progress
// is unknown, as at the end of any node.
func (s *Server) Close() error {
	s.mu.Lock()
	if s.closing && !s.broken {
		s.mu.Unlock()
		return nil
	}
	s.closing, s.broken = true, false
	s.mu.Unlock()
	s.cancel()
	s.tablets.stop()
	for _, l := range s.listeners {
		l.Close()
	}
	s.eachConn((*conn).hangUp)
	for i := range s.nodes {
		s.Thaw(i)
	}
	if s.store.Err() == nil {
		s.tablets.running.Wait()
		s.running.Wait() // on a failed store requests may wait for its locks forever
	}
	return s.release()
}

// stopService ends the service after the disk refused a write, as a real node stops its
// transports then. The process and its data directory remain until Close.
func (s *Server) stopService(err error) {
	s.log.Error("node stops serving", "err", err)
	s.mu.Lock()
	s.closing, s.broken = true, true
	s.mu.Unlock()
	s.cancel()
	s.tablets.stop()
	s.eachConn((*conn).hangUp)
	if s.cfg.Failed != nil {
		s.cfg.Failed(err)
	}
}

// release closes what open and listen opened.
func (s *Server) release() error {
	var errs []error
	for _, l := range s.listeners {
		l.Close() // a second close does nothing
	}
	if s.engine != nil && s.store.Err() == nil {
		s.engine.Close()
	}
	if s.store != nil {
		errs = append(errs, s.store.Close())
	}
	return errors.Join(errs...)
}

// Faults returns the node's fault injector.
func (s *Server) Faults() *faults.Injector { return s.faults }
