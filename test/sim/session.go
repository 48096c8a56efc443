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
// The driver holds locks while it waits for the network, and in a bubble time
// stands still while anything waits for a lock; so nothing may come to wait for
// those that are held for long:
//
//   - The next page is fetched ahead under a lock that the reader waits for: it
//     is not fetched ahead.
//   - When its last connection is lost the pool connects anew under a lock, and
//     every query that finds it empty waits for that lock too. Queries are therefore
//     told that the host is down (which the driver itself does a moment later) from
//     before the driver learns of that loss until it says that the host is up; see
//     gate. So does every further connection that is lost, so the driver learns of
//     one after the other: while others are there it connects without the lock.
//   - The ring is read under a lock: connections on which nothing but the
//     driver's own questions go answer in no time.
type session struct {
	*gocql.Session
	gate *gate
}

// connect makes a session of a client that the network knows by this name. The
// database must be there.
func (w *world) connect(client, keyspace string) *session {
	w.t.Helper()
	return w.connectBy(nil, client, keyspace)
}

// connectBy is connect for a host with a clock of its own, unless that is nil.
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

// DialContext connects to the one node there is.
func (d dialer) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	return d(ctx, network, addr)
}

// gate lets queries through while the pool has a connection.
type gate struct {
	live    atomic.Int32 // connections of the pool, one for each shard
	losing  atomic.Int32 // of those that are lost, how many the driver does not know of
	shut    atomic.Bool
	closing atomic.Bool
}

// lost is called before the driver can know that a connection of the pool is.
func (g *gate) lost() {
	left := g.live.Add(-1)
	if g.closing.Load() {
		return
	}
	if left == 0 {
		g.shut.Store(true)
	}
	// Time goes on when everybody waits for something: by then no query is
	// between the gate and the pool, and the driver has done what follows from
	// the loss before this one.
	time.Sleep(time.Duration(g.losing.Add(1)) * time.Microsecond)
	g.losing.Add(-1)
}

// gatedConn is a connection of a session.
type gatedConn struct {
	*conn
	gate *gate
	// pooled says that it is one for queries; the driver has others.
	pooled atomic.Bool
	gone   atomic.Bool
}

// Write takes a message. A connection of the pool begins with USE. The driver
// learns of a loss by reading.
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

// Read reads, and shuts the gate before it says that the connection is lost.
func (c *gatedConn) Read(b []byte) (int, error) {
	n, err := c.conn.Read(b)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		c.lost()
	}
	return n, err
}

// Close ends the connection; the driver gives it up.
func (c *gatedConn) Close() error {
	c.lost()
	return c.conn.Close()
}

func (c *gatedConn) lost() {
	if c.pooled.Load() && !c.gone.Swap(true) {
		c.gate.lost()
	}
}

// gatedPolicy gives out hosts while the gate is open.
type gatedPolicy struct {
	gocql.HostSelectionPolicy
	gate *gate
}

// HostUp is called when a connection of a pool is there that had none or lost one.
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

// Info is the host, nil if it is down. The driver asks right before it takes a
// connection from the host's pool.
func (h gatedHost) Info() *gocql.HostInfo {
	if h.gate.shut.Load() {
		return nil
	}
	return h.SelectedHost.Info()
}
