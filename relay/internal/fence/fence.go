// Package fence stops writes of a relay that may have lost what it is responsible for.
//
// A fence is a function that returns an error once another relay may be the owner. Check
// guards statements for the database, Connections every byte for the broker. The lease
// that decides is in package share.
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

// ErrWrite is what is not written to the database behind the fence. It is no
// reason to try again.
var ErrWrite = fmt.Errorf("%w: nothing is written to the database: another relay may own what this one carries", failure.ErrStopping)

// Check returns why nothing may be written, nil if something may. A fence that is
// nil keeps nothing back.
func Check(fence func() error) error {
	if fence == nil {
		return nil
	}
	if err := fence(); err != nil {
		return fmt.Errorf("%w: %w", ErrWrite, err)
	}
	return nil
}

// errFenced is what is written to a connection behind the fence.
var errFenced = errors.New("nothing is sent to the broker: another relay may own what this one carries")

// Connections returns the options with connections that look at the fence
// before each write, whatever opens them: a TLS configuration or a dialer.
//
// A record that was handed to the Kafka client may be written at any time later, in
// a process that stood still meanwhile too, so the last place to stop it is here.
func Connections(opts []kgo.Opt, fence func() error) ([]kgo.Opt, error) {
	probe, err := kgo.NewClient(opts...) // it is only asked how it would connect
	if err != nil {
		return nil, fmt.Errorf("kafka client: %w", err)
	}
	defer probe.Close()
	dial, ok := probe.OptValue(kgo.Dialer).(func(context.Context, string, string) (net.Conn, error))
	if !ok {
		return nil, errors.New("kafka client: it does not say how it connects")
	}
	fenced := func(ctx context.Context, network, host string) (net.Conn, error) {
		if err := fence(); err != nil {
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

// fencedConn is a connection on which nothing is written behind the fence.
type fencedConn struct {
	net.Conn
	fence func() error
}

// Write writes if the fence lets it. What is written is small or in pieces of a
// batch, so it does not look for longer than a system call takes.
func (c *fencedConn) Write(p []byte) (int, error) {
	if err := c.fence(); err != nil {
		c.reset()
		return 0, errors.Join(errFenced, err)
	}
	return c.Conn.Write(p)
}

// Close drops what the kernel has still to send if that is behind the fence.
func (c *fencedConn) Close() error {
	if c.fence() != nil {
		c.reset()
	}
	return c.Conn.Close()
}

// reset makes closing the connection a reset, with which the kernel forgets what was
// not acknowledged by the other side.
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
