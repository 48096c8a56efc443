package app

import (
	"errors"
	"net"
	"slices"
	"sync"
	"time"
)

// hintFan gives each of its branches every datagram that comes to a connection,
// until that is closed. A receiver that does not keep up misses some: hints may be
// lost. It is safe for concurrent use.
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

// run hands out datagrams until the connection is closed.
func (f *hintFan) run() {
	b := make([]byte, 2048)
	for {
		n, _, err := f.conn.ReadFrom(b)
		if err != nil && !errors.Is(err, net.ErrClosed) {
			continue // such as a port unreachable that a reply met
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

// branch is one receiver's side. Receivers only read and set deadlines that are
// past, which ends them.
type branch struct {
	net.PacketConn
	in    chan []byte // datagrams, which receivers share and do not change
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
