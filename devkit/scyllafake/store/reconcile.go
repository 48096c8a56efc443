package store

import (
	"bytes"
	"cmp"
	"math"
)

// never is below every timestamp a write can have.
const never = math.MinInt64

// tomb is a stored deletion: with the second in which the server received it, from
// which gc_grace_seconds is counted.
type tomb struct {
	ts int64 // never if there is none
	at int64 // Unix seconds
}

var noTomb = tomb{ts: never}

func (a tomb) set() bool { return a.ts != never }

// max returns the deletion that covers more, and for longer.
func (a tomb) max(b tomb) tomb {
	if a.ts > b.ts || a.ts == b.ts && a.at >= b.at {
		return a
	}
	return b
}

func (d Deletion) tomb(now int64) tomb {
	if !d.Set {
		return noTomb
	}
	return tomb{d.Timestamp, now}
}

// toStored returns a cell in its stored form: fields that do not apply are empty, but the
// Expiry of a dead one is the second in which the server received the deletion.
func (c *Cell) toStored(now int64) Cell {
	switch {
	case c.Dead:
		return Cell{Timestamp: c.Timestamp, Expiry: now, Dead: true}
	case c.TTL == 0:
		return Cell{Timestamp: c.Timestamp, Value: c.Value}
	}
	return *c
}

// visible reports whether the cell is alive in second now, under a deletion.
func (c *Cell) visible(shadow, now int64) bool {
	return c.Timestamp > shadow && !c.Dead && (c.TTL == 0 || c.Expiry > now)
}

// Beats reports whether a survives when a and b are one cell: the higher timestamp;
// then a delete; then the cell with a TTL; then the later expiry; then the smaller TTL,
// which is the later write; then the larger value.
//
// Time plays no part: an expired cell still beats the same cells, so that merging is
// associative and no old value reappears.
func (a *Cell) Beats(b *Cell) bool {
	switch {
	case a.Timestamp != b.Timestamp:
		return a.Timestamp > b.Timestamp
	case a.Dead != b.Dead:
		return a.Dead
	case a.Dead:
		return a.Expiry > b.Expiry
	case (a.TTL != 0) != (b.TTL != 0):
		return a.TTL != 0
	case a.Expiry != b.Expiry:
		return a.Expiry > b.Expiry
	case a.TTL != b.TTL:
		return a.TTL < b.TTL
	}
	return bytes.Compare(a.Value, b.Value) > 0
}

// entry is a cell of a row with its place: a column, and within a complex column a
// path.
type entry struct {
	id      int32
	complex bool
	path    []byte
	Cell
}

// compareEntries sorts elements before a plain cell of the same column. Only a
// malformed record has both; it must not make another malformed one.
func compareEntries(a, b entry) int {
	if a.id != b.id {
		return cmp.Compare(a.id, b.id)
	}
	if a.complex != b.complex {
		if a.complex {
			return -1
		}
		return 1
	}
	return bytes.Compare(a.path, b.path)
}

// columnTomb is the tombstone of a complex column.
type columnTomb struct {
	id int32
	tomb
}
