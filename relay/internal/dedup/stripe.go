package dedup

import (
	"encoding/binary"

	"github.com/gocql/gocql"
)

// Stripes is the number of parts that ids are divided into. The table of one is copied when it
// grows, which delays whoever adds an id by a sixteenth of the time for all.
const Stripes = 16

// SelectStripe returns the stripe of an id, from 0 to Stripes-1. It is the same in every
// process, so that a simulation can be repeated.
func SelectStripe(id gocql.UUID) int {
	// Multiplications by odd numbers with many bits set, after Knuth, The Art of Computer
	// Programming 6.4: the highest bits of the product depend on all bits.
	h := binary.LittleEndian.Uint64(id[:8])*0x9e3779b97f4a7c15 ^ binary.BigEndian.Uint64(id[8:])*0xc2b2ae3d27d4eb4f
	h ^= h >> 32
	return int(h * 0x9e3779b97f4a7c15 >> 60)
}
