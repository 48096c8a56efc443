package scyllafake

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/wire"
)

// The states of a connection.
type connState uint8

const (
	stateNew            connState = iota // waits for STARTUP
	stateAuthentication                  // waits for AUTH_RESPONSE
	stateReady
)

// drainTimeout limits the time to send the last responses of a connection.
const drainTimeout = time.Second

const (
	// maxFirstFrame limits the bodies of frames before STARTUP has succeeded.
	maxFirstFrame = 100_000
	// maxFrame limits the body of one request, as a node's native_transport_max_frame_size.
	maxFrame = 256 << 20
	// maxInFlight limits the concurrent requests of one connection; more wait unread.
	maxInFlight = 1024
)

// conn is a client's connection. One goroutine reads requests, several execute them,
// one writes the responses.
type conn struct {
	s     *Server
	node  *node // nil with one node
	nc    net.Conn
	out   *writer
	shard int

	// state and version belong to the reading goroutine.
	state   connState
	version byte // of the first frame

	lwtMark    atomic.Bool
	metadataID atomic.Bool // the client asked for ids of result metadata
	routing    atomic.Bool // the client asked for routing payloads
	keyspace   atomic.Pointer[string]
	user       atomic.Pointer[string] // nil without authentication
	events     atomic.Uint32          // eventBits for which the client registered
	clock      atomic.Int64           // the last timestamp, µs

	work    chan request
	workers int
	running sync.WaitGroup
}

// request is a frame to execute.
type request struct {
	header wire.Header
	body   []byte
}

// errHangUp ends a connection after the response that was just sent.
var errHangUp = errors.New("close the connection")

// serve runs the connection until the client or the server ends it.
func (c *conn) serve() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		// When the client reads no more responses its requests have no use.
		if err := c.out.run(); err != nil {
			c.nc.Close()
		}
	}()
	err := c.read()
	c.s.forget(c)
	close(c.work)
	c.running.Wait()
	c.out.close()
	// Queued frames, such as the reason why the connection ends, are still sent to a
	// client that reads them.
	c.nc.SetWriteDeadline(time.Now().Add(drainTimeout)) //nolint:errcheck // a closed connection needs none
	<-done
	c.nc.Close()
	if !ordinaryEnd(err) {
		c.s.log.Debug("connection ended", "client", c.nc.RemoteAddr(), "err", err)
	}
}

// ordinaryEnd reports whether err is an ordinary end of a connection.
func ordinaryEnd(err error) bool {
	for _, end := range []error{errHangUp, io.EOF, net.ErrClosed, io.ErrClosedPipe} {
		if errors.Is(err, end) {
			return true
		}
	}
	return false
}

// read reads requests until the connection ends, and returns the reason.
func (c *conn) read() error {
	in := bufio.NewReaderSize(c.nc, 32<<10)
	for {
		req, err := c.frame(in)
		if err != nil {
			return err
		}
		if err := c.take(req); err != nil {
			return err
		}
	}
}

// frame reads the next request.
func (c *conn) frame(in *bufio.Reader) (request, error) {
	first, err := in.Peek(1)
	if err != nil {
		return request{}, err
	}
	if v := first[0]; v != 3 && v != 4 {
		c.refuse(cqlerr.New(cqlerr.Protocol, "Invalid or unsupported protocol version: %d", v))
		return request{}, errHangUp
	}
	var head [wire.HeaderSize]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return request{}, err
	}
	h := wire.ParseHeader(head[:])
	if c.version == 0 {
		c.version = h.Version
	}
	length := int64(uint32(h.Length))
	if c.state != stateReady && length > maxFirstFrame {
		c.refuse(cqlerr.New(cqlerr.Protocol, "Initial message size too large (%d), rejecting as invalid", length))
		return request{}, errHangUp
	}
	if length > maxFrame {
		c.refuse(cqlerr.Invalidf("request size too large (frame size %d; limit %d)", length, maxFrame))
		return request{}, errHangUp
	}
	body, err := readBody(in, int(length))
	if err != nil {
		return request{}, err
	}
	if h.Flags&wire.FlagCompressed != 0 {
		c.refuse(cqlerr.New(cqlerr.Protocol, "Unknown compression algorithm"))
		return request{}, errHangUp
	}
	return request{header: h, body: body}, nil
}

// readBody reads n bytes. The memory of large bodies grows as they arrive, so that a
// false header costs none.
func readBody(in *bufio.Reader, n int) ([]byte, error) {
	if n <= 1<<20 {
		b := make([]byte, n)
		_, err := io.ReadFull(in, b)
		return b, err
	}
	var b bytes.Buffer
	if _, err := io.CopyN(&b, in, int64(n)); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// refuse sends an error that belongs to no request: plain, in version 4, on stream 0.
func (c *conn) refuse(e *cqlerr.Error) {
	c.answer(request{header: wire.Header{Version: 4}}, wire.OpError, 0, func(b []byte) []byte {
		return wire.AppendError(b, e)
	})
}

// take handles a request, or passes it to a worker.
func (c *conn) take(req request) error {
	op := req.header.Opcode
	if err := c.checkOrder(op); err != nil {
		c.fail(req, err)
		return nil
	}
	switch op {
	case wire.OpQuery, wire.OpPrepare, wire.OpExecute, wire.OpBatch, wire.OpOptions:
		return c.dispatch(req)
	}
	if !c.node.await() {
		return errHangUp
	}
	switch op {
	case wire.OpStartup:
		c.startup(req)
		return nil
	case wire.OpAuthResponse:
		c.authenticate(req)
		return nil
	case wire.OpRegister:
		c.register(req)
		return nil
	}
	c.fail(req, cqlerr.New(cqlerr.Protocol, "Unknown opcode %d", op))
	return nil
}

// checkOrder checks the order of messages.
func (c *conn) checkOrder(op wire.Opcode) error {
	switch c.state {
	case stateNew:
		if op != wire.OpStartup && op != wire.OpOptions {
			return cqlerr.New(cqlerr.Protocol, "Unexpected message %d, expecting STARTUP or OPTIONS", op)
		}
	case stateAuthentication:
		if op != wire.OpAuthResponse {
			return cqlerr.New(cqlerr.Protocol, "Unexpected message %d, expecting SASL_RESPONSE", op)
		}
	case stateReady:
		if op == wire.OpStartup {
			return cqlerr.New(cqlerr.Protocol, "Unexpected message STARTUP, the connection is already initialized")
		}
	}
	return nil
}

// dispatch passes the request to an idle worker, or to a new one, or waits when the
// limit of workers is reached. Workers are kept: their stacks have grown.
func (c *conn) dispatch(req request) error {
	select {
	case c.work <- req:
		return nil
	default:
	}
	if c.workers < maxInFlight {
		c.workers++
		c.running.Add(1)
		go c.worker(req)
		return nil
	}
	select {
	case c.work <- req:
		return nil
	case <-c.s.ctx.Done():
		return net.ErrClosed
	}
}

func (c *conn) worker(req request) {
	defer c.running.Done()
	for ok := true; ok; req, ok = <-c.work {
		c.execute(req)
	}
}

// execute executes one request; a panic becomes a server error.
func (c *conn) execute(req request) {
	defer func() {
		if p := recover(); p != nil {
			c.s.log.Error("request failed", "opcode", req.header.Opcode, "err", p, "stack", string(debug.Stack()))
			c.fail(req, cqlerr.New(cqlerr.Server, "internal error: %v", p))
		}
	}()
	if !c.node.await() {
		return
	}
	if err := c.run(req); err != nil {
		c.fail(req, err)
	}
}

// fail responds with an error.
func (c *conn) fail(req request, err error) {
	if errors.Is(err, engine.ErrDisconnect) {
		c.nc.Close()
		return
	}
	var ce *cqlerr.Error
	if !errors.As(err, &ce) {
		if c.s.ctx.Err() != nil {
			c.nc.Close() // the server is closing: the outcome is unknown
			return
		}
		ce = cqlerr.New(cqlerr.Server, "%v", err)
	}
	c.answer(req, wire.OpError, 0, func(b []byte) []byte {
		return wire.AppendError(b, ce)
	})
}

// answer sends a response frame whose body add appends; flags are the flags of the
// prefixes that add writes too.
func (c *conn) answer(req request, op wire.Opcode, flags byte, add func([]byte) []byte) {
	c.out.send(true, func(queue []byte) []byte {
		start := len(queue)
		queue = add(wire.Begin(queue, req.header.Version, req.header.Stream, op))
		wire.End(queue[start:], flags)
		return queue
	})
}

// timestamp returns the server's clock for this connection: µs, strictly increasing.
func (c *conn) timestamp() int64 {
	now := c.s.clock.Now().UnixMicro()
	for {
		last := c.clock.Load()
		if next := max(now, last+1); c.clock.CompareAndSwap(last, next) {
			return next
		}
	}
}

func (c *conn) currentKeyspace() string {
	if ks := c.keyspace.Load(); ks != nil {
		return *ks
	}
	return ""
}

// hangUp closes the connection; requests in progress continue without a response.
func (c *conn) hangUp() { c.nc.Close() }
