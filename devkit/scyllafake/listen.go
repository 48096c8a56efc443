package scyllafake

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strconv"
	"sync"
)

// defaultAddr is the advertised address of a node without TCP.
var defaultAddr = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 9042)

// defaultShardAwarePort is the shard-aware port of a node without TCP, a real node's default.
const defaultShardAwarePort = 19042

// memory is a listener whose connections are pipes. It waits on channels only, so it
// works in one testing/synctest bubble with its clients. It serves both ports of a
// node, the ordinary and the shard-aware one.
type memory struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
	addr   net.Addr

	mu   sync.Mutex
	port uint16 // of the next client
}

func newMemory(addr netip.AddrPort) *memory {
	return &memory{
		conns:  make(chan net.Conn),
		closed: make(chan struct{}),
		addr:   net.TCPAddrFromAddrPort(addr),
		port:   1 << 15,
	}
}

// Accept implements net.Listener.
func (m *memory) Accept() (net.Conn, error) {
	select {
	case c := <-m.conns:
		return c, nil
	case <-m.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (m *memory) Close() error {
	m.once.Do(func() { close(m.closed) })
	return nil
}

// Addr implements net.Listener.
func (m *memory) Addr() net.Addr { return m.addr }

// dial connects to an address of the node from a port of the client, 0 for any.
func (m *memory) dial(ctx context.Context, to net.Addr, from uint16) (net.Conn, error) {
	if from == 0 {
		m.mu.Lock()
		m.port = max(m.port+1, 1<<15)
		from = m.port
		m.mu.Unlock()
	}
	local := net.TCPAddrFromAddrPort(netip.AddrPortFrom(defaultAddr.Addr(), from))
	a, b := net.Pipe()
	client := pipe{Conn: a, local: local, remote: to}
	server := pipe{Conn: b, local: to, remote: local}
	select {
	case m.conns <- server:
		return client, nil
	case <-m.closed:
		return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: to, Err: errors.New("connection refused")}
	case <-ctx.Done():
		return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: to, Err: ctx.Err()}
	}
}

// pipe is an end of a net.Pipe with addresses, which drivers use.
type pipe struct {
	net.Conn
	local, remote net.Addr
}

func (p pipe) LocalAddr() net.Addr  { return p.local }
func (p pipe) RemoteAddr() net.Addr { return p.remote }

// listen opens the configured ports.
func (s *Server) listen() error {
	var lc net.ListenConfig
	if s.cfg.Addr != "" {
		l, err := lc.Listen(context.Background(), "tcp", s.cfg.Addr)
		if err != nil {
			return err
		}
		s.listeners = append(s.listeners, l)
		s.tcp = l.Addr()
	}
	if s.cfg.ShardAwarePort != 0 {
		host, _, err := net.SplitHostPort(s.cfg.Addr)
		if err != nil {
			return errors.New("a shard-aware port needs an address to listen on")
		}
		l, err := lc.Listen(context.Background(), "tcp", net.JoinHostPort(host, strconv.Itoa(max(s.cfg.ShardAwarePort, 0))))
		if err != nil {
			return err
		}
		s.listeners = append(s.listeners, l)
		s.shardAware = l
		s.shardAwarePort = l.Addr().(*net.TCPAddr).Port
	}
	if s.cfg.Addr == "" && s.cfg.Nodes < 2 {
		s.shardAwarePort = defaultShardAwarePort
	}
	s.listeners = append(s.listeners, s.memory)
	return nil
}

// chooseShard chooses the shard of a new connection: on the shard-aware port the client's
// port decides, elsewhere the shard with the fewest connections. s.mu is held; n is the
// node, nil with one.
func (s *Server) chooseShard(nc net.Conn, n *node) int {
	if at, ok := nc.LocalAddr().(*net.TCPAddr); ok && at.Port == s.shardAwarePort {
		if from, ok := nc.RemoteAddr().(*net.TCPAddr); ok {
			return from.Port % s.topology.Shards
		}
	}
	counts := make([]int, s.topology.Shards)
	for c := range s.conns {
		if c.node == n {
			counts[c.shard]++
		}
	}
	best := 0
	for shard, n := range counts {
		if n < counts[best] {
			best = shard
		}
	}
	return best
}
