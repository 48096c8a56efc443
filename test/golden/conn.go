package golden

import (
	"net"
	"sync"
	"time"
)

// conn is one client connection. A goroutine of its own sorts incoming frames.
type conn struct {
	nc net.Conn

	mu       sync.Mutex
	arrivals int
	closed   bool
	changed  chan struct{} // closed and replaced when a frame arrives
	answers  []arrival
	events   []arrival
	// asked and answered count the OPTIONS that eventByNow sent and their responses.
	asked, answered int
}

// askStream is the stream id of the requests that eventByNow makes; no recording uses
// it.
const askStream = 32001

// arrival is a frame with its position among all frames of its connection; nil is the
// end of the connection.
type arrival struct {
	frame []byte
	at    int
}

func newConn(nc net.Conn) *conn {
	c := &conn{nc: nc, changed: make(chan struct{})}
	go c.read()
	return c
}

func (c *conn) read() {
	for {
		frame, err := readFrame(c.nc)
		c.mu.Lock()
		c.arrivals++
		switch {
		case err != nil:
			c.closed = true
		case parseHeader(frame).Stream == askStream:
			c.answered++
			c.arrivals--
		case parseHeader(frame).Opcode == opEvent:
			c.events = append(c.events, arrival{frame, c.arrivals})
		default:
			c.answers = append(c.answers, arrival{frame, c.arrivals})
		}
		close(c.changed)
		c.changed = make(chan struct{})
		c.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// send writes a request. Errors appear as the end of the connection later.
func (c *conn) send(frame []byte) {
	_ = c.nc.SetWriteDeadline(time.Now().Add(time.Minute))
	_, _ = c.nc.Write(frame)
}

// answer waits for the next response; ok is false when none came in time. A nil frame
// means that the server closed the connection.
func (c *conn) answer(within time.Duration) (arrival, bool) {
	return c.next(within, func() (arrival, bool) { return pop(&c.answers, 0) })
}

// answerTo is answer for the request with this stream id.
func (c *conn) answerTo(stream int16, within time.Duration) (arrival, bool) {
	return c.next(within, func() (arrival, bool) {
		for i, a := range c.answers {
			if parseHeader(a.frame).Stream == stream {
				return pop(&c.answers, i)
			}
		}
		return arrival{}, false
	})
}

// event waits for an event that satisfies meant; others stay.
func (c *conn) event(within time.Duration, meant func(frame []byte) bool) (arrival, bool) {
	return c.next(within, func() (arrival, bool) { return c.find(meant) })
}

// eventByNow is event when no request is in progress. A node sends its events before
// the response to a later request, so the response to an OPTIONS proves that the event
// does not come.
func (c *conn) eventByNow(within time.Duration, meant func(frame []byte) bool) (arrival, bool) {
	c.mu.Lock()
	a, ok := c.find(meant)
	if !ok {
		c.asked++
	}
	asked := c.asked
	c.mu.Unlock()
	if ok {
		return a, true
	}
	c.send(header{Version: 4, Stream: askStream, Opcode: opOptions}.frame(nil))
	return c.next(within, func() (arrival, bool) {
		if a, ok := c.find(meant); ok {
			return a, true
		}
		return arrival{}, c.answered >= asked
	})
}

func (c *conn) find(meant func(frame []byte) bool) (arrival, bool) {
	for i, a := range c.events {
		if meant(a.frame) {
			return pop(&c.events, i)
		}
	}
	return arrival{}, false
}

// leftEvents returns the events that were not expected.
func (c *conn) leftEvents() []arrival {
	c.eventByNow(eventWithin, func([]byte) bool { return false })
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.events
}

func pop(queue *[]arrival, i int) (arrival, bool) {
	q := *queue
	if i >= len(q) {
		return arrival{}, false
	}
	a := q[i]
	*queue = append(q[:i:i], q[i+1:]...)
	return a, true
}

func (c *conn) next(within time.Duration, take func() (arrival, bool)) (arrival, bool) {
	timer := time.NewTimer(within)
	defer timer.Stop()
	for {
		c.mu.Lock()
		a, ok := take()
		closed, changed := c.closed, c.changed
		c.mu.Unlock()
		if ok {
			return a, true
		}
		if closed {
			return arrival{}, true
		}
		select {
		case <-changed:
		case <-timer.C:
			return arrival{}, false
		}
	}
}

func (c *conn) close() { _ = c.nc.Close() }
