package app

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/schema"
	"github.com/scylla-outbox/scylla-outbox/test/virtual"
)

// A command that reads the database itself connects in few round trips, and its page takes at most five. Eight of the
// round trips to connect are the driver's own, and in order: OPTIONS, STARTUP, the node, its peers, the keyspaces
// prepared and read, OPTIONS and STARTUP of a second connection. In the ninth all statements are prepared, beside the
// check of the keyspace. Commands that read the CDC log need USE and the results of the check first. In virtual time
// only the delay of the database's responses takes time.
func TestRounds_CommandsTakeFewRoundTrips(t *testing.T) {
	virtual.Run(t, func(t *testing.T) {
		node := scyllatest.Node(t, scyllatest.Config())
		defer func() { _ = node.Close(); time.Sleep(2 * time.Minute); synctest.Wait() }() // timers of the driver
		c := slowConfig(t, node)
		fillForCommands(t, node, c)
		for _, page := range []struct {
			command string
			topics  bool
			connect float64
			read    func(context.Context, *adminclient.Client) error
		}{
			{"outbox dlq list", false, 9, func(ctx context.Context, api *adminclient.Client) error {
				found, _, err := api.DeadLetters(ctx, dlq.Filter{Status: dlq.OpenStatuses}, adminclient.Paging{Limit: 100})
				return readAny(len(found), err)
			}},
			{"outbox dlq stats", false, 9, func(ctx context.Context, api *adminclient.Client) error {
				found, err := api.Stats(ctx)
				return readAny(int(found.Open), err)
			}},
			{"outbox audit list", false, 9, func(ctx context.Context, api *adminclient.Client) error {
				_, _, err := api.Audit(ctx, adminclient.AuditQuery{Since: time.Now().AddDate(0, 0, -30)}, adminclient.Paging{Limit: 100})
				return err
			}},
			{"outbox status", true, 11, func(ctx context.Context, api *adminclient.Client) error {
				found, err := api.Status(ctx)
				if len(found.Unknown) > 0 {
					return fmt.Errorf("not read: %s", found.Unknown)
				}
				return readAny(int(found.Waiting.Events), err)
			}},
			{"outbox events list", true, 11, func(ctx context.Context, api *adminclient.Client) error {
				found, _, _, err := api.RecentEvents(ctx, "", time.Time{}, adminclient.Paging{Limit: 100})
				return readAny(len(found), err)
			}},
		} {
			began := time.Now()
			check := func(what string, most float64) {
				t.Helper()
				got := time.Since(began).Seconds() / slowBy.Seconds()
				t.Logf("%s: %s takes %.2f round trips", page.command, what, got)
				if got > most+0.1 || got < 0.9 {
					t.Errorf("%s: %s takes %.2f round trips, want at most %.0f", page.command, what, got, most)
				}
				began = time.Now()
			}
			local, err := OpenLocalAPI(t.Context(), c, LocalConfig{
				Needs: []schema.Component{schema.DeadLetters}, Actor: "mara", Topics: page.topics, Logger: slog.New(slog.DiscardHandler),
			})
			if err != nil {
				t.Fatal(err)
			}
			check("to connect", page.connect)
			if err := page.read(t.Context(), local.Client); err != nil {
				t.Errorf("%s: %v", page.command, err)
			}
			check("its page", 5)
			if err := local.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

// readAny returns an error if nothing was read.
func readAny(n int, err error) error {
	if err == nil && n == 0 {
		return errors.New("nothing was read")
	}
	return err
}

// fillForCommands writes a dead letter, and an event since the last heartbeat of a relay.
func fillForCommands(t *testing.T, node *scyllafake.Server, c *Config) {
	t.Helper()
	session, err := scyllatest.Cluster(node, c.Scylla.Keyspace).CreateSession()
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	table := c.Scylla.Keyspace + "." + c.Relay.Table
	store, err := dlq.Open(session, c.Scylla.Keyspace)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	e := outbox.Event{ID: outbox.NewID(), AggregateID: outbox.NewID(), Sequence: 1, AggregateType: "thing", Type: "ThingHappened", Payload: []byte("{}"), CreatedAt: now}
	batch := session.Batch(gocql.LoggedBatch)
	if err := outbox.Append(batch, e); err != nil {
		t.Fatal(err)
	}
	if err := batch.Exec(); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Write(t.Context(), &dlq.DeadLetter{
		EventID: e.ID.UUID(), Table: table, AggregateID: e.AggregateID.String(), Sequence: 1, EventType: e.Type, CreatedAt: now, WrittenAt: now.UnixMicro(),
		Topic: "t", Status: dlq.Suspended, ErrorClass: "record_too_large", ErrorText: "record too large", Strategy: dlq.StrategyManual,
	}); err != nil {
		t.Fatal(err)
	}
	if err := session.Query("INSERT INTO "+c.Scylla.Keyspace+".relay_instances (scope, relay, table_name, instance, at, status) VALUES ('keyspace', ?, ?, 'one', ?, '{}')",
		c.Relay.Name, table, now.Add(-time.Minute)).Exec(); err != nil {
		t.Fatal(err)
	}
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

// arrival contains the bytes sent, and the time of their arrival.
type arrival struct {
	bytes []byte
	at    time.Time
}

// slowConn delays reads. It has no deadlines.
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
