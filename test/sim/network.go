package sim

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// The servers.
const (
	database = "database"
	broker   = "broker"
)

// network carries all connections between named clients and servers. Messages of clients
// take up to a few milliseconds, so that events are ordered and can be interrupted.
type network struct {
	mu   sync.Mutex
	rnd  *rand.Rand
	away map[string]bool // unreachable clients and servers
	// closed contains servers that accept no new messages but answer those already
	// received.
	closed map[string]bool
	conns  map[*conn]struct{}
	lossy  map[string]float64 // probability that an answer of a server is lost
	hooks  map[string]func()  // called for each message that a client sends or receives
	losing func()             // called when the answer to the next produce request is lost; nil to lose none
}

func newNetwork(seed uint64) *network {
	return &network{
		rnd:  rand.New(rand.NewPCG(seed, 'n')),
		away: make(map[string]bool), closed: make(map[string]bool), conns: make(map[*conn]struct{}),
		lossy: make(map[string]float64), hooks: make(map[string]func()),
	}
}

var errRefused = errors.New("connection refused")

// dial connects a client to a server unless one of them is unreachable.
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
	if n.away[client] || n.away[server] || n.closed[server] { // changed since the check
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

// cut closes all connections of a client or server and prevents new ones.
func (n *network) cut(name string) {
	n.mu.Lock()
	n.away[name] = true
	n.mu.Unlock()
	n.drop(name)
}

// drop closes all connections of a client or server; new ones are possible.
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
	time.Sleep(time.Millisecond) // so that all peers have detected it
}

// mend undoes cut.
func (n *network) mend(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.away, name)
	delete(n.closed, name)
}

// refuse makes a server refuse new connections and new messages; it answers messages
// already received. No outcome is unknown.
func (n *network) refuse(server string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed[server] = true
}

// refuses reports whether a server refuses messages.
func (n *network) refuses(server string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.closed[server]
}

// loseAnswers makes an answer of a server close its connection and be lost with
// probability p.
func (n *network) loseAnswers(server string, p float64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lossy[server] = p
}

// loses reports whether the current answer of a server is lost.
func (n *network) loses(server string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := n.lossy[server]
	return p > 0 && n.rnd.Float64() < p
}

// loseNextProduce makes the answer to the next produce request be lost: the connection ends
// instead, which calls lost. nil undoes it.
func (n *network) loseNextProduce(lost func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.losing = lost
}

// losesAnswer returns what to call when the answer to a message of a client is lost, nil if it
// is not.
func (n *network) losesAnswer(request []byte) (lost func()) {
	if len(request) <= 6 || binary.BigEndian.Uint16(request[4:]) != uint16(kmsg.Produce) {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	lost, n.losing = n.losing, nil
	return lost
}

// onMessage calls f for each message that a client sends or receives; nil disables it. f
// must not block.
func (n *network) onMessage(client string, f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hooks[client] = f
}

func (n *network) message(client string) {
	messages.Add(1)
	n.mu.Lock()
	f := n.hooks[client]
	n.mu.Unlock()
	if f != nil {
		f()
	}
}

// latency returns the delay of the next message.
func (n *network) latency() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return 100*time.Microsecond + time.Duration(n.rnd.ExpFloat64()*float64(time.Millisecond))
}

// conn is a client's end of a connection. Like a socket it accepts a write immediately
// and delivers it later: clients hold locks while they write, and in a bubble time stops
// while a goroutine waits for a lock.
type conn struct {
	net.Conn
	net            *network
	client, server string
	// quick disables the delay of messages.
	quick atomic.Bool
	// lost is called with the next answer, which is lost; nil for none.
	lost atomic.Pointer[func()]

	queue  chan struct{} // holds a token while messages are pending
	closed chan struct{}
	once   sync.Once

	mu      sync.Mutex
	pending []message
}

type message struct {
	due  time.Time
	data []byte
}

// Write queues a message. It fails on a closed connection and while the server refuses
// messages.
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
	if c.server == broker {
		if lost := c.net.losesAnswer(b); lost != nil {
			c.lost.Store(&lost)
		}
	}
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

// Read reads an answer of the server unless it is lost.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n == 0 {
		return n, err
	}
	lost := c.lost.Load()
	if lost != nil {
		(*lost)()
	}
	if lost != nil || c.net.loses(c.server) {
		_ = c.Close()
		return 0, io.EOF
	}
	c.net.message(c.client)
	return n, err
}

// deliver delivers queued messages in order until the connection is closed.
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

// SetDeadline sets the read deadline: writes never block.
func (c *conn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

// SetWriteDeadline does nothing: writes never block.
func (c *conn) SetWriteDeadline(time.Time) error { return nil }

// Close closes the connection and drops undelivered messages.
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
