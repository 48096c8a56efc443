package scyllafake

import (
	"net"
	"sync"
)

const (
	// maxQueued is the number of bytes of responses that wait for a client before
	// requests wait too.
	maxQueued = 8 << 20
	// maxKept is the largest buffer that is kept for the next responses.
	maxKept = 1 << 20
)

// writer sends frames in order, many in one write when they come faster than the
// network accepts them. It is safe for concurrent use.
type writer struct {
	conn net.Conn
	node *node // nil with one node

	mu     sync.Mutex
	filled sync.Cond // there is something to send, or the writer is closed
	space  sync.Cond // there is space again, or the writer is closed
	queue  []byte
	closed bool
}

func newWriter(conn net.Conn, n *node) *writer {
	w := &writer{conn: conn, node: n}
	w.filled.L, w.space.L = &w.mu, &w.mu
	return w
}

// send queues the bytes that add appends. With wait it blocks while too much is queued;
// without, it reports false then and queues nothing. On a closed writer it does
// nothing.
func (w *writer) send(wait bool, add func([]byte) []byte) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.queue) > maxQueued && !w.closed {
		if !wait {
			return false
		}
		w.space.Wait()
	}
	if w.closed {
		return true
	}
	w.queue = add(w.queue)
	w.filled.Signal()
	return true
}

// run writes until the writer is closed and the queue is sent, or the network fails.
func (w *writer) run() error {
	var out []byte
	for {
		w.mu.Lock()
		for len(w.queue) == 0 && !w.closed {
			w.filled.Wait()
		}
		if len(w.queue) == 0 {
			w.mu.Unlock()
			return nil
		}
		out, w.queue = w.queue, out[:0]
		w.space.Broadcast()
		w.mu.Unlock()
		err := net.ErrClosed
		if w.node.await() {
			_, err = w.conn.Write(out)
		}
		if err != nil {
			w.close()
			return err
		}
		if cap(out) > maxKept {
			out = nil
		}
	}
}

// close ends run once the queue has been sent.
func (w *writer) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	w.filled.Broadcast()
	w.space.Broadcast()
}
