package verify

import (
	"hash/maphash"
	"iter"

	"github.com/gocql/gocql"
)

// chunkLen is the number of elements of a chunk of an arena.
const chunkLen = 4096

// arena is a growing list whose elements never move: growth copies nothing and leaves at
// most one chunk unused.
type arena[T any] struct {
	chunks [][]T
	n      uint32
}

func (a *arena[T]) at(i uint32) *T { return &a.chunks[i/chunkLen][i%chunkLen] }

// add appends a zero element.
func (a *arena[T]) add() (uint32, *T) {
	if int(a.n) == len(a.chunks)*chunkLen {
		a.chunks = append(a.chunks, make([]T, chunkLen))
	}
	i := a.n
	a.n++
	return i, a.at(i)
}

func (a *arena[T]) all() iter.Seq2[uint32, *T] {
	return func(yield func(uint32, *T) bool) {
		for i := range a.n {
			if !yield(i, a.at(i)) {
				return
			}
		}
	}
}

// index finds elements of an arena by UUID. It contains only their numbers, 4 to 8 bytes
// each with free slots, where a map would also contain the keys.
type index struct {
	seed  maphash.Seed
	slots []uint32 // number + 1, or 0 for free; a power of two of them
	n     int
}

// find returns the number stored for id and true, or the free slot for it and false. key
// returns the UUID of a number.
func (x *index) find(id *gocql.UUID, key func(uint32) *gocql.UUID) (n uint32, ok bool) {
	if x.slots == nil {
		return 0, false
	}
	for s := x.hash(id); ; s = (s + 1) & uint64(len(x.slots)-1) {
		switch v := x.slots[s]; {
		case v == 0:
			return 0, false
		case *key(v - 1) == *id:
			return v - 1, true
		}
	}
}

// put stores a number that find did not find.
func (x *index) put(n uint32, key func(uint32) *gocql.UUID) {
	if x.slots == nil {
		x.seed = maphash.MakeSeed()
	}
	if x.n >= len(x.slots)*3/4 {
		old := x.slots
		x.slots = make([]uint32, max(1024, 2*len(old)))
		for _, v := range old {
			if v != 0 {
				x.place(v-1, key(v-1))
			}
		}
	}
	x.place(n, key(n))
	x.n++
}

func (x *index) place(n uint32, id *gocql.UUID) {
	s := x.hash(id)
	for x.slots[s] != 0 {
		s = (s + 1) & uint64(len(x.slots)-1)
	}
	x.slots[s] = n + 1
}

func (x *index) hash(id *gocql.UUID) uint64 {
	return maphash.Bytes(x.seed, id[:]) & uint64(len(x.slots)-1)
}
