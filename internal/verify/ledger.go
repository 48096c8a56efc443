package verify

import (
	"cmp"
	"fmt"
	"iter"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/verify/internal/compact"
	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// Row contains the columns of an outbox row that the ledger needs. Times are microseconds
// since 1970.
type Row struct {
	Event, Aggregate outbox.ID
	Seq              int64
	// Topic is the topic that must contain the event.
	Topic string
	// Written is the write's timestamp.
	Written int64
}

// Record contains the fields of a record that the ledger needs. Times are microseconds
// since 1970.
type Record struct {
	Event, Aggregate outbox.ID
	Seq              int64
	Topic            string
	Partition        int32
	Offset           int64
	// At is the record's own timestamp. Appended reports that it is that of the broker.
	At       int64
	Appended bool `json:",omitempty"`
	// Seen is when the consumer received it.
	Seen int64
	// Created is the event's own time if it is more than clockSkew before At; else 0.
	Created int64 `json:",omitempty"`
	// Epoch is the event's epoch.
	Epoch int64 `json:",omitempty"`
}

// Unreadable is a row that is not an event.
type Unreadable struct {
	Aggregate outbox.ID
	Seq       int64
	Problem   string
	// Events are the possible ids of its dead letter.
	Events []gocql.UUID
}

// Ledger records events: 64 bytes for each and 8 for its index, another 24 for each
// aggregate, and about 100 for each id that is no UUID. A million events of a million aggregates use about 100 MB, whatever their
// payloads.
//
// It is safe for concurrent use. Rows and records that are added twice count once.
type Ledger struct {
	mu         sync.Mutex
	events     compact.Arena[entry]
	byID       compact.Index
	aggregates compact.Arena[gocql.UUID]
	byKey      compact.Index
	texts      map[gocql.UUID]string // of the ids that are no UUIDs

	topics     []topic
	partitions []partition
	topicOf    map[string]uint16
	partOf     map[partition]uint16
	appended   map[uint16]bool // partitions with records that their broker dated

	created     map[uint32]int64 // times of events that were published much later
	deadLetters map[gocql.UUID]DeadLetter
	repeats     []repeat
	repeated    map[repeat]bool
	unreadable  map[rowKey]Unreadable
	foreign     int64
	totals      Totals
}

// entry is an event. It has 64 bytes, a cache line.
type entry struct {
	id        gocql.UUID
	seq       int64
	written   int64 // 0 without a row
	offset    int64 // of the first record
	at, seen  int64
	aggregate uint32
	partition uint16 // none without a record
	topic     uint16 // none without a row
}

// none means no topic or no partition.
const none = math.MaxUint16

type topic struct {
	name string
	// horizon is the earliest time of events that the topic still contains; older ones
	// are deleted.
	horizon int64
}

// partition is a partition of a topic, as far as it has records of an epoch.
type partition struct {
	topic  uint16
	number int32
	epoch  int64
}

// repeat is another record of a known event.
type repeat struct {
	event     uint32
	partition uint16
	offset    int64
}

type rowKey struct {
	aggregate outbox.ID
	seq       int64
}

// Totals are the totals of a ledger.
type Totals struct {
	// Rows are the events with a row, Records those with a record.
	Rows, Records int64
	// Both are the events with a row and a record.
	Both int64
}

// NewLedger returns an empty ledger.
func NewLedger() *Ledger {
	return &Ledger{
		topicOf: make(map[string]uint16), partOf: make(map[partition]uint16), created: make(map[uint32]int64),
		appended: make(map[uint16]bool), repeated: make(map[repeat]bool), unreadable: make(map[rowKey]Unreadable),
		texts: make(map[gocql.UUID]string),
	}
}

// Totals returns the totals.
func (l *Ledger) Totals() Totals {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.totals
}

// AddRows adds rows of the outbox.
func (l *Ledger) AddRows(rows ...Row) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range rows {
		r := &rows[i]
		t, err := l.topic(r.Topic)
		if err != nil {
			return err
		}
		_, e, err := l.entry(&r.Event, &r.Aggregate, r.Seq)
		if err != nil {
			return err
		}
		if other := l.aggregates.At(e.aggregate); *other != r.Aggregate.UUID() || e.seq > 0 && e.seq != r.Seq {
			l.unreadable[rowKey{r.Aggregate, r.Seq}] = Unreadable{Aggregate: r.Aggregate, Seq: r.Seq, Problem: idTwice(r.Event, l.id(other), e.seq)}
			continue
		}
		if e.written == 0 {
			l.totals.Rows++
			if e.partition != none {
				l.totals.Both++
			}
		}
		// 0 means no row; no write is that old.
		e.written, e.topic, e.seq = max(1, r.Written), t, r.Seq
	}
	return nil
}

// idTwice is the problem of a row whose id is that of another event. A shard of the relay publishes one
// of them; if they are of two shards, both are published.
func idTwice(event, other outbox.ID, seq int64) string {
	return fmt.Sprintf("its event_id %s is that of event %d of aggregate %s, too; a shard publishes one of them", event, seq, other)
}

// AddUnreadable adds rows that are not events.
func (l *Ledger) AddUnreadable(rows ...Unreadable) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range rows {
		l.unreadable[rowKey{r.Aggregate, r.Seq}] = r
	}
}

// AddRecords adds records. Records of one partition must be added in the order of their
// offsets.
func (l *Ledger) AddRecords(records ...Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range records {
		if err := l.addRecord(&records[i]); err != nil {
			return err
		}
	}
	return nil
}

func (l *Ledger) addRecord(r *Record) error {
	p, err := l.partition(r.Topic, r.Partition, r.Epoch)
	if err != nil {
		return err
	}
	n, e, err := l.entry(&r.Event, &r.Aggregate, r.Seq)
	if err != nil {
		return err
	}
	if r.Created != 0 {
		l.created[n] = r.Created
	}
	if r.Appended {
		l.appended[p] = true
	}
	switch {
	case e.partition == none:
		l.totals.Records++
		if e.written != 0 {
			l.totals.Both++
		}
		e.partition, e.offset, e.at, e.seen = p, r.Offset, r.At, r.Seen
		return nil
	case e.partition == p && e.offset == r.Offset:
		return nil // the same record
	}
	again := repeat{n, p, r.Offset}
	if !l.samePartition(p, e.partition) && r.At < e.at {
		// Partitions are read concurrently: the record that is read first is not always
		// the earliest.
		again = repeat{n, e.partition, e.offset}
		e.partition, e.offset, e.at, e.seen = p, r.Offset, r.At, r.Seen
	}
	if !l.repeated[again] {
		l.repeated[again] = true
		l.repeats = append(l.repeats, again)
	}
	return nil
}

// addBatch adds the events of records and counts the others.
func (l *Ledger) addBatch(b *Batch) error {
	l.AddForeign(b.Foreign)
	return l.AddRecords(b.Records...)
}

// AddForeign counts records that are not events.
func (l *Ledger) AddForeign(n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.foreign += n
}

// Cut records that the topic may have deleted events written before t: the absence of
// such an event proves nothing.
func (l *Ledger) Cut(name string, t time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, err := l.topic(name)
	if err == nil {
		l.topics[n].horizon = max(l.topics[n].horizon, t.UnixMicro())
	}
	return err
}

// Topics returns the names of the topics that must contain the events of the rows.
func (l *Ledger) Topics() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	names := make([]string, 0, len(l.topics))
	for _, t := range l.topics {
		names = append(names, t.name)
	}
	return names
}

// Rows returns the events that have a row, by aggregate and sequence. The ledger must not
// be called during the iteration.
func (l *Ledger) Rows() iter.Seq[Row] {
	return func(yield func(Row) bool) {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, n := range l.sortedEvents() {
			e := l.events.At(n)
			if e.written == 0 {
				continue
			}
			if !yield(Row{
				Event: l.id(&e.id), Aggregate: l.id(l.aggregates.At(e.aggregate)), Seq: e.seq,
				Topic: l.topics[e.topic].name, Written: e.written,
			}) {
				return
			}
		}
	}
}

// Latencies returns, for each event written at or after since that was read from a topic,
// the time from its write to the consumer.
func (l *Ledger) Latencies(since time.Time) iter.Seq[time.Duration] {
	return func(yield func(time.Duration) bool) {
		l.mu.Lock()
		defer l.mu.Unlock()
		from := since.UnixMicro()
		for _, e := range l.events.All() {
			if e.written == 0 || e.partition == none || e.written < from {
				continue
			}
			if !yield(time.Duration(e.seen-e.written) * time.Microsecond) {
				return
			}
		}
	}
}

// entry returns the entry of an event, which it creates if necessary. The lock must be
// held.
func (l *Ledger) entry(event, of *outbox.ID, seq int64) (uint32, *entry, error) {
	id, aggregate := l.key(event), l.key(of)
	if n, ok := l.byID.Find(id, l.eventID); ok {
		return n, l.events.At(n), nil
	}
	if l.events.Len() == math.MaxUint32-1 {
		return 0, nil, fmt.Errorf("more than %d events; use a shorter period", l.events.Len())
	}
	n, e := l.events.Add()
	e.id, e.seq, e.partition, e.topic = *id, seq, none, none
	l.byID.Put(n, l.eventID)
	a, ok := l.byKey.Find(aggregate, l.aggregates.At)
	if !ok {
		var key *gocql.UUID
		a, key = l.aggregates.Add()
		*key = *aggregate
		l.byKey.Put(a, l.aggregates.At)
	}
	e.aggregate = a
	return n, e, nil
}

// key returns the UUID of an id, by which the ledger has it. The lock must be held.
func (l *Ledger) key(id *outbox.ID) *gocql.UUID {
	u := id.UUID()
	if !id.IsUUID() && !id.IsZero() {
		if _, ok := l.texts[u]; !ok {
			l.texts[u] = id.String()
		}
	}
	return &u
}

// id is the reverse of key.
func (l *Ledger) id(key *gocql.UUID) outbox.ID {
	if text, ok := l.texts[*key]; ok {
		return outbox.IDFromText(text)
	}
	return outbox.IDFromUUID(*key)
}

func (l *Ledger) eventID(n uint32) *gocql.UUID { return &l.events.At(n).id }

func (l *Ledger) topic(name string) (uint16, error) {
	if n, ok := l.topicOf[name]; ok {
		return n, nil
	}
	if len(l.topics) == none {
		return 0, fmt.Errorf("more than %d topics", none)
	}
	n := uint16(len(l.topics))
	l.topics = append(l.topics, topic{name: name})
	l.topicOf[name] = n
	return n, nil
}

func (l *Ledger) partition(name string, number int32, epoch int64) (uint16, error) {
	t, err := l.topic(name)
	if err != nil {
		return 0, err
	}
	p := partition{t, number, epoch}
	if n, ok := l.partOf[p]; ok {
		return n, nil
	}
	if len(l.partitions) == none {
		return 0, fmt.Errorf("more than %d partitions of epochs", none)
	}
	n := uint16(len(l.partitions))
	l.partitions = append(l.partitions, p)
	l.partOf[p] = n
	return n, nil
}

// samePartition reports whether a and b are one partition, whatever their epochs.
func (l *Ledger) samePartition(a, b uint16) bool {
	x, y := l.partitions[a], l.partitions[b]
	return x.topic == y.topic && x.number == y.number
}

// Last returns the time of the last write of a row, zero without any, and the latest epoch of a
// record.
func (l *Ledger) Last() (written time.Time, epoch int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := int64(0)
	for _, e := range l.events.All() {
		last = max(last, e.written)
	}
	if last > 0 {
		written = time.UnixMicro(last)
	}
	for _, p := range l.partitions {
		epoch = max(epoch, p.epoch)
	}
	return written, epoch
}

// sortedEvents returns the events by aggregate and sequence. The lock must be held.
func (l *Ledger) sortedEvents() []uint32 {
	order := make([]uint32, l.events.Len())
	for i := range order {
		order[i] = uint32(i)
	}
	slices.SortFunc(order, func(a, b uint32) int {
		x, y := l.events.At(a), l.events.At(b)
		return cmp.Or(cmp.Compare(x.aggregate, y.aggregate), cmp.Compare(x.seq, y.seq), cmp.Compare(a, b))
	})
	return order
}
