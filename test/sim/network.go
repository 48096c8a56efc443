package sim

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// The servers.
const (
	database = "database"
	broker   = "broker"
)

// network carries all connections between clients and servers, each known by
// name. Messages of clients take up to a few milliseconds, so that things
// happen one after the other and can be interrupted in between.
type network struct {
	mu   sync.Mutex
	rnd  *rand.Rand
	away map[string]bool // clients and servers that nothing reaches
	// closed are servers that nothing new reaches: what has arrived they answer.
	closed map[string]bool
	conns  map[*conn]struct{}
	lossy  map[string]float64 // how likely an answer of a server is lost
	hooks  map[string]func()  // called for each message that a client sends or is sent
}

func newNetwork(seed uint64) *network {
	return &network{
		rnd:  rand.New(rand.NewPCG(seed, 'n')),
		away: make(map[string]bool), closed: make(map[string]bool), conns: make(map[*conn]struct{}),
		lossy: make(map[string]float64), hooks: make(map[string]func()),
	}
}

var errRefused = errors.New("connection refused")

// dial connects a client to a server, unless one of the two is away.
func (n *network) dial(ctx context.Context, client, server string, connect func(context.Context) (net.Conn, error)) (*conn, error) {
	if n.isAway(client, server) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errRefused}
	}
	c, err := connect(ctx)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.away[client] || n.away[server] || n.closed[server] { // since we looked
		_ = c.Close()
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errRefused}
	}
	l := &conn{
		Conn: c, net: n, client: client, server: server,
		queue: make(chan struct{}, 1), closed: make(chan struct{}),
	}
	n.conns[l] = struct{}{}
	go l.deliver()
	return l, nil
}

func (n *network) isAway(names ...string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, name := range names {
		if n.away[name] || n.closed[name] {
			return true
		}
	}
	return false
}

// cut ends all connections of a client or server and lets it have no new ones.
func (n *network) cut(name string) {
	n.mu.Lock()
	n.away[name] = true
	n.mu.Unlock()
	n.drop(name)
}

// drop ends all connections of a client or server; it may have new ones.
func (n *network) drop(name string) {
	n.mu.Lock()
	var conns []*conn
	for c := range n.conns {
		if c.client == name || c.server == name {
			conns = append(conns, c)
		}
	}
	n.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
	}
	time.Sleep(time.Millisecond) // so that all have noticed
}

// mend undoes cut.
func (n *network) mend(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.away, name)
	delete(n.closed, name)
}

// refuse lets a server have no new connections, and nothing over those that it
// has; what has arrived it answers. So nobody need wonder what was carried out.
func (n *network) refuse(server string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed[server] = true
}

// refuses says whether a message to a server is not taken.
func (n *network) refuses(server string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.closed[server]
}

// loseAnswers lets connections to a server end with this probability when an
// answer comes, which is lost.
func (n *network) loseAnswers(server string, p float64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lossy[server] = p
}

// loses says whether the answer of a server that has just come is lost.
func (n *network) loses(server string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := n.lossy[server]
	return p > 0 && n.rnd.Float64() < p
}

// onMessage calls f for each message that a client sends or is sent; nil ends
// that. f must not wait.
func (n *network) onMessage(client string, f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hooks[client] = f
}

func (n *network) message(client string) {
	n.mu.Lock()
	f := n.hooks[client]
	n.mu.Unlock()
	if f != nil {
		f()
	}
}

// latency is how long the next message takes.
func (n *network) latency() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return 100*time.Microsecond + time.Duration(n.rnd.ExpFloat64()*float64(time.Millisecond))
}

// conn is a client's end of a connection. Like a socket it takes what is
// written at once and delivers it later: clients hold locks while they write,
// and in a bubble time stands still while anything waits for a lock.
type conn struct {
	net.Conn
	net            *network
	client, server string
	// quick says that messages take no time.
	quick atomic.Bool

	queue  chan struct{} // holds a token while there is something to deliver
	closed chan struct{}
	once   sync.Once

	mu      sync.Mutex
	pending []message
}

type message struct {
	due  time.Time
	data []byte
}

// Write takes a message. It fails only on a closed connection.
func (c *conn) Write(b []byte) (int, error) {
	select {
	case <-c.closed:
		return 0, net.ErrClosed
	default:
	}
	if c.net.refuses(c.server) {
		return 0, errRefused // the client closes the connection
	}
	c.net.message(c.client)
	m := message{due: time.Now(), data: bytes.Clone(b)}
	if !c.quick.Load() {
		m.due = m.due.Add(c.net.latency())
	}
	c.mu.Lock()
	c.pending = append(c.pending, m)
	c.mu.Unlock()
	select {
	case c.queue <- struct{}{}:
	default:
	}
	return len(b), nil
}

// Read reads what the server sent, unless it is lost.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n == 0 {
		return n, err
	}
	if c.net.loses(c.server) {
		_ = c.Close()
		return 0, io.EOF
	}
	c.net.message(c.client)
	return n, err
}

// deliver hands on what was written, in order, until the connection is closed.
func (c *conn) deliver() {
	for {
		select {
		case <-c.queue:
		case <-c.closed:
			return
		}
		c.mu.Lock()
		messages := c.pending
		c.pending = nil
		c.mu.Unlock()
		for _, m := range messages {
			time.Sleep(time.Until(m.due))
			if _, err := c.Conn.Write(m.data); err != nil {
				_ = c.Close()
				return
			}
		}
	}
}

// SetDeadline is for reading only: writing never waits.
func (c *conn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

// SetWriteDeadline does nothing: writing never waits.
func (c *conn) SetWriteDeadline(time.Time) error { return nil }

// Close ends the connection. What is not delivered is lost.
func (c *conn) Close() error {
	err := net.ErrClosed
	c.once.Do(func() {
		close(c.closed)
		c.net.mu.Lock()
		delete(c.net.conns, c)
		c.net.mu.Unlock()
		err = c.Conn.Close()
	})
	return err
}
