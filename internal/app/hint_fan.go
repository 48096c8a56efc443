package app

import (
	"errors"
	"net"
	"slices"
	"sync"
	"time"
)

// hintFan passes every datagram of a connection to each of its branches, until the connection
// is closed. A slow receiver misses datagrams: hints may be lost. It is safe for concurrent
// use.
type hintFan struct {
	conn net.PacketConn

	mu       sync.Mutex
	branches []*branch
	closed   bool
}

func newHintFan(conn net.PacketConn) *hintFan {
	f := &hintFan{conn: conn}
	go f.run()
	return f
}

// branch returns a connection for one more receiver, until it is dropped.
func (f *hintFan) branch() *branch {
	b := &branch{PacketConn: f.conn, in: make(chan []byte, 256), ended: make(chan struct{})}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		b.end()
		return b
	}
	f.branches = append(f.branches, b)
	return b
}

// drop ends a branch.
func (f *hintFan) drop(b *branch) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.branches = slices.DeleteFunc(f.branches, func(x *branch) bool { return x == b })
	b.end()
}

// run passes on datagrams until the connection is closed.
func (f *hintFan) run() {
	b := make([]byte, 2048)
	for {
		n, _, err := f.conn.ReadFrom(b)
		if err != nil && !errors.Is(err, net.ErrClosed) {
			continue // such as an ICMP error after a reply
		}
		f.mu.Lock()
		branches := slices.Clone(f.branches)
		f.closed = err != nil
		f.mu.Unlock()
		if err != nil {
			for _, x := range branches {
				x.end()
			}
			return
		}
		datagram := append([]byte(nil), b[:n]...)
		for _, x := range branches {
			select {
			case x.in <- datagram:
			default:
			}
		}
	}
}

// branch is the connection of one receiver. Receivers only read, and set a deadline in the
// past to end.
type branch struct {
	net.PacketConn
	in    chan []byte // datagrams, shared by the receivers and not changed
	ended chan struct{}
	once  sync.Once
}

func (b *branch) end() { b.once.Do(func() { close(b.ended) }) }

// ReadFrom returns the next datagram, without its sender.
func (b *branch) ReadFrom(p []byte) (int, net.Addr, error) {
	select {
	case d := <-b.in:
		return copy(p, d), nil, nil
	case <-b.ended:
		return 0, nil, net.ErrClosed
	}
}

// SetReadDeadline ends the branch if the time is past.
func (b *branch) SetReadDeadline(t time.Time) error {
	if !t.IsZero() && t.Before(time.Now()) {
		b.end()
	}
	return nil
}
