package scyllatest

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/wire"
	"github.com/scylla-outbox/scylla-outbox/internal/sessions"
	"github.com/scylla-outbox/scylla-outbox/schema"
)

// Clock is the clock of one host. It may be ahead of others or behind, and may be
// changed while it runs, as NTP does. The zero value has no skew. It is safe for
// concurrent use.
type Clock struct{ ahead atomic.Int64 }

// Set sets how far the clock is ahead; negative is behind.
func (c *Clock) Set(ahead time.Duration) { c.ahead.Store(int64(ahead)) }

// Now returns the time by this clock.
func (c *Clock) Now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

// Connect returns a session of a process on the clock's host, in schema.DefaultKeyspace
// and open until the test ends: its driver takes the timestamps of statements from this
// clock.
func (c *Clock) Connect(t testing.TB, node gocql.Dialer) *gocql.Session {
	t.Helper()
	cluster := Cluster(nil, schema.DefaultKeyspace)
	cluster.Dialer = c.Dialer(node)
	s, err := cluster.CreateSession()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sessions.Close(s) })
	return s
}

// Dialer returns a dialer that connects by d. The driver has no clock to inject, so the
// timestamps are changed in outgoing requests, of protocol version 4 and not
// compressed. The skew must therefore exceed driversOwn.
func (c *Clock) Dialer(d gocql.Dialer) gocql.Dialer { return &skewDialer{d, c} }

type skewDialer struct {
	gocql.Dialer
	clock *Clock
}

// DialContext connects with timestamps changed.
func (d *skewDialer) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := d.Dialer.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &skewConn{Conn: conn, clock: d.clock}, nil
}

type skewConn struct {
	net.Conn
	clock *Clock

	mu      sync.Mutex
	partial []byte // of the frame in progress
	ids     bool   // EXECUTE contains the id of the result's metadata
}

const (
	// driversOwn is the largest distance from the true time of a timestamp that the
	// driver chose. A timestamp that the program chose by this clock is further off, or
	// needs no change.
	driversOwn = 5 * time.Second
)

// Write sends the complete frames.
func (c *skewConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.partial = append(c.partial, b...)
	whole := 0
	for {
		rest := c.partial[whole:]
		if len(rest) < wire.HeaderSize {
			break
		}
		size := wire.HeaderSize + int(binary.BigEndian.Uint32(rest[5:]))
		if len(rest) < size {
			break
		}
		c.skew(rest[:size], time.Duration(c.clock.ahead.Load()))
		whole += size
	}
	if whole == 0 {
		return len(b), nil
	}
	_, err := c.Conn.Write(c.partial[:whole])
	c.partial = append(c.partial[:0], c.partial[whole:]...)
	if err != nil {
		return 0, err
	}
	return len(b), nil
}

// skew changes the timestamp of a frame, if it has one: the last 8 bytes.
func (c *skewConn) skew(frame []byte, ahead time.Duration) {
	h, body := wire.ParseHeader(frame), frame[wire.HeaderSize:]
	var o wire.Options
	var err error
	switch h.Opcode {
	case wire.OpStartup:
		c.ids = bytes.Contains(body, []byte("SCYLLA_USE_METADATA_ID"))
	case wire.OpQuery:
		var q wire.Query
		q, err = wire.ReadQuery(h, body)
		o = q.Options
	case wire.OpExecute:
		var x wire.Execute
		x, err = wire.ReadExecute(h, body, c.ids)
		o = x.Options
	case wire.OpBatch:
		var b wire.Batch
		b, err = wire.ReadBatch(h, body)
		o = b.Options
	}
	if err != nil || !o.HasTimestamp {
		return
	}
	if at := time.UnixMicro(o.Timestamp); time.Since(at).Abs() < driversOwn {
		binary.BigEndian.PutUint64(frame[len(frame)-8:], uint64(at.Add(ahead).UnixMicro())) //nolint:gosec // two's complement
	}
}
