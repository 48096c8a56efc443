package cdc

import (
	"slices"
	"sync/atomic"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/store"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/topology"
)

// trueValue is the serialised true. It is read-only: the store copies its input.
var trueValue = []byte{1}

// record builds the log rows of one partition and timestamp: one cdc$time,
// rows numbered from 0, the last one marked.
type record struct {
	plan   *plan
	keys   [][]byte // the base row's partition key
	block  *rowBlock
	mut    *store.Mutation // in block
	cells  []store.Cell    // memory of all cells; a full slab stays with its rows and a new one begins
	width  int             // cells to reserve for a row
	time   []byte          // cdc$time
	ts     int64
	ttl    int32
	expiry int64
}

// rowBlock is the memory of a record with one row, in one allocation.
type rowBlock struct {
	mut        store.Mutation
	rows       [1]store.Row
	clustering [2][]byte
	time       [16]byte
}

// newRecord begins a record. rows is the expected number of rows, width the number of
// cells of each.
func newRecord(p *plan, s *source, stream *topology.StreamID, keys [][]byte, ts int64, rows, width int) record {
	b := new(rowBlock)
	b.time = cqltype.TimeUUIDAt(ts, s.next())
	b.mut = store.Mutation{Table: p.log, Key: stream[:], Token: stream.Token(), Rows: b.rows[:0:1]}
	if rows > 1 {
		b.mut.Rows = make([]store.Row, 0, rows)
	}
	return record{
		plan: p, keys: keys, block: b, mut: &b.mut, time: b.time[:], ts: ts, width: width,
		cells: make([]store.Cell, 0, rows*width),
	}
}

// add begins a row with the next number and sets its operation and the base row's
// partition key. Columns are set before the next row is begun.
func (r *record) add(op Operation) {
	n := len(r.mut.Rows)
	clustering := r.block.clustering[:]
	if n > 0 {
		clustering = make([][]byte, 2)
	}
	clustering[0], clustering[1] = r.time, cqltype.EncodeInt32(int32(n))
	r.mut.Rows = append(r.mut.Rows, store.Row{
		Clustering: clustering,
		Columns:    make([]store.ColumnData, 0, r.width),
	})
	// A place for the mark of the last row, which finish fills or removes: its column
	// has the lowest number, so no other has to move.
	row := &r.mut.Rows[n]
	row.Columns = append(row.Columns, store.ColumnData{ID: r.plan.endOfBatch})
	r.set(r.plan.operation, []byte{byte(op)})
	for i, id := range r.plan.partitionKey {
		r.set(id, r.keys[i])
	}
}

// set gives a column of the current row a value. A column that the log lacks is
// skipped; where that is an error the caller has checked it.
func (r *record) set(id int32, value []byte) {
	if id < 0 {
		return
	}
	row := &r.mut.Rows[len(r.mut.Rows)-1]
	row.Columns = append(row.Columns, store.ColumnData{ID: id, Cell: r.cell(value)})
}

func (r *record) cell(value []byte) *store.Cell {
	if len(r.cells) == cap(r.cells) {
		r.cells = make([]store.Cell, 0, max(16, 2*r.width))
	}
	r.cells = append(r.cells, store.Cell{Timestamp: r.ts, TTL: r.ttl, Expiry: r.expiry, Value: value})
	return &r.cells[len(r.cells)-1]
}

// setClustering sets the columns of the base table's clustering key, up to the length
// of the key, which may be a prefix.
func (r *record) setClustering(key [][]byte) {
	for i, v := range key {
		r.set(r.plan.clustering[i], v)
	}
}

// setTTL sets cdc$ttl to a TTL in seconds, if there is one.
func (r *record) setTTL(ttl int32) {
	if ttl != 0 {
		r.set(r.plan.ttl, cqltype.EncodeInt64(int64(ttl)))
	}
}

// finish marks the last row and puts every row's columns in order. It returns
// nil for a record without rows.
func (r *record) finish() *store.Mutation {
	if len(r.mut.Rows) == 0 {
		return nil
	}
	last := len(r.mut.Rows) - 1
	for i := range r.mut.Rows {
		row := &r.mut.Rows[i]
		if i == last && r.plan.endOfBatch >= 0 {
			row.Columns[0].Cell = r.cell(trueValue)
		} else {
			row.Columns = row.Columns[1:]
		}
		slices.SortFunc(row.Columns, func(a, b store.ColumnData) int { return int(a.ID - b.ID) })
	}
	return r.mut
}

// source generates the low half of each cdc$time: the same numbers in the same order
// for one seed. Unlike a rand.Source it is safe for concurrent use without a lock.
type source struct{ state atomic.Uint64 }

// next implements SplitMix64.
func (s *source) next() uint64 {
	z := s.state.Add(0x9e3779b97f4a7c15)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
