package relay

import (
	"context"
	"net"
	"sync"
	"time"
)

// wire is a network on which bytes are under way for a while. What a process
// wrote before it died arrives all the same.
type wire struct {
	dial  func(context.Context, string, string) (net.Conn, error)
	delay func() time.Duration

	mu    sync.Mutex
	dead  bool
	conns []*wireConn
}

// DialContext is kgo's dialer.
func (w *wire) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dead {
		return nil, net.ErrClosed
	}
	c, err := w.dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	wc := &wireConn{Conn: c, delay: w.delay, wake: make(chan struct{}, 1)}
	w.conns = append(w.conns, wc)
	go wc.deliver()
	return wc, nil
}

// kill ends the process at the near end: nothing is dialled, written or read
// from now on.
func (w *wire) kill() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dead = true
	for _, c := range w.conns {
		_ = c.Close()
	}
}

// mend lets connections be made again.
func (w *wire) mend() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dead, w.conns = false, nil
}

type wireConn struct {
	net.Conn
	delay func() time.Duration

	mu     sync.Mutex
	queue  []wireBytes
	last   time.Time
	closed bool
	wake   chan struct{}
}

type wireBytes struct {
	b   []byte
	due time.Time
}

// Write takes the bytes; they arrive later, and in order.
func (c *wireConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return 0, net.ErrClosed
	}
	due := time.Now().Add(c.delay())
	if due.Before(c.last) {
		due = c.last
	}
	c.last = due
	c.queue = append(c.queue, wireBytes{append([]byte(nil), b...), due})
	c.notify()
	return len(b), nil
}

// Close ends the near end at once, the far end when all has arrived.
func (c *wireConn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.notify()
	return c.SetReadDeadline(time.Unix(1, 0))
}

func (c *wireConn) notify() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *wireConn) deliver() {
	defer c.Conn.Close()
	for {
		c.mu.Lock()
		var next wireBytes
		if len(c.queue) > 0 {
			next, c.queue = c.queue[0], c.queue[1:]
		}
		closed := c.closed
		c.mu.Unlock()
		switch {
		case next.b != nil:
			time.Sleep(time.Until(next.due))
			if closed {
				go discard(c.Conn) // nobody reads the answers
			}
			if _, err := c.Conn.Write(next.b); err != nil {
				return
			}
		case closed:
			return
		default:
			<-c.wake
		}
	}
}

func discard(c net.Conn) {
	_ = c.SetReadDeadline(time.Time{})
	b := make([]byte, 4096)
	for {
		if _, err := c.Read(b); err != nil {
			return
		}
	}
}
