package sim

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/scyllatest"
)

// session is a client of the database.
//
// The driver holds locks while it waits for the network, and in a bubble time stops while
// a goroutine waits for a lock. So no goroutine may wait for a lock that is held for
// long:
//
//   - - A prefetch of the next page holds a lock that the reader waits for: there is no
//     prefetch.
//   - - After the loss of its last connection the pool reconnects under a lock, and every
//     query that finds it empty waits for that lock. The gate therefore reports the host
//     as down to queries (which the driver does a moment later) from before the driver
//     detects the loss until it reports the host as up. The gate also delays each further
//     loss, so the driver detects losses one by one: while other connections exist it
//     reconnects without the lock.
//   - - The ring is read under a lock: connections with only the driver's own queries
//     answer without delay.
type session struct {
	*gocql.Session
	gate *gate
}

// connect returns a session of the client with this name in the network. The database
// must be reachable.
func (w *world) connect(client, keyspace string) *session {
	w.t.Helper()
	return w.connectBy(nil, client, keyspace)
}

// connectBy is connect for a host with its own clock, unless clock is nil.
func (w *world) connectBy(clock *scyllatest.Clock, client, keyspace string) *session {
	w.t.Helper()
	g := &gate{}
	cluster := gocql.NewCluster("127.0.0.1")
	cluster.Dialer = dialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := w.net.dial(ctx, client, database, func(ctx context.Context) (net.Conn, error) {
			return w.node.DialContext(ctx, network, addr)
		})
		if err != nil {
			return nil, err
		}
		c.quick.Store(true)
		return &gatedConn{conn: c, gate: g}, nil
	})
	if clock != nil {
		cluster.Dialer = clock.Dialer(cluster.Dialer)
	}
	cluster.PoolConfig.HostSelectionPolicy = &gatedPolicy{HostSelectionPolicy: gocql.RoundRobinHostPolicy(), gate: g}
	cluster.ReconnectInterval = 5 * time.Second
	cluster.Keyspace = keyspace
	cluster.Timeout = 5 * time.Second
	cluster.WriteCoalesceWaitTime = 0 // messages go one by one anyway
	cluster.ConnectTimeout = 5 * time.Second
	cluster.Consistency = gocql.LocalQuorum
	cluster.Logger = log.New(io.Discard, "", 0)
	s, err := cluster.CreateSession()
	if err != nil {
		w.t.Fatalf("connect %s to the database: %v", client, err)
	}
	s.SetPrefetch(0)
	return &session{Session: s, gate: g}
}

// Close ends the session.
func (s *session) Close() {
	s.gate.closing.Store(true)
	s.Session.Close()
}

// dialer is a gocql.Dialer.
type dialer func(ctx context.Context, network, addr string) (net.Conn, error)

// DialContext connects to the only node.
func (d dialer) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	return d(ctx, network, addr)
}

// gate allows queries while the pool has a connection.
type gate struct {
	live    atomic.Int32 // connections of the pool, one per shard
	losing  atomic.Int32 // lost connections that the driver has not detected
	shut    atomic.Bool
	closing atomic.Bool
}

// lost is called before the driver can detect the loss of a connection of the pool.
func (g *gate) lost() {
	left := g.live.Add(-1)
	if g.closing.Load() {
		return
	}
	if left == 0 {
		g.shut.Store(true)
	}
	// Time advances when all goroutines wait: then no query is between the gate and the
	// pool, and the driver has handled the previous loss.
	time.Sleep(time.Duration(g.losing.Add(1)) * time.Microsecond)
	g.losing.Add(-1)
}

// gatedConn is a connection of a session.
type gatedConn struct {
	*conn
	gate *gate
	// pooled is true for connections for queries; the driver has others.
	pooled atomic.Bool
	gone   atomic.Bool
}

// Write queues a message. A connection of the pool begins with USE. The driver detects a
// loss by reading.
func (c *gatedConn) Write(b []byte) (int, error) {
	if !c.pooled.Load() && bytes.Contains(b, []byte("USE ")) {
		c.pooled.Store(true)
		c.gate.live.Add(1)
	} else if c.pooled.Load() {
		c.quick.Store(false)
	}
	_, _ = c.conn.Write(b)
	return len(b), nil
}

// Read reads, and shuts the gate before it returns the error of a lost connection.
func (c *gatedConn) Read(b []byte) (int, error) {
	n, err := c.conn.Read(b)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		c.lost()
	}
	return n, err
}

// Close closes a connection that the driver drops.
func (c *gatedConn) Close() error {
	c.lost()
	return c.conn.Close()
}

func (c *gatedConn) lost() {
	if c.pooled.Load() && !c.gone.Swap(true) {
		c.gate.lost()
	}
}

// gatedPolicy returns hosts while the gate is open.
type gatedPolicy struct {
	gocql.HostSelectionPolicy
	gate *gate
}

// HostUp is called for a new connection of a pool that had none or lost one.
func (p *gatedPolicy) HostUp(h *gocql.HostInfo) {
	if p.gate.live.Load() > 0 {
		p.gate.shut.Store(false)
	}
	p.HostSelectionPolicy.HostUp(h)
}

// Pick returns the hosts for a query.
func (p *gatedPolicy) Pick(q gocql.ExecutableQuery) gocql.NextHost {
	next := p.HostSelectionPolicy.Pick(q)
	return func() gocql.SelectedHost {
		h := next()
		if h == nil {
			return nil
		}
		return gatedHost{h, p.gate}
	}
}

// gatedHost is a host that is down while the gate is shut.
type gatedHost struct {
	gocql.SelectedHost
	gate *gate
}

// Info returns the host, nil if it is down. The driver calls it right before it takes a
// connection from the host's pool.
func (h gatedHost) Info() *gocql.HostInfo {
	if h.gate.shut.Load() {
		return nil
	}
	return h.SelectedHost.Info()
}
