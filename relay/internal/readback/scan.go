package readback

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/rows"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/decompress"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/dedup"
)

// Event contains the fields of a record that read-back needs.
type Event struct {
	ID, Aggregate gocql.UUID
	Sequence      int64 // 0 without a number
	Ours          bool  // it is of this relay's source and table
	scanned       bool  // a backfill published it: the sweep reader will not return it
	owner         int   // index of the shard that it belongs to
	at            int64 // the record's time in milliseconds
	misdated      bool  // that is before its event's creation, by more than a clock is believed to be behind
	epoch         int64
	// Token is that of its aggregate, if the table is known.
	Token int64
}

// batchScanner decodes events from record batches in the broker's format. It reads only
// keys and headers, retains nothing of a record and allocates nothing for it: after a
// crash there may be a million records.
type batchScanner struct {
	source       string
	table        string            // with its keyspace; empty is any
	owns         []*cdclog.Portion // of one table; nil is all
	decompressor decompress.Decompressor
	base         int64 // the time of the batch, in milliseconds
	appended     bool  // base is the broker's append time, for all records
	clock        clockOffset
	from         int64 // batches before this offset show the clock alone
}

func newBatchScanner(source string) *batchScanner {
	return &batchScanner{source: source, decompressor: decompress.Decompressor{Limit: decompress.MinLimit}}
}

// newScanner returns a scanner of the records of a relay.
func (c *Config) newScanner() *batchScanner {
	s := newBatchScanner(c.Source)
	s.table, s.decompressor.Limit = c.Table, decompress.Limit(c.MaxRecordBytes)
	return s
}

// Offsets in a record batch of format 2, which is the only one with headers.
const (
	batchLengthAt     = 8
	batchMagicAt      = 16
	batchAttributesAt = 21
	batchLastDeltaAt  = 23
	batchFirstTimeAt  = 27
	batchLastTimeAt   = 35
	batchRecordsAt    = 57
	batchHeaderSize   = 61
)

// Attributes of a batch.
const (
	batchCodec   = 0x07
	batchAppend  = 0x08
	batchControl = 0x20
)

var errBatch = errors.New("a record batch cannot be read")

// scan calls each for every event in data and returns the offset after the last whole
// batch, or next if there is none. It skips records that are no events. It returns an
// error, after the other batches, if a batch cannot be decoded; what remains of data is
// skipped if its size is wrong.
func (s *batchScanner) scan(data []byte, next int64, each func(Event)) (_ int64, corrupt error) {
	for len(data) > batchMagicAt {
		size := int64(int32(binary.BigEndian.Uint32(data[batchLengthAt:]))) + batchLengthAt + 4
		if size > int64(len(data)) {
			break // a broker truncates the last batch at the size limit
		}
		if size <= batchMagicAt {
			return next, fmt.Errorf("%w: it has %d bytes", errBatch, size)
		}
		batch := data[:size]
		data = data[size:]
		base := int64(binary.BigEndian.Uint64(batch))
		if batch[batchMagicAt] < 2 {
			next = max(next, base+1)
			continue
		}
		if len(batch) < batchHeaderSize {
			return next, fmt.Errorf("%w: it has %d bytes", errBatch, len(batch))
		}
		end := base + int64(int32(binary.BigEndian.Uint32(batch[batchLastDeltaAt:]))) + 1
		take := each
		if end <= s.from {
			take = func(Event) {}
		}
		if err := s.batch(batch, take); err != nil && corrupt == nil {
			corrupt = fmt.Errorf("batch at offset %d: %w", base, err)
		}
		next = max(next, end)
	}
	return next, corrupt
}

func (s *batchScanner) batch(batch []byte, each func(Event)) error {
	attributes := binary.BigEndian.Uint16(batch[batchAttributesAt:])
	if attributes&batchControl != 0 {
		return nil
	}
	s.base, s.appended = int64(binary.BigEndian.Uint64(batch[batchFirstTimeAt:])), attributes&batchAppend != 0
	if s.appended {
		s.base = int64(binary.BigEndian.Uint64(batch[batchLastTimeAt:]))
	}
	records := batch[batchHeaderSize:]
	if codec := kgo.CompressionCodecType(attributes & batchCodec); codec != kgo.CodecNone {
		var err error
		if records, err = s.decompressor.Decompress(records, codec); err != nil {
			return fmt.Errorf("%w: %w", errBatch, err)
		}
	}
	for range int32(binary.BigEndian.Uint32(batch[batchRecordsAt:])) {
		size, n := binary.Varint(records)
		if n <= 0 || size < 0 || size > int64(len(records)-n) {
			return errBatch
		}
		e, ok, err := s.record(records[n : n+int(size)])
		if err != nil {
			return err
		}
		if ok {
			each(e)
		}
		records = records[n+int(size):]
	}
	return nil
}

// record decodes one record; ok reports that it is an event of this shard.
func (s *batchScanner) record(b []byte) (e Event, ok bool, err error) {
	r := fields{b: b}
	r.skip(1) // attributes
	after := r.varint()
	if e.at = s.base; !s.appended {
		e.at += after
	}
	r.varint() // offset
	r.bytes()  // key: the aggregate, which is in a header too
	r.bytes()  // value
	var found int
	var original, created []byte
	own, source, table := true, false, true
	for range r.varint() {
		key, value := r.bytes(), r.bytes()
		if r.bad {
			break
		}
		good := true
		switch string(key) {
		case outbox.HeaderID:
			e.ID, good = rows.IDOf(value), len(value) > 0
			found++
		case outbox.HeaderSubject:
			e.Aggregate, good = rows.IDOf(value), len(value) > 0
			e.Token, e.owner, own = s.whose(value)
			found++
		case outbox.HeaderAggregateType: // this package's own, unlike the others
			found++
		case outbox.HeaderSequence: // of a table with numbers
			e.Sequence, err = strconv.ParseInt(string(value), 10, 64)
			good = err == nil && e.Sequence > 0
		case outbox.HeaderEpoch:
			e.epoch, err = strconv.ParseInt(string(value), 10, 64)
			good = err == nil && e.epoch > 0
		case outbox.HeaderSource:
			source = string(value) == s.source
		case outbox.HeaderTable: // records of earlier versions lack it
			table = s.table == "" || string(value) == s.table
		case outbox.HeaderTime:
			created = value
		case outbox.HeaderBackfill:
			e.scanned = true
		case outbox.HeaderOriginalID:
			original = value
		}
		if !good {
			return e, false, nil // not an event of an outbox
		}
	}
	if r.bad {
		return e, false, errBatch
	}
	if len(original) > 0 {
		e.ID = rows.IDOf(original) // an edited dead letter: the original event counts as published
	}
	e.Ours = source && table
	if ok = found == 3 && own; ok && e.Ours {
		e.misdated = s.clock.observe(e.at, created) > maxBehind
	}
	return e, ok, nil
}

// whose returns the token of an aggregate, and the index of the shard that it belongs to.
func (s *batchScanner) whose(subject []byte) (token int64, owner int, ok bool) {
	if len(s.owns) == 0 || s.owns[0] == nil { // all of a table that is not known
		return 0, 0, true
	}
	token = rows.BytesToken(s.owns[0].Table, subject)
	for i, o := range s.owns {
		if o.HasToken(token) {
			return token, i, true
		}
	}
	return token, 0, false
}

// fields reads a record's fields. A field beyond the end makes it bad, and all after it empty.
type fields struct {
	b   []byte
	bad bool
}

func (f *fields) skip(n int) {
	if n < 0 || n > len(f.b) {
		f.b, f.bad = nil, true
		return
	}
	f.b = f.b[n:]
}

func (f *fields) varint() int64 {
	if len(f.b) > 0 && f.b[0] < 0x80 { // the common case: lengths of headers and their names
		v := f.b[0]
		f.b = f.b[1:]
		return int64(v>>1) ^ -int64(v&1)
	}
	v, n := binary.Varint(f.b)
	if n <= 0 {
		f.b, f.bad = nil, true
		return 0
	}
	f.b = f.b[n:]
	return v
}

// bytes returns a length-prefixed field; null is empty.
func (f *fields) bytes() []byte {
	n := f.varint()
	if n <= 0 {
		return nil
	}
	if n > int64(len(f.b)) {
		f.b, f.bad = nil, true
		return nil
	}
	out := f.b[:n]
	f.b = f.b[n:]
	return out
}

// addTo adds the event to found, and of one that a scan of the outbox table published its number
// alone: only the scan would submit it again, and it reads back separately. The numbers of earlier
// epochs than the current one may have been given again.
func (e *Event) addTo(found *dedup.Found, epoch int64) {
	sequence := e.Sequence
	if e.epoch < epoch {
		sequence = 0
	}
	if e.scanned {
		found.AddScanned(e.Aggregate, sequence)
	} else {
		found.Add(e.ID, e.Aggregate, sequence)
	}
}
