package scyllafake

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/store"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/system"
)

// node is one address of a server that presents itself as a cluster. All nodes share
// one engine, so every node returns the writes that any other acknowledged.
type node struct {
	index  int // in Server.nodes
	addr   netip.Addr
	hostID uuid.UUID
	tokens []string
	// local and peers select the node's own rows of the two system tables.
	local, peers string

	mu      sync.Mutex
	changed sync.Cond
	frozen  bool // accepts connections and requests, and never responds
	down    bool // refuses connections
	kills   int
}

// makeNodes creates the nodes of the configuration from the first one's address. A
// server with one node has none.
func (s *Server) makeNodes(first netip.Addr) error {
	if s.cfg.Nodes < 2 {
		return nil
	}
	addr := first
	for i := range s.cfg.Nodes {
		n := &node{index: i, addr: addr, hostID: s.topology.HostID}
		if i > 0 {
			n.hostID = uuid.NewSHA1(s.topology.HostID, []byte{byte(i)})
		}
		n.changed.L = &n.mu
		for j, token := range s.topology.Tokens {
			if j%s.cfg.Nodes == i {
				n.tokens = append(n.tokens, strconv.FormatInt(token, 10))
			}
		}
		if len(n.tokens) == 0 {
			return fmt.Errorf("%d tokens are too few for %d nodes", len(s.topology.Tokens), s.cfg.Nodes)
		}
		s.nodes = append(s.nodes, n)
		addr = addr.Next()
	}
	for i, n := range s.nodes {
		var others []string
		for _, other := range s.nodes {
			if other != n {
				others = append(others, "'"+other.addr.String()+"'")
			}
		}
		n.peers = "system.peers WHERE peer IN (" + strings.Join(others, ", ") + ")"
		n.local = fmt.Sprintf("key='node%d'", i)
	}
	return nil
}

// writeNodes writes the nodes' rows of system.local and system.peers, which contain the
// server's schema version.
func (s *Server) writeNodes(at time.Time) error {
	tables := s.catalog.Schema().Keyspaces["system"].Tables
	var rows []*store.Mutation
	for i, n := range s.nodes {
		local := s.localRow(at, n.addr)
		local["key"], local["host_id"], local["tokens"] = fmt.Sprintf("node%d", i), n.hostID, n.tokens
		rows = append(rows, system.Insert(tables["local"], at.UnixMicro(), local))
		peer := system.Values{"peer": n.addr, "preferred_ip": n.addr}
		for _, name := range []string{"data_center", "host_id", "rack", "release_version", "rpc_address", "schema_version", "supported_features", "tokens"} {
			peer[name] = local[name]
		}
		rows = append(rows, system.Insert(tables["peers"], at.UnixMicro(), peer))
	}
	return s.store.Apply(rows)
}

// ownRows returns a statement text changed to read the node's own rows of the system
// tables.
func (n *node) ownRows(text string) string {
	if n == nil || !strings.Contains(text, "system.") {
		return text
	}
	return strings.NewReplacer("key='local'", n.local, "system.peers", n.peers).Replace(text)
}

// findNode returns the node of a client's connection, nil with one node.
func (s *Server) findNode(nc net.Conn) *node {
	if at, ok := nc.LocalAddr().(*net.TCPAddr); ok {
		for _, n := range s.nodes {
			if n.addr == at.AddrPort().Addr().Unmap() {
				return n
			}
		}
	}
	return nil
}

// cluster is the nodes of a Server.
type cluster Server

// Nodes returns the number of nodes.
func (s *cluster) Nodes() int { return max(len(s.nodes), 1) }

// Alive returns how many nodes are up.
func (s *cluster) Alive() int {
	alive := max(1-len(s.nodes), 0) // without nodes the server itself counts
	for _, n := range s.nodes {
		n.mu.Lock()
		if !n.frozen && !n.down {
			alive++
		}
		n.mu.Unlock()
	}
	return alive
}

// Freeze makes a node silent, as SIGSTOP does: it accepts connections and requests and
// never responds. Thaw ends that; requests sent in between are executed then.
func (s *Server) Freeze(i int) { s.nodes[i].set(func(n *node) { n.frozen = true }) }

// Thaw ends Freeze.
func (s *Server) Thaw(i int) { s.nodes[i].set(func(n *node) { n.frozen = false }) }

// Kill ends a node's connections and refuses others until Restart.
func (s *Server) Kill(i int) {
	n := s.nodes[i]
	n.set(func(n *node) { n.down, n.frozen, n.kills = true, false, n.kills+1 })
	s.eachConn(func(c *conn) {
		if c.node == n {
			c.hangUp()
		}
	})
}

// Restart lets a killed node accept connections again.
func (s *Server) Restart(i int) { s.nodes[i].set(func(n *node) { n.down = false }) }

// NodeAddr returns the address of a node.
func (s *Server) NodeAddr(i int) netip.Addr { return s.nodes[i].addr }

func (n *node) set(f func(*node)) {
	n.mu.Lock()
	f(n)
	n.changed.Broadcast()
	n.mu.Unlock()
}

func (n *node) isDown() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.down
}

// await returns when the node, which may be nil, is not frozen, and reports whether it was
// not killed in the meantime.
func (n *node) await() bool {
	if n == nil {
		return true
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	kills := n.kills
	for n.frozen {
		n.changed.Wait()
	}
	return n.kills == kills
}

// dialNode connects over memory to the node with this address.
func (s *Server) dialNode(ctx context.Context, addr string) (net.Conn, error) {
	to, err := netip.ParseAddrPort(addr)
	if err != nil {
		return nil, err
	}
	for _, n := range s.nodes {
		if n.addr == to.Addr() && !n.isDown() {
			return s.memory.dial(ctx, net.TCPAddrFromAddrPort(to), 0)
		}
	}
	return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: net.TCPAddrFromAddrPort(to), Err: errors.New("connection refused")}
}

// listenNodes opens the TCP ports of all nodes but the first.
func (s *Server) listenNodes() error {
	for i := 1; i < len(s.nodes) && s.tcp != nil; i++ {
		l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", netip.AddrPortFrom(s.nodes[i].addr, uint16(s.port)).String())
		if err != nil {
			return err
		}
		s.listeners = append(s.listeners, l)
	}
	return nil
}
