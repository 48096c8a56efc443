package store

import (
	"bytes"
	"cmp"
	"math"
)

// never is below every timestamp a write can have.
const never = math.MinInt64

// tomb is a deletion as it is stored: with the second in which the server
// took it, from which gc_grace_seconds is counted.
type tomb struct {
	ts int64 // never if there is none
	at int64 // Unix seconds
}

var noTomb = tomb{ts: never}

func (a tomb) set() bool { return a.ts != never }

// max keeps the deletion that covers more, and for longer.
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

// cell is a cell as it is stored. For a dead one expiry is the second in
// which the server took the deletion.
type cell struct {
	ts, expiry int64
	ttl        int32
	dead       bool
	value      []byte
}

func (c *Cell) cell(now int64) cell {
	if c.Dead {
		return cell{ts: c.Timestamp, expiry: now, dead: true}
	}
	if c.TTL == 0 {
		return cell{ts: c.Timestamp, value: c.Value}
	}
	return cell{ts: c.Timestamp, ttl: c.TTL, expiry: c.Expiry, value: c.Value}
}

// expires reports whether the passing of time ends the cell.
func (c *cell) expires() bool { return c.ttl != 0 && !c.dead }

// beats reports whether a survives when a and b are one cell: the higher
// timestamp; then a delete; then the cell with a TTL; then the later expiry;
// then the smaller TTL, which is the later write; then the larger value.
//
// Time plays no part: an expired cell stays ahead of what it beat, so that
// merging is associative and nothing comes back to life.
func (a *cell) beats(b *cell) bool {
	switch {
	case a.ts != b.ts:
		return a.ts > b.ts
	case a.dead != b.dead:
		return a.dead
	case a.dead:
		return a.expiry > b.expiry
	case (a.ttl != 0) != (b.ttl != 0):
		return a.ttl != 0
	case a.expiry != b.expiry:
		return a.expiry > b.expiry
	case a.ttl != b.ttl:
		return a.ttl < b.ttl
	}
	return bytes.Compare(a.value, b.value) > 0
}

// entry is a cell of a row with its place: a column, and within a complex
// column a path.
type entry struct {
	id      int32
	complex bool
	path    []byte
	cell
}

// compareEntries puts elements before a plain cell of the same column. Only a
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
