package compact_test

import (
	"encoding/binary"
	"testing"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/verify/internal/compact"
)

// id returns the UUID of a number.
func id(n int) (id gocql.UUID) {
	binary.BigEndian.PutUint64(id[8:], uint64(n)+1)
	return id
}

func TestSet(t *testing.T) {
	t.Parallel()
	var s compact.Set
	for i := range 5000 {
		s.Add(id(2 * i))
		if i%1000 == 0 && !s.Has(id(2*i)) {
			t.Errorf("%d was added and is not found", 2*i)
		}
	}
	for i := range 10_000 {
		if s.Has(id(i)) != (i%2 == 0) {
			t.Fatalf("Has(%d) = %t", i, i%2 != 0)
		}
	}
	if s.Has(gocql.UUID{}) || s.Len() != 5000 {
		t.Error("the zero id is found, or some are lost")
	}
}

// An index finds each element of an arena of several chunks by its UUID, and the elements
// keep their addresses while the arena grows.
func TestIndex(t *testing.T) {
	t.Parallel()
	var a compact.Arena[gocql.UUID]
	var x compact.Index
	const n = 2*compact.ChunkLen + 1
	var first *gocql.UUID
	for i := range n {
		key := id(i)
		if _, ok := x.Find(&key, a.At); ok {
			t.Fatalf("%d is found before it is added", i)
		}
		number, e := a.Add()
		*e = key
		x.Put(number, a.At)
		if i == 0 {
			first = e
		}
	}
	if a.Len() != n || a.At(0) != first {
		t.Errorf("%d elements, the first one moved: %t; want %d where they were", a.Len(), a.At(0) != first, n)
	}
	for number, e := range a.All() {
		if found, ok := x.Find(e, a.At); !ok || found != number {
			t.Fatalf("the UUID of element %d is found at %d, %t", number, found, ok)
		}
	}
	if missing := id(n); func() bool { _, ok := x.Find(&missing, a.At); return ok }() {
		t.Error("a UUID is found that was not added")
	}
}
