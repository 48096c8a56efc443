package scyllafake

import (
	"net"
	"sync"
)

const (
	// maxQueued is how many bytes of answers wait for a client before those
	// who answer wait too.
	maxQueued = 8 << 20
	// maxKept is the largest buffer that is kept for the next answers.
	maxKept = 1 << 20
)

// writer sends frames in the order they are given, many in one write when
// they come faster than the network takes them. It is safe for concurrent use.
type writer struct {
	conn net.Conn

	mu     sync.Mutex
	filled sync.Cond // there is something to send, or the writer is closed
	space  sync.Cond // there is space again, or the writer is closed
	queue  []byte
	closed bool
}

func newWriter(conn net.Conn) *writer {
	w := &writer{conn: conn}
	w.filled.L, w.space.L = &w.mu, &w.mu
	return w
}

// send queues what add appends. With wait it waits while too much is queued;
// without, it reports false then and queues nothing. On a closed writer it
// does nothing.
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

// run writes until the writer is closed and all is sent, or the network fails.
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
		if _, err := w.conn.Write(out); err != nil {
			w.close()
			return err
		}
		if cap(out) > maxKept {
			out = nil
		}
	}
}

// close ends run once what is queued has been sent.
func (w *writer) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	w.filled.Broadcast()
	w.space.Broadcast()
}
