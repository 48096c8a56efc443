package expr

import (
	"crypto/rand"
	"encoding/binary"
	"sync"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/store"
)

// Clock returns times and ids made of them. Timestamps and uuids never repeat and never
// decrease, even if the wall clock does.
type Clock struct {
	wall store.Clock
	node uint64 // low eight bytes of the node's uuids

	mu    sync.Mutex
	ticks uint64 // last uuid time, 100 ns since 1582
	micro int64  // last timestamp or list time
}

// NewClock returns a clock over a wall clock.
func NewClock(wall store.Clock) *Clock {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	b[0] = b[0]&0x3f | 0x80
	b[2] |= 1 // a random node id is a multicast address
	return &Clock{wall: wall, node: binary.BigEndian.Uint64(b[:])}
}

// Now returns the time by the wall clock.
func (c *Clock) Now() time.Time { return c.wall.Now() }

// Micros returns the time in microseconds, greater than every one before.
func (c *Clock) Micros() int64 {
	now := c.wall.Now().UnixMicro()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.micro = max(now, c.micro+1)
	return c.micro
}

// timeUUID returns a new version 1 uuid, as now() does.
func (c *Clock) timeUUID() [16]byte {
	ticks := uint64(c.wall.Now().UnixNano()/100) + cqltype.Gregorian
	c.mu.Lock()
	ticks = max(ticks, c.ticks+1)
	c.ticks = ticks
	c.mu.Unlock()
	return cqltype.NewTimeUUID(ticks, c.node)
}

// maxListSeq limits the clock sequence that numbers list elements of one operation.
const maxListSeq = 0x3fff

// listSeq returns the low half of a list key. A timeuuid compares these bytes as signed
// ones, hence the flipped sign bits.
func (c *Clock) listSeq(seq uint64) uint64 {
	return (seq^0x8080)<<48 | c.node&0xffffffffffff
}

// AppendKeys returns the keys of n elements appended to a list.
func (c *Clock) AppendKeys(n int) [][16]byte {
	keys := make([][16]byte, n)
	var at int64
	for i := range keys {
		seq := uint64(i % (maxListSeq + 1))
		if seq == 0 {
			at = c.Micros()
		}
		keys[i] = cqltype.TimeUUIDAt(at, c.listSeq(seq))
	}
	return keys
}
