package bench

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"math"
	"strconv"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// perAggregate is the number of events of an aggregate.
const perAggregate = 4

// fillerBytes is the size of the random text from which payloads are cut: large enough
// that a producer's compression finds few repetitions.
const fillerBytes = 1 << 20

// Events are the numbered events of one run. An event's id contains its number, so a
// consumer can identify it without a table.
type Events struct {
	run    [6]byte
	typ    string
	per    int64 // events of an aggregate
	spread int64
	size   int
	filler []byte
}

// NewEvents numbers events of a type, which is also their topic. Two events of
// an aggregate are spread numbers apart. size is that of their payloads in bytes, 2 or
// more.
func NewEvents(typ string, spread, size int) *Events {
	e := &Events{typ: typ, per: perAggregate, spread: int64(max(1, spread)), size: size}
	_, _ = rand.Read(e.run[:]) // never fails
	raw := make([]byte, fillerBytes/2)
	_, _ = rand.Read(raw)
	e.filler = hex.AppendEncode(nil, raw)
	return e
}

// NewMessages numbers events that are each an aggregate of its own.
func NewMessages(typ string, size int) *Events {
	e := NewEvents(typ, 1, size)
	e.per = 1
	return e
}

// NewAggregate numbers events that are all of one aggregate.
func NewAggregate(typ string, size int) *Events {
	e := NewEvents(typ, 1, size)
	e.per = math.MaxInt32
	return e
}

// Type returns the events' type.
func (e *Events) Type() string { return e.typ }

// place returns the aggregate's number and the event's sequence number in it.
func (e *Events) place(i int64) (aggregate, seq int64) {
	block := i / (e.per * e.spread)
	return block*e.spread + i%e.spread, i/e.spread%e.per + 1
}

// aggregate returns the id of the aggregate of event i.
func (e *Events) aggregate(i int64) gocql.UUID {
	aggregate, _ := e.place(i)
	return e.id(0x81, aggregate)
}

// number returns the number of an aggregate's event.
func (e *Events) number(aggregate, seq int64) int64 {
	return (aggregate/e.spread*e.per+seq-1)*e.spread + aggregate%e.spread
}

// blocks returns the number of blocks that the first n events are in. A block contains
// all events of spread aggregates.
func (e *Events) blocks(n int64) int64 { return (n + e.per*e.spread - 1) / (e.per * e.spread) }

// Fresh returns the number of an event whose aggregate has none of the first n.
func (e *Events) Fresh(n int64) int64 { return e.blocks(n) * e.per * e.spread }

// At returns event number i, from 0.
func (e *Events) At(i int64) outbox.Event {
	_, seq := e.place(i)
	return outbox.Event{
		ID: outbox.IDFromUUID(e.id(0x80, i)), AggregateID: outbox.IDFromUUID(e.aggregate(i)), Sequence: seq, AggregateType: "bench", Type: e.typ,
		Payload: e.payload(i), CreatedAt: time.Now().UTC(),
		Headers: map[string]string{outbox.HeaderTraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
	}
}

// Number returns the number in an event's id, false if the id is of another run.
func (e *Events) Number(id gocql.UUID) (int64, bool) {
	if [6]byte(id[:6]) != e.run || id[8] != 0x80 {
		return 0, false
	}
	return int64(binary.BigEndian.Uint64(id[8:]) & (1<<56 - 1)), true
}

func (e *Events) id(kind byte, n int64) gocql.UUID {
	var id gocql.UUID
	copy(id[:], e.run[:])
	id[6] = 0x80 // version 8: a custom layout
	binary.BigEndian.PutUint64(id[8:], uint64(n))
	id[8] = kind
	return id
}

// payload returns an object with the number and some text, or the text alone where the
// object would be too large.
func (e *Events) payload(i int64) []byte {
	b := make([]byte, 0, e.size)
	b = append(b, `{"number":`...)
	b = strconv.AppendInt(b, i, 10)
	b = append(b, `,"text":"`...)
	end := `"}`
	if len(b)+len(end) > e.size {
		b, end = append(b[:0], '"'), `"`
	}
	n := max(0, min(e.size-len(b)-len(end), len(e.filler)))
	from := int(uint64(i) * 7919 % uint64(len(e.filler)-n+1))
	b = append(b, e.filler[from:from+n]...)
	return append(b, end...)
}
