package sim

import (
	"bytes"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/outbox/hint"
)

// hintKey is the key of the order services and the relay.
var hintKey = []byte("a key of the simulation, for hints")

// hints delivers the datagrams that notify the relay of writes: it loses, repeats, delays
// and corrupts some of them.
type hints struct {
	sender *hint.Sender

	mu    sync.Mutex
	rnd   *rand.Rand
	relay *hintConn // current receiver
}

func startHints(t *testing.T, seed uint64) *hints {
	t.Helper()
	h := &hints{rnd: rand.New(rand.NewPCG(seed, 'h'))}
	var err error
	h.sender, err = hint.NewSender(hint.SenderConfig{Addrs: []string{"127.0.0.1:7070"}, Key: hintKey, Conn: &hintConn{hints: h}})
	if err != nil {
		t.Fatalf("start the sender of hints: %v", err)
	}
	return h
}

func (h *hints) close() { _ = h.sender.Close() }

// listen returns the socket of a new relay, which replaces the previous one.
func (h *hints) listen() net.PacketConn {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.relay = &hintConn{hints: h, datagrams: make(chan []byte, 100), ended: make(chan struct{})}
	return h.relay
}

// carry delivers a datagram, possibly late, repeatedly or never.
func (h *hints) carry(b []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	b = bytes.Clone(b)
	switch h.rnd.IntN(6) {
	case 0:
		return
	case 1:
		h.deliver(b)
	case 2:
		b[h.rnd.IntN(len(b))] ^= 1 << h.rnd.IntN(8)
	case 3:
		time.AfterFunc(upTo(h.rnd, time.Minute), func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.deliver(b)
		})
		return
	}
	h.deliver(b)
}

// deliver passes a datagram to the relay. Called locked.
func (h *hints) deliver(b []byte) {
	if h.relay == nil {
		return
	}
	select {
	case h.relay.datagrams <- b:
	default:
	}
}

// hintConn is one end of the connection for hints.
type hintConn struct {
	hints     *hints
	datagrams chan []byte

	mu    sync.Mutex
	ended chan struct{} // closed while the deadline is past
	past  bool
}

var _ net.PacketConn = (*hintConn)(nil)

// ReadFrom waits for a datagram.
func (c *hintConn) ReadFrom(b []byte) (int, net.Addr, error) {
	c.mu.Lock()
	ended := c.ended
	c.mu.Unlock()
	select {
	case d := <-c.datagrams:
		return copy(b, d), c.LocalAddr(), nil
	case <-ended:
		return 0, nil, os.ErrDeadlineExceeded
	}
}

// WriteTo sends a datagram to the current receiver.
func (c *hintConn) WriteTo(b []byte, _ net.Addr) (int, error) {
	c.hints.carry(b)
	return len(b), nil
}

// SetReadDeadline ends reads, or permits them again if t is zero. Future deadlines are
// not supported.
func (c *hintConn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case t.IsZero() && c.past:
		c.ended, c.past = make(chan struct{}), false
	case !t.IsZero() && !c.past:
		close(c.ended)
		c.past = true
	}
	return nil
}

// SetDeadline does nothing.
func (c *hintConn) SetDeadline(time.Time) error { return nil }

// SetWriteDeadline does nothing.
func (c *hintConn) SetWriteDeadline(time.Time) error { return nil }

// Close does nothing.
func (c *hintConn) Close() error { return nil }

// LocalAddr returns the address of the relays.
func (c *hintConn) LocalAddr() net.Addr { return &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7070} }
