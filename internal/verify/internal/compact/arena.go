// Package compact has collections of events in little memory: a list that grows without
// copying, an index of it by UUID without the keys, and a set of UUIDs. Their methods are
// not safe for concurrent use; nothing is removed.
package compact

import (
	"hash/maphash"
	"iter"

	"github.com/gocql/gocql"
)

// ChunkLen is the number of elements by which an Arena grows.
const ChunkLen = 4096

// Arena is a growing list whose elements never move: growth copies nothing and leaves at
// most one chunk unused. The zero value is empty.
type Arena[T any] struct {
	chunks [][]T
	n      uint32
}

// At returns the element with a number below Len.
func (a *Arena[T]) At(i uint32) *T { return &a.chunks[i/ChunkLen][i%ChunkLen] }

// Len returns the number of elements.
func (a *Arena[T]) Len() uint32 { return a.n }

// Add appends a zero element and returns it with its number.
func (a *Arena[T]) Add() (uint32, *T) {
	if int(a.n) == len(a.chunks)*ChunkLen {
		a.chunks = append(a.chunks, make([]T, ChunkLen))
	}
	i := a.n
	a.n++
	return i, a.At(i)
}

// All yields the elements with their numbers, in order.
func (a *Arena[T]) All() iter.Seq2[uint32, *T] {
	return func(yield func(uint32, *T) bool) {
		for i := range a.n {
			if !yield(i, a.At(i)) {
				return
			}
		}
	}
}

// Index finds elements of an Arena by UUID. It contains only their numbers, 4 to 8 bytes
// each with free slots, where a map would also contain the keys. The zero value is empty.
type Index struct {
	seed  maphash.Seed
	slots []uint32 // number + 1, or 0 for free; a power of two of them
	n     int
}

// Find returns the number stored for id and true, or the free slot for it and false. key
// returns the UUID of a number.
func (x *Index) Find(id *gocql.UUID, key func(uint32) *gocql.UUID) (n uint32, ok bool) {
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

// Put stores a number that Find did not find.
func (x *Index) Put(n uint32, key func(uint32) *gocql.UUID) {
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

func (x *Index) place(n uint32, id *gocql.UUID) {
	s := x.hash(id)
	for x.slots[s] != 0 {
		s = (s + 1) & uint64(len(x.slots)-1)
	}
	x.slots[s] = n + 1
}

func (x *Index) hash(id *gocql.UUID) uint64 {
	return maphash.Bytes(x.seed, id[:]) & uint64(len(x.slots)-1)
}
