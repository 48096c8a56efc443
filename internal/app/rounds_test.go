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
	"github.com/scylla-outbox/scylla-outbox/internal/admin"
	"github.com/scylla-outbox/scylla-outbox/internal/admin/adminclient"
	"github.com/scylla-outbox/scylla-outbox/schema"
	"github.com/scylla-outbox/scylla-outbox/test/virtual"
)

// A command that reads the database itself connects in few round trips, and its pages take few: the first
// with the preparation of their statements, which doubles them, and a later one. In virtual time only the delay
// of what the database sends takes time.
func TestRounds_CommandsTakeFewRoundTrips(t *testing.T) {
	virtual.Run(t, func(t *testing.T) {
		node := scyllatest.Node(t, scyllatest.Config())
		defer func() { _ = node.Close(); time.Sleep(2 * time.Minute); synctest.Wait() }() // timers of the driver
		c := slowConfig(t, node)
		rounds := func(what string, most float64, f func() error) {
			t.Helper()
			began := time.Now()
			if err := f(); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			got := time.Since(began).Seconds() / slowBy.Seconds()
			t.Logf("%s: %.2f round trips", what, got)
			if got > most+0.1 || got < 0.9 {
				t.Errorf("%s takes %.2f round trips, want at most %.0f", what, got, most)
			}
		}
		var local *LocalAPI
		rounds("to connect", 11, func() (err error) {
			local, err = OpenLocalAPI(t.Context(), c, LocalConfig{Needs: []schema.Component{schema.DeadLetters}, Actor: "mara", Logger: slog.New(slog.DiscardHandler)})
			return err
		})
		defer func() {
			if err := local.Close(); err != nil {
				t.Error(err)
			}
		}()
		table := c.Scylla.Keyspace + "." + c.Relay.Table
		session, err := c.Scylla.Session(c.Scylla.Keyspace)
		if err != nil {
			t.Fatal(err)
		}
		defer session.Close()
		written, unread := c.written(session), c.unread(session)
		for _, page := range []struct {
			what        string
			first, then float64
			read        func() error
		}{
			{"outbox dlq list", 5, 3, func() error {
				_, _, err := local.Client.DeadLetters(t.Context(), dlq.Filter{Status: dlq.OpenStatuses}, adminclient.Paging{Limit: 100})
				return err
			}},
			{"outbox status", 5, 3, func() error {
				_, err := local.Client.Status(t.Context())
				return err
			}},
			{"the newest events", 8, 1, func() error {
				_, err := written(t.Context(), table, time.Now().Add(-time.Hour), 100)
				return err
			}},
			{"the events that wait", 8, 1, func() error {
				_, err := unread(t.Context(), admin.UnreadOf{Table: table, Since: time.Now().Add(-time.Hour)}, 100)
				return err
			}},
		} {
			rounds("first "+page.what, page.first, page.read)
			time.Sleep(time.Minute) // what is kept is old
			rounds("then "+page.what, page.then, page.read)
		}
	})
}

// slowBy is the delay of what a slow database sends.
const slowBy = 700 * time.Millisecond

// slowConfig returns the configuration of a command whose database sends everything late.
func slowConfig(t *testing.T, node *scyllafake.Server) *Config {
	t.Helper()
	c, err := parseConfig(t, "", nil, "--scylla-hosts", "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	c.Scylla.Timeout = time.Minute
	c.Scylla.Configure = func(cluster *gocql.ClusterConfig) { cluster.Dialer = slowDialer{node, slowBy} }
	return c
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
