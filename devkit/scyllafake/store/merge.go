package store

import (
	"io"
	"sync"

	"github.com/cockroachdb/pebble/v2"
)

// crowd is the number of operands of one record from which a read writes them back as
// one. Until pebble flushes and compacts, each update of a row is an operand of its own
// and every read merges all of them.
const crowd = 64

// newMerger returns the pebble merger that sums up the writes to a record.
func newMerger() *pebble.Merger {
	return &pebble.Merger{Name: "scyllafake.reconcile.1", Merge: startMerge}
}

var mergerPool = sync.Pool{New: func() any { return new(merger) }}

// merger collects the operands of one key and reconciles them at the end. The result
// does not depend on their order.
type merger struct {
	buf  []byte // operands, one after the other
	ends []int
	out  []byte
	sum  delta
	part partitionRecord
}

func startMerge(_, value []byte) (pebble.ValueMerger, error) {
	m := mergerPool.Get().(*merger)
	m.buf, m.ends = m.buf[:0], m.ends[:0]
	m.add(value)
	return m, nil
}

func (m *merger) add(value []byte) {
	m.buf = append(m.buf, value...)
	m.ends = append(m.ends, len(m.buf))
}

// MergeNewer implements pebble.ValueMerger.
func (m *merger) MergeNewer(value []byte) error {
	m.add(value)
	return nil
}

// MergeOlder implements pebble.ValueMerger.
func (m *merger) MergeOlder(value []byte) error {
	m.add(value)
	return nil
}

// Finish implements pebble.ValueMerger.
func (m *merger) Finish(bool) ([]byte, io.Closer, error) {
	if len(m.buf) == 0 {
		return nil, m, errCorrupt
	}
	if len(m.ends) == 1 {
		m.buf[0] &^= crowded
		return m.buf, m, nil
	}
	finish := m.finishRow
	if m.buf[0]&isPartition != 0 {
		finish = m.finishPartition
	}
	if !finish() {
		return nil, m, errCorrupt
	}
	if len(m.ends) >= crowd {
		m.out[0] |= crowded
	}
	return m.out, m, nil
}

func (m *merger) finishRow() bool {
	m.sum.reset()
	start := 0
	for _, end := range m.ends {
		if !m.sum.add(m.buf[start:end]) {
			return false
		}
		start = end
	}
	m.sum.reconcile()
	m.out = m.sum.appendTo(m.out[:0])
	return true
}

func (m *merger) finishPartition() bool {
	m.part.reset()
	start := 0
	for _, end := range m.ends {
		if !m.part.add(m.buf[start:end]) {
			return false
		}
		start = end
	}
	m.part.reconcile()
	m.out = m.part.appendTo(m.out[:0])
	return true
}

// Close returns the buffers. pebble calls it when it is done with the result.
func (m *merger) Close() error {
	m.sum.reset() // it refers to buf
	m.part.reset()
	const keep = 1 << 20
	if cap(m.buf) <= keep && cap(m.out) <= keep {
		mergerPool.Put(m)
	}
	return nil
}

// add adds another row record to the sum; the delta refers to its bytes. It reports
// whether the record is well formed.
func (d *delta) add(record []byte) bool {
	r := reader{b: record}
	h := r.rowHeader()
	d.deleted = d.deleted.max(h.deleted)
	if h.flags&rowMarker != 0 {
		d.addMarker(h.marker)
	}
	block := r.b
	for n := r.count(); n > 0; n-- {
		r.value()
	}
	d.clustering = block[:len(block)-len(r.b)]
	var id int32
	for n := r.count(); n > 0 && !r.bad; n-- {
		id += int32(r.varint())
		flags := r.byte()
		if flags&cellComplex == 0 {
			r.fullCell(d.grow(entry{id: id}), flags, &h.base)
			continue
		}
		if flags&cellDeleted != 0 {
			d.tombs = append(d.tombs, columnTomb{id, r.tomb(h.ts)})
		}
		for m := r.count(); m > 0 && !r.bad; m-- {
			c := d.grow(entry{id: id, complex: true, path: r.bytes()})
			r.fullCell(c, r.byte(), &h.base)
		}
	}
	d.unsorted = true
	return !r.bad
}

// grow adds an entry and returns its cell for the caller to fill.
func (d *delta) grow(e entry) *Cell {
	d.entries = append(d.entries, e)
	return &d.entries[len(d.entries)-1].Cell
}
