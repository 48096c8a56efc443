package outbox

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Record headers of an event: CloudEvents 1.0, Kafka protocol binding, binary
// content mode. ce_aggregatesequence and ce_aggregatetype are extensions of this project:
// the documented extension "sequence" of CloudEvents 1.0.2 orders the events of a source,
// as strings, while these numbers count the events of one aggregate.
const (
	HeaderID            = "ce_id"
	HeaderSource        = "ce_source"
	HeaderSpecVersion   = "ce_specversion"
	HeaderType          = "ce_type"
	HeaderSubject       = "ce_subject"
	HeaderTime          = "ce_time"
	HeaderSequence      = "ce_aggregatesequence" // decimal, from 1
	HeaderAggregateType = "ce_aggregatetype"
	// HeaderEpoch is the epoch of an event, decimal: the numbers of aggregates may have begun again
	// since the epoch before, because the database was restored. It is absent in epoch 0.
	HeaderEpoch = "ce_epoch"

	// HeaderTable is the keyspace and name of the outbox table, as in "shop.outbox_messages".
	// With HeaderSource it tells the records of a relay from the records of others in a topic.
	HeaderTable = "ce_table"
	// Facts of the delivery, which differ between the records of one event and are therefore no
	// CloudEvents attributes.

	// HeaderBackfill is 1 on events that the relay read by a scan of the outbox
	// table because the CDC log had expired.
	HeaderBackfill = "outbox-backfill"
	// HeaderCaptured is the reader of the relay that found the event: tail, sweep, key (a lookup
	// in the outbox table) or backfill.
	HeaderCaptured = "outbox-captured"
	// HeaderAttempts is the number of the attempt that published this record,
	// including those before a dead letter; absent for the first. Retries inside
	// the Kafka client do not count: it cannot change a record.
	HeaderAttempts = "outbox-attempts"
	// HeaderBreaker is the state of the relay's circuit breaker at publication,
	// unless it was closed: half-open, since an open breaker publishes nothing.
	HeaderBreaker = "outbox-breaker"
	// HeaderOriginalID is set on events that an operator edited as dead letters:
	// the id of the event in the outbox that this one replaces.
	HeaderOriginalID = "ce_originalid"
	// HeaderPartitionKey is the record key of an event that shall not have its
	// aggregate's id: CloudEvents' Partitioning extension. An event brings it in
	// Headers. All events of an aggregate must have the same, or their order is lost.
	HeaderPartitionKey = "ce_partitionkey"
	// HeaderTopic is the topic of an event whose table has a column for it, instead of the topic
	// of the relay's settings: Mapping.RecordHeaders names the column. The relay removes it from
	// the headers of rows, and Append refuses it.
	HeaderTopic = "outbox-topic"
	// HeaderDataSchema is the URL of the schema of the payload. An event brings it in Headers.
	HeaderDataSchema  = "ce_dataschema"
	HeaderContentType = "content-type"
	// HeaderTraceParent and HeaderTraceState are W3C trace context, and
	// HeaderRequestID is the id of the HTTP request that made the event. An event
	// brings them in Headers.
	HeaderTraceParent = "traceparent"
	HeaderTraceState  = "tracestate"
	HeaderRequestID   = "x-request-id"

	// HeaderPriority is the priority of a message, for consumers, and of its dead letter: an
	// integer. An event brings it in Headers; the relay publishes in order of the log.
	HeaderPriority = "outbox-priority"
)

// SpecVersion is the CloudEvents version of the headers.
const SpecVersion = "1.0"

// timeFormat is RFC 3339 with the milliseconds that CreatedAt has.
const timeFormat = "2006-01-02T15:04:05.000Z07:00"

// isReserved reports whether a header key has the form of the keys that are set from the
// fields of the event.
func isReserved(key string) bool {
	return len(key) >= 3 && strings.EqualFold(key[:3], "ce_") ||
		slices.ContainsFunc(reservedHeaders, func(name string) bool { return strings.EqualFold(key, name) })
}

// reservedHeaders are the headers without the prefix of CloudEvents that an event cannot bring.
var reservedHeaders = []string{HeaderContentType, HeaderBackfill, HeaderCaptured, HeaderAttempts, HeaderBreaker}

// eventHeader is rows.EventHeader.
func eventHeader(key string) bool {
	return key == HeaderPartitionKey || key == HeaderDataRef || key == HeaderDataSchema || !isReserved(key)
}

// Header is one record header. kgo.RecordHeader has the same underlying type,
// so AppendHeaders and FromRecord work on it directly.
type Header struct {
	Key   string
	Value []byte
}

// AnyHeader is Header and every type made like it.
type AnyHeader interface {
	~struct {
		Key   string
		Value []byte
	}
}

// Key returns the record key of e: the aggregate id in its text form, so that
// all events of an aggregate reach one partition in order, or
// HeaderPartitionKey.
func (e *Event) Key() []byte {
	if e == nil {
		return nil
	}
	return e.AppendKey(make([]byte, 0, e.AggregateID.size()))
}

// AppendKey appends Key to dst. It allocates nothing if dst has room for it. A nil e has no key.
func (e *Event) AppendKey(dst []byte) []byte {
	if e == nil {
		return dst
	}
	if key := e.Headers[HeaderPartitionKey]; key != "" {
		return append(dst, key...)
	}
	return e.AggregateID.append(dst)
}

// AppendHeaders appends the record headers of e to dst: the CloudEvents
// attributes in a fixed order, then e.Headers by key. source becomes ce_source,
// a URI reference of the publisher, such as "/outbox/orders". An event without
// a sequence number has no ce_aggregatesequence. It omits e.Headers that Validate
// rejects because the relay sets them: an unvalidated row may have some, and a
// second ce_id would make consumers mistake the event for another one. A nil e has no headers.
func AppendHeaders[H AnyHeader](dst []H, e *Event, source string) []H {
	dst, _ = AppendHeadersTo(dst, nil, e, source)
	return dst
}

// AppendHeadersTo is AppendHeaders, and appends the values to buf: the headers share its memory. A
// caller that has published a record can pass the same headers[:0] and buf[:0] for the next one,
// which then allocates nothing if they have room.
func AppendHeadersTo[H AnyHeader](dst []H, buf []byte, e *Event, source string) (headers []H, values []byte) {
	if e == nil {
		return dst, buf
	}
	contentType := e.ContentType
	if contentType == "" {
		contentType = DefaultContentType
	}
	n := e.ID.size() + e.AggregateID.size() + len(timeFormat) + 20 + len(source) + len(SpecVersion) + len(e.Type) + len(e.AggregateType) + len(contentType)
	for _, v := range e.Headers {
		n += len(v)
	}
	w := headerWriter[H]{dst: slices.Grow(dst, 11+len(e.Headers)), buf: slices.Grow(buf, n), from: len(buf)}
	w.buf = e.ID.append(w.buf)
	w.end(HeaderID)
	w.text(HeaderSource, source)
	w.text(HeaderSpecVersion, SpecVersion)
	w.text(HeaderType, e.Type)
	w.buf = e.AggregateID.append(w.buf)
	w.end(HeaderSubject)
	w.buf = appendTime(w.buf, e.CreatedAt.UTC())
	w.end(HeaderTime)
	if e.Sequence != 0 {
		w.buf = strconv.AppendInt(w.buf, e.Sequence, 10)
		w.end(HeaderSequence)
	}
	w.text(HeaderAggregateType, e.AggregateType)
	w.text(HeaderContentType, contentType)
	if len(e.Headers) <= 1 { // traceparent alone, the usual case, needs no sorting
		for k, v := range e.Headers {
			w.own(k, v)
		}
		return w.dst, w.buf
	}
	for _, k := range slices.Sorted(maps.Keys(e.Headers)) {
		w.own(k, e.Headers[k])
	}
	return w.dst, w.buf
}

// appendTime appends a time in UTC in timeFormat. The standard library formats RFC 3339 without a
// fraction in a third of the time.
func appendTime(dst []byte, t time.Time) []byte {
	dst = t.AppendFormat(dst, time.RFC3339)
	ms := t.Nanosecond() / int(time.Millisecond)
	return append(dst[:len(dst)-1], '.', byte('0'+ms/100), byte('0'+ms/10%10), byte('0'+ms%10), 'Z')
}

// headerWriter cuts all values from one buffer, one allocation for a record.
type headerWriter[H AnyHeader] struct {
	dst  []H
	buf  []byte
	from int
}

// end sets the bytes added to buf since the last header as the value of key.
func (w *headerWriter[H]) end(key string) {
	value := w.buf[w.from:len(w.buf):len(w.buf)]
	w.from = len(w.buf)
	w.dst = append(w.dst, H(Header{key, value}))
}

func (w *headerWriter[H]) text(key, value string) {
	w.buf = append(w.buf, value...)
	w.end(key)
}

// own adds a header of the event's own.
func (w *headerWriter[H]) own(key, value string) {
	if eventHeader(key) {
		w.text(key, value)
	}
}

// ErrNotAnEvent is wrapped by the errors of FromRecord: the record was not
// written by this package.
var ErrNotAnEvent = errors.New("outbox: record is not an outbox event")

// Record is an event as its record in a topic has it.
type Record struct {
	Event
	// Source is ce_source. The id of the event is unique within it.
	Source string
	// OriginalID is the id of the event in the outbox that this one replaces: an operator
	// edited it as a dead letter. It is zero for every other event.
	OriginalID ID
	// Epoch is ce_epoch. A consumer that remembers Sequence compares Epoch before it: of two events
	// of an aggregate the one with the larger Epoch is later, whatever their numbers. It grows
	// whenever outbox schema new-epoch is run, which is after each restore of the database, and is
	// 0 before the first time.
	Epoch int64
}

// FromRecord is the reverse of AppendHeaders and Key, with the record's value
// as the payload. DeliverAt is not published and
// stays zero. The headers about the publication (HeaderCaptured,
// HeaderAttempts, HeaderBreaker, HeaderBackfill) are not part of the event. The
// event shares value with the record.
//
// Errors wrap ErrNotAnEvent and name the header.
func FromRecord[H AnyHeader](key, value []byte, headers []H) (Record, error) {
	var r Record
	var seen attributes
	r.Payload = value
	for i := range headers {
		h := Header(headers[i])
		if err := r.setHeader(h.Key, h.Value, &seen); err != nil {
			return Record{}, err
		}
	}
	for i, name := range requiredAttributes {
		if seen&(1<<i) == 0 {
			return Record{}, fmt.Errorf("%w: header %s is missing", ErrNotAnEvent, name)
		}
	}
	if want := r.Key(); !bytes.Equal(key, want) {
		of := HeaderSubject
		if r.Headers[HeaderPartitionKey] != "" {
			of = HeaderPartitionKey
		}
		return Record{}, fmt.Errorf("%w: key %q is not header %s %q", ErrNotAnEvent, clip(key), of, clip(want))
	}
	if r.ContentType == "" {
		r.ContentType = DefaultContentType
	}
	return r, nil
}

// attributes is the set of required attributes found, by index.
type attributes uint8

var requiredAttributes = [...]string{
	HeaderID, HeaderSource, HeaderSpecVersion, HeaderType, HeaderSubject, HeaderTime, HeaderAggregateType,
}

func (r *Record) setHeader(key string, value []byte, seen *attributes) error {
	i := slices.Index(requiredAttributes[:], key)
	if i >= 0 {
		if *seen&(1<<i) != 0 {
			return fmt.Errorf("%w: header %s is repeated", ErrNotAnEvent, key)
		}
		if len(value) == 0 {
			return fmt.Errorf("%w: header %s is empty", ErrNotAnEvent, key)
		}
		*seen |= 1 << i
	}
	var err error
	switch key {
	case HeaderID:
		r.ID = IDFromText(string(value))
	case HeaderSource:
		r.Source = string(value)
	case HeaderSpecVersion:
		if string(value) != SpecVersion {
			err = errors.New("want " + SpecVersion)
		}
	case HeaderType:
		r.Type = string(value)
	case HeaderSubject:
		r.AggregateID = IDFromText(string(value))
	case HeaderTime:
		r.CreatedAt, err = time.Parse(time.RFC3339Nano, string(value))
		r.CreatedAt = r.CreatedAt.UTC()
	case HeaderSequence:
		if r.Sequence != 0 {
			err = errors.New("is repeated")
		} else {
			r.Sequence, err = positive(value)
		}
	case HeaderEpoch:
		if r.Epoch != 0 {
			err = errors.New("is repeated")
		} else {
			r.Epoch, err = positive(value)
		}
	case HeaderAggregateType:
		r.AggregateType = string(value)
	case HeaderOriginalID:
		r.OriginalID = IDFromText(string(value))
	case HeaderContentType:
		r.ContentType = string(value)
	default:
		if !eventHeader(key) {
			return nil // of the way to the topic, or of a later version
		}
		if r.Headers == nil {
			r.Headers = make(map[string]string)
		}
		r.Headers[key] = string(value)
	}
	if err != nil {
		return fmt.Errorf("%w: header %s %q: %w", ErrNotAnEvent, key, clip(value), err)
	}
	return nil
}

// positive returns a decimal number from 1 on.
func positive(value []byte) (int64, error) {
	n, err := strconv.ParseInt(string(value), 10, 64)
	if err == nil && n < 1 {
		err = errors.New("must be 1 or more")
	}
	return n, err
}

// clip bounds the length of foreign text in errors.
func clip(b []byte) []byte { return b[:min(len(b), 64)] }
