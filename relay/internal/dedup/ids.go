package dedup

import (
	"hash/maphash"
	"iter"
	"math/bits"
	"slices"

	"github.com/gocql/gocql"
)

const (
	// segments is the number of tables of a set. Each grows by itself: the table of one is copied
	// when it grows, which delays whoever adds an id by a small part of the time for all.
	segments = 128
	// groupSize is the number of ids in a group, whose tags fit into one word.
	groupSize = 8

	lowBits, highBits = 0x0101010101010101, 0x8080808080808080

	// A tag is tagEmpty, tagRemoved, or tagUsed with six bits of the id's hash, and with
	// tagInTopic.
	tagEmpty   = 0x00
	tagRemoved = 0x01
	tagUsed    = 0x80
	tagInTopic = 0x40
)

const (
	// BytesPerID is the most memory that an id in an Index needs.
	BytesPerID = 24
	// BytesPerEvent is the memory of an event that the sweep reader has not read: its id,
	// and half of one whose row it has read, because New keeps half as many of these.
	BytesPerEvent = BytesPerID + BytesPerID/2
)

var seed = maphash.MakeSeed()

// idSet is a set of event ids, each with InTopic. An id needs 20 to 24 bytes, where a map
// needs 20 to 41, and nothing is for the garbage collector to scan. The nil set is empty. It
// is not safe for concurrent use.
type idSet struct {
	n     int
	table [segments]idTable
}

// idTable is a hash table of groups, with linear probing from group to group. It grows by
// a fifth when seven eighths of its slots are used or removed.
type idTable struct {
	tags []uint64 // a tag in each byte
	ids  [][groupSize]gocql.UUID
	used int // slots that are not empty
	n    int // ids
}

// len returns the number of ids.
func (s *idSet) len() int {
	if s == nil {
		return 0
	}
	return s.n
}

// hashID returns the hash of an id, which is the same for all sets.
func hashID(id *gocql.UUID) uint64 { return maphash.Bytes(seed, id[:]) }

// of returns the table of an id, and its hash.
func (s *idSet) of(id *gocql.UUID) (t *idTable, hash uint64) {
	hash = hashID(id)
	return &s.table[hash%segments], hash
}

// find reports whether the set contains the id, and returns its known state.
func (s *idSet) find(id gocql.UUID) (in InTopic, ok bool) { return s.findHash(&id, hashID(&id)) }

// findHash is find of an id with the given hash.
func (s *idSet) findHash(id *gocql.UUID, hash uint64) (in InTopic, ok bool) {
	if s.len() == 0 {
		return false, false
	}
	t := &s.table[hash%segments]
	g, i := t.find(id, hash)
	if g < 0 {
		return false, false
	}
	return t.tag(g, i)&tagInTopic != 0, true
}

// set adds the id, or changes its known state.
func (s *idSet) set(id gocql.UUID, in InTopic) {
	t, hash := s.of(&id)
	g, i := t.find(&id, hash)
	if g < 0 {
		s.n++
		if 8*(t.used+1) > 7*groupSize*len(t.tags) {
			t.grow()
		}
		g, i = t.room(hash)
		t.ids[g][i] = id
		t.n++
	}
	tag := uint8(tagUsed) | tagBits(hash)
	if in {
		tag |= tagInTopic
	}
	t.setTag(g, i, tag)
}

// remove removes the id and reports whether the set contained it.
func (s *idSet) remove(id gocql.UUID) bool {
	if s.len() == 0 {
		return false
	}
	t, hash := s.of(&id)
	g, i := t.find(&id, hash)
	if g < 0 {
		return false
	}
	s.n--
	t.n--
	if hasByte(t.tags[g], tagEmpty) { // no search continues after this group
		t.setTag(g, i, tagEmpty)
		t.used--
	} else {
		t.setTag(g, i, tagRemoved)
	}
	return true
}

// takeTable removes the ids of one table from the set, which is not empty, and returns them.
func (s *idSet) takeTable() (taken idTable) {
	i := slices.IndexFunc(s.table[:], func(t idTable) bool { return t.n > 0 })
	taken, s.table[i] = s.table[i], idTable{}
	s.n -= taken.n
	return taken
}

// all returns the ids in any order.
func (t *idTable) all() iter.Seq2[gocql.UUID, InTopic] {
	return func(yield func(gocql.UUID, InTopic) bool) {
		for g := range t.tags {
			for i := range groupSize {
				if tag := t.tag(g, i); tag&tagUsed != 0 && !yield(t.ids[g][i], tag&tagInTopic != 0) {
					return
				}
			}
		}
	}
}

// tagBits returns the bits of the hash that a tag contains. Neither the choice of the table
// nor that of the group uses them.
func tagBits(hash uint64) uint8 { return uint8(hash>>8) & 0x3f }

// group returns the first group of a hash.
func (t *idTable) group(hash uint64) int {
	hi, _ := bits.Mul64(hash&^0xffff, uint64(len(t.tags)))
	return int(hi)
}

func (t *idTable) tag(g, i int) uint8 { return uint8(t.tags[g] >> (8 * i)) }

func (t *idTable) setTag(g, i int, tag uint8) {
	t.tags[g] = t.tags[g]&^(0xff<<(8*i)) | uint64(tag)<<(8*i)
}

// find returns the place of an id, or group -1.
func (t *idTable) find(id *gocql.UUID, hash uint64) (g, i int) {
	if t.n == 0 {
		return -1, 0
	}
	want := (tagUsed | uint64(tagBits(hash))) * lowBits
	for g = t.group(hash); ; g = t.after(g) {
		tags := t.tags[g]
		// A byte of diff is zero where the tag is the wanted one, in either state of
		// tagInTopic. A match may be wrong, the ids decide.
		diff := tags&^(tagInTopic*lowBits) ^ want
		for match := (diff - lowBits) &^ diff & highBits; match != 0; match &= match - 1 {
			if i = bits.TrailingZeros64(match) / 8; t.ids[g][i] == *id {
				return g, i
			}
		}
		if hasByte(tags, tagEmpty) {
			return -1, 0
		}
	}
}

// room returns a free place for an id that the table does not contain.
func (t *idTable) room(hash uint64) (g, i int) {
	for g = t.group(hash); ; g = t.after(g) {
		if free := ^t.tags[g] & highBits; free != 0 {
			i = bits.TrailingZeros64(free) / 8
			if t.tag(g, i) == tagEmpty {
				t.used++
			}
			return g, i
		}
	}
}

func (t *idTable) after(g int) int {
	if g++; g < len(t.tags) {
		return g
	}
	return 0
}

// grow makes room for more ids, or removes the traces of removed ones.
func (t *idTable) grow() {
	groups := len(t.tags)
	if 8*(t.n+1) > 6*groupSize*groups {
		groups = groups*6/5 + 1
	}
	old := *t
	*t = idTable{tags: make([]uint64, groups), ids: make([][groupSize]gocql.UUID, groups)}
	for g := range old.tags {
		for i := range groupSize {
			tag := old.tag(g, i)
			if tag&tagUsed == 0 {
				continue
			}
			ng, ni := t.room(maphash.Bytes(seed, old.ids[g][i][:]))
			t.ids[ng][ni] = old.ids[g][i]
			t.setTag(ng, ni, tag)
			t.n++
		}
	}
}

// hasByte reports whether a byte of word is b.
func hasByte(word uint64, b uint8) bool {
	diff := word ^ uint64(b)*lowBits
	return (diff-lowBits)&^diff&highBits != 0
}
