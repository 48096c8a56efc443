package scyllafake_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
)

// benchSession is a session of a node with its data on disk, fsync off.
func benchSession(b *testing.B) *gocql.Session {
	b.Helper()
	srv := startTCP(b, func(c *scyllafake.Config) { c.Dir = b.TempDir() })
	cfg := cluster(b, srv)
	cfg.Timeout = 10 * time.Second
	s := session(b, cfg)
	exec(b, s, createKS,
		"CREATE TABLE ks.orders (id uuid PRIMARY KEY, version int, payload text)",
		"CREATE TABLE ks.outbox (aggregate uuid, seq int, type text, payload text, PRIMARY KEY (aggregate, seq)) WITH cdc = {'enabled': true}")
	return s
}

const orderPayload = `{"customer":"c-1234567","items":[{"sku":"ABC-1","qty":2,"price":"19.99"},{"sku":"XYZ-9","qty":1,"price":"5.00"}],"total":"44.98"}`

// BenchmarkLoggedBatch writes logged batches of an order and its event from 64
// writers. A real single-shard node did 10,500 of them a second on two cores.
func BenchmarkLoggedBatch(b *testing.B) {
	s := benchSession(b)
	b.SetParallelism(32) // times GOMAXPROCS
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			id := gocql.MustRandomUUID()
			batch := s.Batch(gocql.LoggedBatch)
			batch.Query("INSERT INTO ks.orders (id, version, payload) VALUES (?, ?, ?)", id, 1, orderPayload)
			batch.Query("INSERT INTO ks.outbox (aggregate, seq, type, payload) VALUES (?, ?, ?, ?)", id, 1, "order.created", orderPayload)
			if err := s.ExecuteBatch(batch); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "batches/s")
}

// BenchmarkReadLog reads the whole CDC log in pages, as one iteration of which
// a row is. A real node served about 140,000 rows a second on two cores.
func BenchmarkReadLog(b *testing.B) {
	s := benchSession(b)
	const rows = 20_000
	for i := range rows / 100 {
		batch := s.Batch(gocql.UnloggedBatch)
		id := gocql.MustRandomUUID()
		for j := range 100 {
			batch.Query("INSERT INTO ks.outbox (aggregate, seq, type, payload) VALUES (?, ?, ?, ?)", id, j, "order.created", fmt.Sprint(orderPayload, i))
		}
		if err := s.ExecuteBatch(batch); err != nil {
			b.Fatal(err)
		}
	}
	// Every column, into variables, as a reader without reflection does.
	var (
		stream        []byte
		at, aggregate gocql.UUID
		batchSeq, seq int
		operation     int8
		ttl           int64
		gone, end     bool
		kind, payload string
		read          atomic.Int64
	)
	b.ResetTimer()
	for read.Load() < int64(b.N) {
		it := s.Query("SELECT * FROM ks.outbox_scylla_cdc_log").PageSize(5000).Iter()
		n := int64(0)
		for it.Scan(&stream, &at, &batchSeq, &aggregate, &gone, &gone, &end, &operation, &ttl, &payload, &seq, &kind) {
			n++
		}
		if err := it.Close(); err != nil || n != rows {
			b.Fatalf("%d rows, error %v", n, err)
		}
		read.Add(n)
	}
	b.ReportMetric(float64(read.Load())/b.Elapsed().Seconds(), "rows/s")
}

// BenchmarkFirstConnection is a driver's first session of a new node in memory,
// from the start of the node to the first answer.
func BenchmarkFirstConnection(b *testing.B) {
	for b.Loop() {
		srv, err := scyllafake.Start(scyllafake.Config{Addr: "127.0.0.1:0"})
		if err != nil {
			b.Fatal(err)
		}
		s, err := cluster(b, srv).CreateSession()
		if err != nil {
			b.Fatal(err)
		}
		if err := s.Query("SELECT key FROM system.local").Exec(); err != nil {
			b.Fatal(err)
		}
		s.Close()
		if err := srv.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
