package fence

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/relay/failure"
)

// ErrWrite is the error of a write to the database that the fence refused. It is not
// retryable.
var ErrWrite = fmt.Errorf("%w: write to the database refused: another relay may own this shard", failure.ErrStopping)

// Fence decides whether a relay may write. A nil Fence allows all writes.
type Fence interface {
	// Check returns nil while the relay owns its shard, and an error once another relay
	// may own it; after the first error it continues to fail. It is fast and safe for
	// concurrent use: it is called before each write.
	Check() error
}

// Check returns nil if writes are allowed, otherwise an error that wraps ErrWrite. A nil
// fence allows all writes.
func Check(fence Fence) error {
	if fence == nil {
		return nil
	}
	if err := fence.Check(); err != nil {
		return fmt.Errorf("%w: %w", ErrWrite, err)
	}
	return nil
}

// errFenced is the error of a write to a broker that the fence refused.
var errFenced = errors.New("write to the broker refused: another relay may own this shard")

// Connections returns the options with a dialer whose connections check the fence before
// each write. It wraps the dialer or TLS configuration of opts.
//
// The Kafka client may write a record at any time after it accepted it, also after a
// pause of the process, so the connection is the last place to stop the write.
func Connections(opts []kgo.Opt, fence Fence) ([]kgo.Opt, error) {
	probe, err := kgo.NewClient(opts...) // never connects; only its dialer is read
	if err != nil {
		return nil, fmt.Errorf("kafka client: %w", err)
	}
	defer probe.Close()
	dial, ok := probe.OptValue(kgo.Dialer).(func(context.Context, string, string) (net.Conn, error))
	if !ok {
		return nil, errors.New("kafka client: option Dialer has an unexpected type")
	}
	fenced := func(ctx context.Context, network, host string) (net.Conn, error) {
		if err := fence.Check(); err != nil {
			return nil, errors.Join(errFenced, err)
		}
		c, err := dial(ctx, network, host)
		if err != nil {
			return nil, err
		}
		return &fencedConn{c, fence}, nil
	}
	return append(opts, kgo.DialTLSConfig(nil), kgo.Dialer(fenced)), nil
}

// fencedConn is a connection that checks the fence before each write.
type fencedConn struct {
	net.Conn
	fence Fence
}

// pieceBytes is the most that is written after a check: the size of a TLS record.
const pieceBytes = 16 << 10

// Write writes p as long as the fence allows it: a broker executes no request that is incomplete.
// It checks the fence before each piece, since a process can be stopped in a long write, and a
// broker that is slow to read prolongs it.
func (c *fencedConn) Write(p []byte) (n int, err error) {
	for {
		if err := c.fence.Check(); err != nil {
			c.reset()
			return n, errors.Join(errFenced, err)
		}
		m, err := c.Conn.Write(p[n:min(n+pieceBytes, len(p))])
		if n += m; err != nil || n == len(p) {
			return n, err
		}
	}
}

// Close closes the connection; once fenced it also drops the unsent data of the kernel.
func (c *fencedConn) Close() error {
	if c.fence.Check() != nil {
		c.reset()
	}
	return c.Conn.Close()
}

// reset makes Close send a reset, with which the kernel drops unacknowledged data.
func (c *fencedConn) reset() {
	conn := c.Conn
	if over, ok := conn.(interface{ NetConn() net.Conn }); ok { // TLS
		conn = over.NetConn()
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
		_ = tcp.SetDeadline(time.Now()) // ends writes under way
	}
}
