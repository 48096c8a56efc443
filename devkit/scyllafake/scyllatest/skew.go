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
	frameHeader = 9
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
		if len(rest) < frameHeader {
			break
		}
		size := frameHeader + int(binary.BigEndian.Uint32(rest[5:]))
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
	const startup, query, execute, batch, hasTimestamp = 0x01, 0x07, 0x0A, 0x0D, 0x20
	r := reader{frame[frameHeader:]}
	switch frame[4] {
	case startup:
		c.ids = bytes.Contains(r.b, []byte("SCYLLA_USE_METADATA_ID"))
		return
	case query:
		r.skip(r.number(4))
	case execute:
		r.skip(r.number(2))
		if c.ids {
			r.skip(r.number(2))
		}
	case batch:
		r.skip(1)
		for n := r.number(2); n > 0; n-- {
			if r.number(1) == 0 {
				r.skip(r.number(4))
			} else {
				r.skip(r.number(2))
			}
			for v := r.number(2); v > 0; v-- {
				if size := int32(r.number(4)); size > 0 { //nolint:gosec // negative is null or unset
					r.skip(int(size))
				}
			}
		}
	default:
		return
	}
	r.skip(2) // the consistency
	if r.number(1)&hasTimestamp == 0 {
		return
	}
	ts := frame[len(frame)-8:]
	micros := int64(binary.BigEndian.Uint64(ts)) //nolint:gosec // two's complement
	if time.Since(time.UnixMicro(micros)).Abs() < driversOwn {
		binary.BigEndian.PutUint64(ts, uint64(micros+ahead.Microseconds())) //nolint:gosec // two's complement
	}
}

// reader reads the body of a frame.
type reader struct{ b []byte }

func (r *reader) skip(n int) { r.b = r.b[n:] }

func (r *reader) number(size int) (n int) {
	for range size {
		n, r.b = n<<8|int(r.b[0]), r.b[1:]
	}
	return n
}
