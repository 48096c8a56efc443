package engine_test

import (
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cql"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
)

// The outbox as a service writes it: an order and its event, the event's
// table with CDC.
var outboxTables = []string{
	"CREATE TABLE orders (id uuid PRIMARY KEY, customer text, total decimal, version int)",
	"CREATE TABLE outbox (aggregate_id uuid, seq bigint, event_type text, payload text, PRIMARY KEY (aggregate_id, seq)) WITH cdc = {'enabled': true}",
}

func outboxBatch(n *node) (order, event *engine.Plan) {
	return n.mustPlan("INSERT INTO orders (id, customer, total, version) VALUES (?, ?, ?, ?)"),
		n.mustPlan("INSERT INTO outbox (aggregate_id, seq, event_type, payload) VALUES (?, ?, ?, ?)")
}

func outboxItems(order, event *engine.Plan, id []byte, payload []byte) []engine.BatchItem {
	key := engine.Value{Bytes: id}
	return []engine.BatchItem{
		{Plan: order, Values: []engine.Value{key, textValue("customer"), {Bytes: []byte{0, 0, 0, 2, 0x27}}, int32Value(1)}},
		{Plan: event, Values: []engine.Value{key, int64Value(1), textValue("OrderCreated"), {Bytes: payload}}},
	}
}

func newID(i int) []byte {
	id := make([]byte, 16)
	for j := range 8 {
		id[j] = byte(i >> (8 * j))
	}
	return id
}

func BenchmarkLoggedBatch(b *testing.B) {
	n := setup(b, outboxTables...)
	order, event := outboxBatch(n)
	payload := make([]byte, 400)
	params := n.params
	params.HasTimestamp = true
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		params.Timestamp = time.Now().UnixMicro()
		if _, err := n.engine.ExecuteBatch(b.Context(), cql.BatchLogged, outboxItems(order, event, newID(i), payload), params); err != nil {
			b.Fatal(err)
		}
	}
}

// The read of a log window as scylla-cdc-go makes it.
func BenchmarkLogRead(b *testing.B) {
	n := setup(b, outboxTables...)
	order, event := outboxBatch(n)
	payload := make([]byte, 400)
	const rows = 5000
	params := n.params
	params.HasTimestamp = true
	for i := range rows {
		params.Timestamp = time.Now().UnixMicro()
		if _, err := n.engine.ExecuteBatch(b.Context(), cql.BatchLogged, outboxItems(order, event, newID(i), payload), params); err != nil {
			b.Fatal(err)
		}
	}
	res, err := n.run(`SELECT DISTINCT "cdc$stream_id" FROM outbox_scylla_cdc_log`)
	if err != nil {
		b.Fatal(err)
	}
	text := `SELECT * FROM outbox_scylla_cdc_log WHERE "cdc$stream_id" IN (`
	var values []engine.Value
	for i, r := range decodeRows(b, res) {
		if i > 0 {
			text += ", "
		}
		text += "?"
		values = append(values, engine.Value{Bytes: r[0]})
	}
	plan := n.mustPlan(text + `) AND "cdc$time" > ? AND "cdc$time" <= ? BYPASS CACHE`)
	from := cqltype.TimeUUIDAt(time.Now().Add(-time.Hour).UnixMicro(), 0)
	to := cqltype.TimeUUIDAt(time.Now().Add(time.Hour).UnixMicro(), 0)
	params = n.params
	params.PageSize = 5000
	params.Values = append(values, engine.Value{Bytes: from[:]}, engine.Value{Bytes: to[:]})
	b.ReportAllocs()
	read := 0
	for b.Loop() {
		params.PagingState = nil
		for {
			res, err := n.engine.Execute(b.Context(), plan, params)
			if err != nil {
				b.Fatal(err)
			}
			read += int(res.RowCount)
			if params.PagingState = res.PagingState; params.PagingState == nil {
				break
			}
		}
	}
	b.ReportMetric(float64(read)/b.Elapsed().Seconds(), "rows/s")
}

func BenchmarkPlan(b *testing.B) {
	n := setup(b, outboxTables...)
	stmt, err := cql.Parse("INSERT INTO outbox (aggregate_id, seq, event_type, payload) VALUES (?, ?, ?, ?)")
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := n.engine.Plan("ks", stmt); err != nil {
			b.Fatal(err)
		}
	}
}
