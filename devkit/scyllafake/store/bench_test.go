package store

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
)

// logTable returns a table like a CDC log: ten columns, time and sequence clustering.
func logTable(storeID uint32) *catalog.Table {
	t := &catalog.Table{Keyspace: "ks", Name: "log", StoreID: storeID}
	add := func(kind catalog.ColumnKind, typ cqltype.Kind) *catalog.Column {
		c := &catalog.Column{Name: fmt.Sprint("c", t.NextColumnID), Type: &cqltype.Type{Kind: typ}, Kind: kind, ID: t.NextColumnID}
		t.NextColumnID++
		return c
	}
	t.PartitionKey = []*catalog.Column{add(catalog.PartitionKey, cqltype.Blob)}
	t.Clustering = []*catalog.Column{add(catalog.Clustering, cqltype.TimeUUID), add(catalog.Clustering, cqltype.Int)}
	for range 10 {
		t.Regulars = append(t.Regulars, add(catalog.Regular, cqltype.Varchar))
	}
	return indexColumns(t)
}

// logRow is the n-th row of a log partition.
func logRow(n int, values []byte) Row {
	time := make([]byte, 16)
	binary.BigEndian.PutUint32(time, uint32(n))
	binary.BigEndian.PutUint16(time[4:], uint16(n>>32))
	time[6] = 0x10
	r := Row{Clustering: [][]byte{time, i32(0)}}
	for i := range 10 {
		c := &Cell{Timestamp: int64(n), TTL: 86400, Expiry: 1 << 40, Value: values[i*8 : i*8+8]}
		r.Columns = append(r.Columns, ColumnData{ID: int32(3 + i), Cell: c})
	}
	return r
}

var logKey = []byte("0123456789abcdef")

func openBench(b *testing.B, onDisk bool) *Store {
	b.Helper()
	o := Options{}
	if onDisk {
		o.Dir = b.TempDir()
	}
	s, err := Open(o)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	return s
}

func BenchmarkScan_LogPartition(b *testing.B) {
	for _, where := range []string{"memtable", "flushed"} {
		b.Run(where, func(b *testing.B) {
			const rows = 20_000
			s, tbl, values := openBench(b, false), logTable(1), make([]byte, 80)
			for n := 0; n < rows; n += 100 {
				m := &Mutation{Table: tbl, Key: logKey, Token: 5}
				for i := range 100 {
					m.Rows = append(m.Rows, logRow(n+i, values))
				}
				if err := s.Apply([]*Mutation{m}); err != nil {
					b.Fatal(err)
				}
			}
			if where == "flushed" {
				if err := s.db.Flush(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			seen := 0
			for b.Loop() {
				it, err := s.Scan(Scan{Table: tbl, Key: logKey, Token: 5})
				if err != nil {
					b.Fatal(err)
				}
				for it.NextPartition() {
					for it.NextRow() {
						seen += len(it.Row().Columns) / 10
					}
				}
				if err := it.Close(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(seen)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}

func BenchmarkGet(b *testing.B) {
	s, tbl := openBench(b, false), kvTable(1)
	const keys = 10_000
	for i := range keys {
		apply(b, s, rowMutation(tbl, fmt.Sprintf("%08d", i), Row{Marker: live(1, ""), Columns: []ColumnData{columnData(colA, live(1, "value"))}}))
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		key := fmt.Sprintf("%08d", i%keys)
		row, _, err := s.Get(tbl, []byte(key), testToken(key), nil)
		if err != nil || row == nil {
			b.Fatal(row, err)
		}
		i++
	}
}

// BenchmarkApply_Batch writes the rows of an order: two rows and the log row of one.
func BenchmarkApply_Batch(b *testing.B) {
	for _, where := range []string{"memory", "disk"} {
		b.Run(where, func(b *testing.B) {
			s := openBench(b, where == "disk")
			orders, outbox, log, values := kvTable(1), testTable(2), logTable(3), make([]byte, 80)
			var seq atomic.Int64
			b.SetParallelism(32)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					n := int(seq.Add(1))
					key := fmt.Sprintf("%016d", n)
					err := s.Apply([]*Mutation{
						rowMutation(orders, key, Row{Marker: live(1, ""), Columns: []ColumnData{columnData(colA, live(1, "value"))}}),
						rowMutation(outbox, key, Row{Clustering: ck(1, 1), Marker: live(1, ""), Columns: []ColumnData{columnData(colA, live(1, "value"))}}),
						{Table: log, Key: logKey, Token: 5, Rows: []Row{logRow(n, values)}},
					})
					if err != nil {
						b.Error(err)
						return
					}
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "batches/s")
		})
	}
}

func BenchmarkOpen(b *testing.B) {
	dir := b.TempDir()
	for b.Loop() {
		s, err := Open(Options{Dir: dir})
		if err != nil {
			b.Fatal(err)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
