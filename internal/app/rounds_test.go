package app

import (
	"context"
	"io"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/scyllatest"
	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/admin/adminclient"
	"github.com/scylla-outbox/scylla-outbox/internal/sessions"
	"github.com/scylla-outbox/scylla-outbox/schema"
	"github.com/scylla-outbox/scylla-outbox/test/virtual"
)

// A session takes few round trips to the database, and so do the commands outbox dlq list and outbox status
// with one that is open. In virtual time only the delay of what the database sends takes time.
func TestRounds_CommandsTakeFewRoundTrips(t *testing.T) {
	virtual.Run(t, func(t *testing.T) {
		node := scyllatest.Node(t, scyllatest.Config())
		defer func() { _ = node.Close(); time.Sleep(2 * time.Minute); synctest.Wait() }() // timers of the driver
		c, err := configOf(t, "", nil, "--scylla-hosts", "127.0.0.1")
		if err != nil {
			t.Fatal(err)
		}
		const delay = 700 * time.Millisecond
		c.Scylla.Timeout = time.Minute
		c.Scylla.Configure = func(cluster *gocql.ClusterConfig) { cluster.Dialer = slowDialer{node, delay} }
		check := func(what string, most float64, f func() error) {
			t.Helper()
			began := time.Now()
			if err := f(); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if got := time.Since(began).Seconds() / delay.Seconds(); got > most || got < 1 {
				t.Errorf("%s takes %.2f round trips, want at most %.0f", what, got, most)
			}
		}
		check("a session", 18, func() error {
			s, err := c.Scylla.Session(schema.DefaultKeyspace)
			if err == nil {
				sessions.Close(s)
			}
			return err
		})
		var local *LocalAPI
		check("to open the API", 20, func() (err error) {
			local, err = OpenLocalAPI(t.Context(), c, LocalConfig{Needs: []schema.Component{schema.DeadLetters}, Actor: "mara", Logger: slog.New(slog.DiscardHandler)})
			return err
		})
		defer func() {
			if err := local.Close(); err != nil {
				t.Error(err)
			}
		}()
		check("dlq list", 5, func() error {
			_, _, err := local.Client.DeadLetters(t.Context(), dlq.Filter{Status: dlq.OpenStatuses}, adminclient.Paging{Limit: 100})
			return err
		})
		check("status", 5, func() error {
			_, err := local.Client.Status(t.Context())
			return err
		})
	})
}

// slowDialer connects to a node whose answers arrive late.
type slowDialer struct {
	node  *scyllafake.Server
	delay time.Duration
}

// DialContext implements gocql.Dialer.
func (d slowDialer) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	inner, err := d.node.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	c := &slowConn{Conn: inner, arrived: make(chan arrival, 1<<10)}
	go func() {
		defer close(c.arrived)
		for {
			b := make([]byte, 64<<10)
			n, err := inner.Read(b)
			if err != nil {
				return
			}
			c.arrived <- arrival{b[:n], time.Now().Add(d.delay)}
		}
	}()
	return c, nil
}

// arrival is what was sent, and when it arrives.
type arrival struct {
	bytes []byte
	at    time.Time
}

// slowConn delays what is read. It has no deadlines.
type slowConn struct {
	net.Conn
	arrived chan arrival
	rest    []byte
}

// Read implements net.Conn.
func (c *slowConn) Read(b []byte) (int, error) {
	if len(c.rest) == 0 {
		next, open := <-c.arrived
		if !open {
			return 0, io.EOF
		}
		time.Sleep(time.Until(next.at))
		c.rest = next.bytes
	}
	n := copy(b, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// SetReadDeadline implements net.Conn.
func (c *slowConn) SetReadDeadline(time.Time) error { return nil }
