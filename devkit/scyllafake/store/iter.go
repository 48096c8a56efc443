package store

import (
	"bytes"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

// Iter walks partitions in token order and, within each, live rows in
// clustering order, as of one instant: later writes do not show. What is
// deleted, shadowed or expired is not returned; a row without a live marker,
// cell or collection element does not exist, and a column that is not in the
// table's ByID has been dropped. Use:
//
//	for it.NextPartition() { it.Static(); for it.NextRow() { it.Row() } }
//
// Not every row of a partition need be read. Not safe for concurrent use.
type Iter struct {
	s       *Store
	it      *pebble.Iterator
	single  bool // one partition
	reverse bool
	// ranges are the scan's, sorted and disjoint; those of the partition that is
	// resumed in are cut to what comes after.
	ranges  []interval
	resumed *resumption
	*buffers

	err   error
	state iterState
	// valid says that it stands on a key.
	valid  bool
	static *Row
	// Within a partition: the ranges left, whether it stands in the first of them,
	// and whether its first row has been found already.
	left    []interval
	entered bool
	found   bool
}

type iterState uint8

const (
	atStart   iterState = iota
	inside              // a partition; it may stand anywhere in it
	atNext              // it stands on the next partition's first key, if valid
	exhausted           // nothing is left
)

// buffers are the parts of an Iter that are worth keeping for the next one.
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
	rewrite     [][]byte // keys to write back as one
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

// openPartition reads what stands before a partition's rows and looks for the
// first of them. It reports whether the partition shows at all.
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

// step takes note of where a move has led: to a key of this partition, of the
// next one, or nowhere.
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

// nextLive moves to the next live row within the ranges. The iterator stands
// on the row or entry last read, or on the first not yet read if !it.entered.
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

// nextLiveReverse is nextLive from the last row to the first. When it is done
// it may stand before the rows, or in no place at all: the way on is a seek.
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

// readRow decodes the row the iterator stands on and reports whether it is alive.
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

// Token and Key identify the current partition; valid until the next NextPartition.
func (it *Iter) Token() int64 { return it.token }

// Key is the serialised partition key.
func (it *Iter) Key() []byte { return it.key }

// Static is the live static row, or nil. It stays valid until the next NextPartition.
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

// Row is the current row. The row and what it points to are valid until the
// next NextRow or NextPartition; copy what must live longer (Row.Clone).
func (it *Iter) Row() *Row { return &it.rows.row }

// Err is the first error met.
func (it *Iter) Err() error { return it.err }

// fail keeps the first error; nil is none.
func (it *Iter) fail(err error) {
	if err != nil && it.err == nil {
		it.err = fmt.Errorf("scan: %w", err)
	}
}

// Close releases the iterator and what it returned. Closing again does nothing.
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
