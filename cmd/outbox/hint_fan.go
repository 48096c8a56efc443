package main

import (
	"errors"
	"net"
	"sync"
	"time"
)

// fanOut gives each of n receivers every datagram that comes to conn, until conn
// is closed. A receiver that does not keep up misses some: hints may be lost.
func fanOut(conn net.PacketConn, n int) []net.PacketConn {
	out := make([]net.PacketConn, n)
	branches := make([]*branch, n)
	for i := range out {
		branches[i] = &branch{PacketConn: conn, in: make(chan []byte, 256), ended: make(chan struct{})}
		out[i] = branches[i]
	}
	go func() {
		b := make([]byte, 2048)
		for {
			n, _, err := conn.ReadFrom(b)
			if err != nil {
				if !errors.Is(err, net.ErrClosed) {
					continue // such as a port unreachable that a reply met
				}
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
	}()
	return out
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
