//go:build drivers

package drivers

import (
	"bytes"
	"maps"
	"testing"
	"time"

	apache "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/gocql/gocql"
	"github.com/scylladb/gocqlx/v3"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/scyllatest"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/schema"
)

// call is a statement with its values.
type call struct {
	stmt string
	args []any
}

// driver executes statements by a driver or a wrapper.
type driver struct {
	batch         func(...call) error // logged
	conditionally func(call) (applied bool, _ error)
}

// Apache's driver executes the statements of Insert and InsertIfNotExists.
func TestApacheDriver_InsertsEvents(t *testing.T) {
	t.Parallel()
	scyllatest.EachVersion(t, func(t *testing.T, conf scyllafake.Config) {
		node, own := scyllatest.StartOn(t, conf)
		c := apache.NewCluster("127.0.0.1")
		c.Dialer, c.ProtoVersion, c.Keyspace = node, 4, schema.DefaultKeyspace
		c.Timeout, c.ConnectTimeout = time.Minute, time.Minute
		session, err := c.CreateSession()
		if err != nil {
			t.Fatal(err)
		}
		defer session.Close()
		insertsEvents(t, own, driver{
			batch: func(all ...call) error {
				b := session.Batch(apache.LoggedBatch)
				for _, c := range all {
					b.Query(c.stmt, c.args...)
				}
				return b.Exec()
			},
			conditionally: func(c call) (bool, error) {
				return session.Query(c.stmt, c.args...).MapScanCAS(map[string]any{})
			},
		})
	})
}

// So does gocqlx.
func TestGocqlx_InsertsEvents(t *testing.T) {
	t.Parallel()
	scyllatest.EachVersion(t, func(t *testing.T, conf scyllafake.Config) {
		_, own := scyllatest.StartOn(t, conf)
		session := gocqlx.NewSession(own)
		insertsEvents(t, own, driver{
			batch: func(all ...call) error {
				b := session.Batch(gocql.LoggedBatch)
				for _, c := range all {
					b.Query(c.stmt, c.args...)
				}
				return session.ExecuteBatch(b)
			},
			conditionally: func(c call) (bool, error) {
				return session.Query(c.stmt, nil).Bind(c.args...).MapScanCAS(map[string]any{})
			},
		})
	})
}

// insertsEvents inserts events by a driver, in a batch with a row of the service and conditionally,
// and fails the test unless the stored rows equal the rows of Append.
func insertsEvents(t *testing.T, own *gocql.Session, by driver) {
	t.Helper()
	if err := own.Query("CREATE TABLE accounts (id uuid PRIMARY KEY, owner text)").Exec(); err != nil {
		t.Fatal(err)
	}
	account := outbox.NewID()
	at := time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC)
	event := func(n int64) outbox.Event {
		return outbox.Event{ID: outbox.NewID(), AggregateID: account, Sequence: n, AggregateType: "account", Type: "AccountOpened", CreatedAt: at}
	}
	first, second := event(1), event(2)
	first.Payload, first.ContentType, first.Headers, first.DeliverAt = []byte(`{"owner":"ann"}`), "application/json", map[string]string{"a": "b"}, at

	stmt, args, err := outbox.DefaultTable.WithTTL(time.Hour).Insert(first)
	if err != nil {
		t.Fatal(err)
	}
	if err := by.batch(call{"INSERT INTO accounts (id, owner) VALUES (?, ?)", []any{[16]byte(account.UUID()), "ann"}}, call{stmt, args}); err != nil {
		t.Fatalf("a batch with %s: %v", stmt, err)
	}
	if stmt, args, err = outbox.DefaultTable.InsertIfNotExists(second); err != nil {
		t.Fatal(err)
	}
	for _, want := range []bool{true, false} {
		if applied, err := by.conditionally(call{stmt, args}); applied != want || err != nil {
			t.Fatalf("%s: applied %t, %v, want %t", stmt, applied, err, want)
		}
	}
	insertsIntoOwnTable(t, own, by)
	a, err := outbox.NewAppender(t.Context(), own, outbox.DefaultTable, outbox.AppenderConfig{})
	if err != nil {
		t.Fatal(err)
	}
	got, err := a.Since(t.Context(), &first, 1)
	if err != nil || len(got) != 2 {
		t.Fatalf("the outbox has %v, %v, want two events", got, err)
	}
	for i, want := range []outbox.Event{first, second} {
		g := got[i]
		if g.ID != want.ID || g.AggregateID != account || g.Sequence != want.Sequence || g.Type != want.Type || !bytes.Equal(g.Payload, want.Payload) || (g.Payload == nil) != (want.Payload == nil) ||
			!maps.Equal(g.Headers, want.Headers) || !g.CreatedAt.Equal(at) || !g.DeliverAt.Equal(want.DeliverAt) {
			t.Errorf("event %d is %+v, want %+v", i+1, g, want)
		}
	}
}

// insertsIntoOwnTable does so in a table whose columns have other types and names, and which has two
// for an aggregate.
func insertsIntoOwnTable(t *testing.T, own *gocql.Session, by driver) {
	t.Helper()
	if err := own.Query(`CREATE TABLE parcels (tenant text, "orderId" bigint, n int, id timeuuid, kind text, body text, meta text, at bigint, due text, PRIMARY KEY ((tenant, "orderId"), n))`).Exec(); err != nil {
		t.Fatal(err)
	}
	columns, err := outbox.ReadColumns(t.Context(), own, schema.DefaultKeyspace, "parcels")
	if err != nil {
		t.Fatal(err)
	}
	table, err := outbox.Mapping{AggregateType: "parcel", Columns: map[string]string{
		"aggregate_id": "tenant, orderId", "seq": "n", "event_id": "id", "event_type": "kind", "payload": "body", "headers": "meta", "created_at": "at", "deliver_at": "due",
	}}.Table(schema.DefaultKeyspace, "parcels", columns)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC)
	event := outbox.Event{
		ID: outbox.IDFromUUID(gocql.TimeUUID()), AggregateID: outbox.IDFromText("acme:42"), Sequence: 1, AggregateType: "parcel", Type: "Sent",
		Payload: []byte(`{}`), Headers: map[string]string{"a": "b"}, CreatedAt: at, DeliverAt: at,
	}
	for _, insert := range []func(outbox.Event) (string, []any, error){table.Insert, table.InsertIfNotExists} {
		stmt, args, err := insert(event)
		if err != nil {
			t.Fatal(err)
		}
		if event.Sequence == 1 {
			err = by.batch(call{stmt, args})
		} else {
			_, err = by.conditionally(call{stmt, args})
		}
		if err != nil {
			t.Fatalf("%s: %v", stmt, err)
		}
		event.ID, event.Sequence = outbox.IDFromUUID(gocql.TimeUUID()), 2
	}
	a, err := outbox.NewAppender(t.Context(), own, table, outbox.AppenderConfig{})
	if err != nil {
		t.Fatal(err)
	}
	got, err := a.Since(t.Context(), &event, 1)
	if err != nil || len(got) != 2 {
		t.Fatalf("the outbox has %v, %v, want two events", got, err)
	}
	for i, g := range got {
		if g.AggregateID != event.AggregateID || g.Sequence != int64(i+1) || g.Type != event.Type || !bytes.Equal(g.Payload, event.Payload) ||
			!maps.Equal(g.Headers, event.Headers) || !g.CreatedAt.Equal(at) || !g.DeliverAt.Equal(at) {
			t.Errorf("event %d is %+v, want %+v", i+1, g, event)
		}
	}
}
