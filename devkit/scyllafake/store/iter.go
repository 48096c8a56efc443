package store

import (
	"bytes"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

// Iter walks partitions in token order and, within each, live rows in clustering order,
// at one instant: later writes are invisible. It does not return deleted, shadowed or
// expired data. A row without a live marker, cell or collection element does not exist,
// and a column that is not in the table's ByID has been dropped. Use:
//
//	for it.NextPartition() { it.Static(); for it.NextRow() { it.Row() } }
//
// Rows of a partition may be left unread. It is not safe for concurrent use.
type Iter struct {
	s       *Store
	it      *pebble.Iterator
	single  bool // one partition
	reverse bool
	// ranges are the scan's, sorted and disjoint; in the resumed partition they begin
	// after the position.
	ranges  []interval
	resumed *resumption
	*buffers

	err   error
	state iterState
	// valid means that the iterator is at a key.
	valid  bool
	static *Row
	// Within a partition: the remaining ranges, whether the iterator is in the first of
	// them, and whether its first row has been found already.
	left    []interval
	entered bool
	found   bool
}

type iterState uint8

const (
	atStart   iterState = iota
	inside              // at any key of a partition
	atNext              // at the next partition's first key, if valid
	exhausted           // no keys are left
)

// buffers are the reusable parts of an Iter.
type buffers struct {
	partition   []byte // the current partition's part of the keys
	key         []byte // the current partition key
	token       int64
	seek        []byte
	record      []byte // the partition's record
	tombs       partitionRecord
	staticBytes []byte
	statics     decoder
	rows        decoder
	rewrite     [][]byte // keys of records to write back as one operand
}

// NextPartition moves to the next partition that has any live static or
// clustering row (within the scan's ranges, for rows; a partition whose only live data
// is its static row is returned too) and reports whether there is one.
func (it *Iter) NextPartition() bool {
	for it.toNext() {
		if it.openPartition() {
			return true
		}
	}
	return false
}

// toNext moves to the first key of the next partition.
func (it *Iter) toNext() bool {
	if it.err != nil {
		return false
	}
	switch it.state {
	case exhausted:
		return false
	case atStart:
		it.valid = it.it.First()
	case inside:
		if it.single {
			it.state = exhausted
			return false
		}
		it.seek = append(append(it.seek[:0], it.partition...), kindEnd)
		it.valid = it.it.SeekGE(it.seek)
	case atNext:
		if it.single {
			it.valid = false
		}
	}
	if !it.valid {
		it.state = exhausted
		it.fail(it.it.Error())
	}
	return it.valid
}

// openPartition reads the records before a partition's rows and searches for the first
// row. It reports whether the partition is visible at all.
func (it *Iter) openPartition() bool {
	k := it.it.Key()
	token, key, n, err := splitPartition(k, it.key[:0])
	if err != nil || n >= len(k) {
		it.fail(errCorrupt)
		return false
	}
	it.token, it.key = token, key
	it.partition = append(it.partition[:0], k[:n]...)
	it.state, it.static, it.found, it.entered = inside, nil, false, false
	it.left = it.ranges
	resumed := it.resumed != nil && bytes.Equal(it.resumed.partition, it.partition)
	if resumed {
		it.left = it.resumed.ranges
	}
	it.tombs.reset()
	if k[n] == kindPartition {
		it.readTombs()
		it.step(it.it.Next())
	}
	if it.state == inside && it.it.Key()[n] == kindStatic {
		it.readStatic()
		it.step(it.it.Next())
	}
	if it.err != nil {
		return false
	}
	it.found = it.state == inside && it.nextLive()
	return it.found || it.static != nil && !resumed && it.err == nil
}

func (it *Iter) readTombs() {
	v, err := it.it.ValueAndErr()
	if err != nil {
		it.fail(err)
		return
	}
	it.record = append(it.record[:0], v...)
	if !it.tombs.add(it.record) {
		it.fail(errCorrupt)
		return
	}
	if it.record[0]&crowded != 0 {
		it.noteCrowded()
	}
}

func (it *Iter) readStatic() {
	v, err := it.it.ValueAndErr()
	if err != nil {
		it.fail(err)
		return
	}
	it.staticBytes = append(it.staticBytes[:0], v...)
	alive, err := it.statics.live(it.staticBytes, it.tombs.deleted.ts)
	if err != nil {
		it.fail(err)
		return
	}
	if it.staticBytes[0]&crowded != 0 {
		it.noteCrowded()
	}
	if alive {
		it.static = &it.statics.row
	}
}

// step updates the state after a move: the iterator is at a key of this partition, of
// the next one, or at the end.
func (it *Iter) step(valid bool) {
	it.valid = valid
	switch {
	case !valid:
		it.state = atNext
		it.fail(it.it.Error())
	case !bytes.HasPrefix(it.it.Key(), it.partition):
		it.state = atNext
	}
}

// nextLive moves to the next live row within the ranges. The iterator is at the row or
// entry last read, or at the first one not yet read if !it.entered.
func (it *Iter) nextLive() bool {
	if it.reverse {
		return it.nextLiveReverse()
	}
	n := len(it.partition)
	for it.state == inside && len(it.left) > 0 && it.err == nil {
		iv := &it.left[0]
		switch {
		case it.entered:
			it.step(it.it.Next())
		case bytes.Compare(it.it.Key()[n:], iv.lo) < 0:
			it.seek = append(append(it.seek[:0], it.partition...), iv.lo...)
			it.step(it.it.SeekGE(it.seek))
		}
		it.entered = true
		if it.state != inside {
			break
		}
		row := it.it.Key()[n:]
		if bytes.Compare(row, iv.hi) >= 0 {
			it.left, it.entered = it.left[1:], false
			continue
		}
		if it.readRow(row) {
			return true
		}
	}
	return false
}

// nextLiveReverse is nextLive from the last row to the first. At the end its position
// may be before the rows or invalid: continue with a seek.
func (it *Iter) nextLiveReverse() bool {
	n := len(it.partition)
	for len(it.left) > 0 && it.err == nil {
		iv := &it.left[len(it.left)-1]
		if it.entered {
			it.valid = it.it.Prev()
		} else {
			it.seek = append(append(it.seek[:0], it.partition...), iv.hi...)
			it.valid = it.it.SeekLT(it.seek)
		}
		it.state, it.entered = inside, true
		if !it.valid {
			it.left = nil
			it.fail(it.it.Error())
			break
		}
		k := it.it.Key()
		if !bytes.HasPrefix(k, it.partition) || bytes.Compare(k[n:], iv.lo) < 0 {
			it.left, it.entered = it.left[:len(it.left)-1], false
			continue
		}
		if it.readRow(k[n:]) {
			return true
		}
	}
	return false
}

// readRow decodes the row at the iterator and reports whether it is alive.
func (it *Iter) readRow(row []byte) bool {
	v, err := it.it.ValueAndErr()
	if err != nil {
		it.fail(err)
		return false
	}
	alive, err := it.rows.live(v, it.tombs.covering(row).ts)
	if err != nil {
		it.fail(err)
		return false
	}
	if v[0]&crowded != 0 {
		it.noteCrowded()
	}
	return alive
}

// Token returns the token of the current partition.
func (it *Iter) Token() int64 { return it.token }

// Key returns the serialised partition key, valid until the next NextPartition.
func (it *Iter) Key() []byte { return it.key }

// Static returns the live static row, or nil. It stays valid until the next
// NextPartition.
func (it *Iter) Static() *Row { return it.static }

// NextRow moves to the next live row of the partition. A table without
// clustering key has at most one row per partition.
func (it *Iter) NextRow() bool {
	if it.found {
		it.found = false // NextPartition has found the first row already
		return true
	}
	return it.nextLive()
}

// Row returns the current row. The row and the memory it refers to are valid until the
// next NextRow or NextPartition; use Row.Clone to keep it.
func (it *Iter) Row() *Row { return &it.rows.row }

// Err returns the first error.
func (it *Iter) Err() error { return it.err }

// fail keeps the first error; nil is none.
func (it *Iter) fail(err error) {
	if err != nil && it.err == nil {
		it.err = fmt.Errorf("scan: %w", err)
	}
}

// Close releases the iterator and the memory of its results. A second call does
// nothing.
func (it *Iter) Close() error {
	if it.buffers == nil {
		return nil
	}
	if err := it.it.Close(); err != nil && it.err == nil {
		it.err = fmt.Errorf("scan: %w", err)
	}
	for _, k := range it.rewrite {
		if err := it.s.collapse(k); err != nil && it.err == nil {
			it.err = err
		}
	}
	it.rewrite = it.rewrite[:0]
	it.s.readers.Put(it.buffers)
	it.buffers, it.static = nil, nil
	it.state = exhausted
	return it.err
}
