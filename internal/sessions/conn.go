package sessions

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"

	"github.com/gocql/gocql"
)

// dialer opens the driver's connections.
type dialer struct {
	nodes *Nodes
	inner gocql.Dialer
	ssl   *gocql.SslOptions
}

// DialContext connects to a node. A node that did not answer is probed first, so that
// the driver detects a silent node in 250 ms and not after its own timeout.
func (d *dialer) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	n := d.nodes.at(addr)
	probe := func(ctx context.Context) error { return d.probe(ctx, network, addr) }
	if n.down.Load() {
		asking, cancel := context.WithTimeout(ctx, quiet)
		err := probe(asking)
		cancel()
		if err != nil {
			return nil, &net.OpError{Op: "dial", Net: network, Err: errSilent}
		}
	}
	nc, err := d.inner.DialContext(ctx, network, addr)
	if err != nil {
		// For the shard-aware port this means nothing: it may be closed to clients.
		if ctx.Err() == nil && gocql.ScyllaGetSourcePort(ctx) == 0 {
			n.set(true, err)
		}
		return nil, err
	}
	n.set(false, nil)
	c := &conn{n: n, close: nc.Close}
	n.mu.Lock()
	n.probe = probe
	n.conns[c] = struct{}{}
	n.mu.Unlock()
	n.open.Add(1)
	if tcp, ok := nc.(*net.TCPConn); ok {
		return &tcpConn{tcp, c}, nil
	}
	return &anyConn{nc, c}, nil
}

// options is a CQL request that needs no login: OPTIONS in version 4, on stream 0.
var options = []byte{4, 0, 0, 0, 5, 0, 0, 0, 0}

// probe connects to a node and returns nil once it has sent anything. A TLS handshake
// that the node refuses is an answer too.
func (d *dialer) probe(ctx context.Context, network, addr string) error {
	nc, err := d.inner.DialContext(ctx, network, addr)
	if err != nil {
		return err
	}
	defer nc.Close()
	stop := context.AfterFunc(ctx, func() { _ = nc.Close() }) // pipes ignore a context
	defer stop()
	if d.ssl != nil && d.ssl.Config != nil {
		heard := &hearing{Conn: nc}
		conf := d.ssl.Config.Clone()
		if conf.ServerName == "" {
			conf.ServerName, _, _ = net.SplitHostPort(addr)
		}
		if err = tls.Client(heard, conf).HandshakeContext(ctx); heard.any {
			return nil
		}
		return err
	}
	if _, err := nc.Write(options); err != nil {
		return err
	}
	_, err = nc.Read(make([]byte, 1))
	return err
}

// hearing notes whether anything was read.
type hearing struct {
	net.Conn
	any bool
}

// Read implements io.Reader.
func (h *hearing) Read(b []byte) (int, error) {
	k, err := h.Conn.Read(b)
	h.any = h.any || k > 0
	return k, err
}

// conn is a connection of the driver.
type conn struct {
	n     *node
	close func() error
	once  sync.Once
	heard atomic.Bool // anything
	ended atomic.Bool // closed by this side
}

// read records that k bytes were read. A node that closes a connection before it has
// sent anything is down: proxies do so for an absent node.
func (c *conn) read(k int, err error) {
	if k > 0 {
		c.heard.Store(true)
		c.n.heard.Store(int64(c.n.nodes.now()))
	} else if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) && !c.heard.Load() && !c.ended.Load() {
		c.n.set(true, err)
	}
}

// cut closes the connection; the driver notices when it reads.
func (c *conn) cut() {
	c.gone()
	_ = c.close()
}

// gone removes the connection from its node's.
func (c *conn) gone() {
	c.ended.Store(true)
	c.once.Do(func() {
		c.n.open.Add(-1)
		c.n.mu.Lock()
		delete(c.n.conns, c)
		c.n.mu.Unlock()
	})
}

// tcpConn embeds a *net.TCPConn, not a net.Conn: the driver writes many frames in one
// call of the operating system only to a connection with its unexported methods.
type tcpConn struct {
	*net.TCPConn
	watch *conn
}

// Read implements net.Conn.
func (c *tcpConn) Read(b []byte) (int, error) {
	k, err := c.TCPConn.Read(b)
	c.watch.read(k, err)
	return k, err
}

// Close implements net.Conn.
func (c *tcpConn) Close() error {
	c.watch.gone()
	return c.TCPConn.Close()
}

// anyConn is a connection that is not over TCP.
type anyConn struct {
	net.Conn
	watch *conn
}

// Read implements net.Conn.
func (c *anyConn) Read(b []byte) (int, error) {
	k, err := c.Conn.Read(b)
	c.watch.read(k, err)
	return k, err
}

// Close implements net.Conn.
func (c *anyConn) Close() error {
	c.watch.gone()
	return c.Conn.Close()
}

// policy skips nodes that do not answer: the driver itself marks a node whose
// connections were closed as down only after a while.
type policy struct {
	gocql.HostSelectionPolicy
	nodes *Nodes
}

// Pick returns the hosts for a request.
func (p policy) Pick(q gocql.ExecutableQuery) gocql.NextHost {
	next := p.HostSelectionPolicy.Pick(q)
	return func() gocql.SelectedHost {
		h := next()
		if h == nil || h.Info() == nil || !p.nodes.of(h.Info()).down.Load() {
			return h
		}
		return downHost{h}
	}
}

// AddHost adds a node of the cluster.
func (p policy) AddHost(h *gocql.HostInfo) {
	p.nodes.markMember(h)
	p.HostSelectionPolicy.AddHost(h)
}

// RemoveHost removes a node that left the cluster. It does not count as down any more.
func (p policy) RemoveHost(h *gocql.HostInfo) {
	p.HostSelectionPolicy.RemoveHost(h)
	p.nodes.of(h).leave(true)
}

// AddHosts adds many hosts in one call, which the driver uses where a policy has it.
func (p policy) AddHosts(hosts []*gocql.HostInfo) {
	for _, h := range hosts {
		p.nodes.markMember(h)
	}
	if many, ok := p.HostSelectionPolicy.(interface{ AddHosts([]*gocql.HostInfo) }); ok {
		many.AddHosts(hosts)
		return
	}
	for _, h := range hosts {
		p.AddHost(h)
	}
}

// downHost is a host that the driver skips.
type downHost struct{ gocql.SelectedHost }

// Info returns nil, which is a host that is down.
func (downHost) Info() *gocql.HostInfo { return nil }
