package deadletter

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/kafkarecord"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/rows"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/internal/position"
)

// namespace is that of the ids of dead letters of subscriptions.
var namespace = gocql.UUID{0x6f, 0x1d, 0x5b, 0x0a, 0x3c, 0x5e, 0x4c, 0x57, 0x9a, 0x2e, 0x5d, 0x3f, 0x10, 0x77, 0xb2, 0x41}

// Keys of DeadLetter.Metadata.
const (
	metaIncarnation = "incarnation" // of the subscription
	metaTopic       = "topic"
	metaTopicID     = "topic_id"
	metaPartition   = "partition"
	metaGeneration  = "generation"
	metaOffset      = "offset"
	metaRedelivery  = "redelivery" // its number
	metaEventID     = "event_id"
	metaSubject     = "subject" // the aggregate id, if it is not that of the dead letter
	metaTime        = "time"
	metaSource      = "source"
	metaKey         = "record_key"
	metaRawKey      = "record_key_base64" // instead, if it is not UTF-8
	metaHost        = "host"
	metaFirst       = "first_delivered"
	metaHeader      = "header."        // prefix of the names of headers that an event may not have
	metaHeaders     = "record_headers" // of which texts are not exact, as JSON
)

// Message is a message whose delivery is given up.
type Message struct {
	// Table is the table of the dead letter; Incarnation that of the subscription.
	Table, Incarnation string
	Record             *kgo.Record
	// Origin is that of the position of the partition.
	Origin position.Origin
	// Collisions is the number of other messages whose dead letters have the ids before:
	// only after the database and the committed offsets went back together.
	Collisions int
	// Redelivery is the number of the redelivery of the message; 0 for a message that was given up.
	Redelivery int
	// Attempts is the number of deliveries since FirstAt; At is the time of the dead letter,
	// which lists are in the order of.
	Attempts    int
	FirstAt, At time.Time
	// Name is a tag of the dead letter; empty for none.
	Name string
	// Class and Error are the reason, and Details the details from the consumer, such as a stack.
	Class, Error, Details string
	// Host is the instance.
	Host string
}

// New returns the dead letter of a message. Its id is derived from its place: a repetition
// after a crash is the same dead letter, and the same event in another subscription, topic or
// generation, or at another offset, is another one. It is suspended: only an operator, or a job
// of one, replays it.
func New(m *Message) *dlq.DeadLetter {
	r := m.Record
	e := kafkarecord.Decode(r)
	place := Place{m.Incarnation, r.Topic, m.Origin.TopicID, r.Partition, m.Origin.Generation, r.Offset}
	l := &dlq.DeadLetter{
		Table: m.Table, EventID: place.ID(m.Collisions, m.Redelivery),
		AggregateID: cmp.Or(e.AggregateID, e.Key), AggregateType: e.AggregateType, EventType: e.Type, Sequence: e.Sequence,
		Payload: r.Value, ContentType: e.ContentType, CreatedAt: e.At, Topic: r.Topic, Status: dlq.Suspended, Attempts: m.Attempts,
		FirstFailedAt: m.At, LastFailedAt: m.At, Strategy: dlq.StrategyManual, Priority: dlq.ParsePriority(e.Headers[outbox.HeaderPriority]), ErrorClass: m.Class, ErrorText: m.Error, ErrorChain: Lines(m.Details),
		Metadata: place.metadata(),
	}
	l.Metadata[metaHost] = m.Host
	if m.Redelivery > 0 {
		l.Metadata[metaRedelivery] = strconv.Itoa(m.Redelivery)
	}
	if m.Name != "" {
		l.Tags = []string{m.Name}
	}
	if !e.At.IsZero() {
		l.WrittenAt = e.At.UnixMicro()
	}
	if t, err := time.Parse(time.RFC3339Nano, e.Time); err == nil {
		l.CreatedAt = t
	}
	note := func(key, value string) {
		if value != "" {
			l.Metadata[key] = value
		}
	}
	note(metaEventID, e.ID)
	note(metaTime, e.Time)
	note(metaSource, e.Source)
	if !m.FirstAt.IsZero() {
		l.Metadata[metaFirst] = m.FirstAt.UTC().Format(time.RFC3339Nano)
	}
	if e.KeyBase64 == nil {
		note(metaKey, e.Key)
	} else {
		l.Metadata[metaRawKey] = base64.StdEncoding.EncodeToString(e.KeyBase64)
	}
	// Key columns and keys of maps are limited to 64 KiB. A text that is cut is complete in the headers.
	clipped := clip(&l.AggregateID)
	clipped = clip(&l.AggregateType) || clipped
	clipped = clip(&l.EventType) || clipped
	if l.AggregateID != e.AggregateID {
		l.Metadata[metaSubject] = e.AggregateID
	}
	for name := range e.Headers {
		if len(name) > maxKeyColumn {
			delete(e.Headers, name)
			clipped = true
		}
	}
	if clipped && e.RecordHeaders == nil {
		for _, h := range r.Headers {
			e.RecordHeaders = append(e.RecordHeaders, kafkarecord.Header{Name: h.Key, Value: h.Value})
		}
	}
	if e.RecordHeaders != nil {
		if b, err := json.Marshal(e.RecordHeaders); err == nil { // texts and bytes are always marshalled
			l.Metadata[metaHeaders] = string(b)
		}
	}
	for name, value := range e.Headers {
		if rows.EventHeader(name) { // which operators edit
			if l.Headers == nil {
				l.Headers = make(map[string]string)
			}
			l.Headers[name] = value
		} else {
			l.Metadata[metaHeader+name] = value
		}
	}
	return l
}

// Lines returns the lines of the details of a failure, for the error chain of a dead letter.
func Lines(details string) (out []string) {
	for line := range strings.Lines(details) {
		if line = strings.TrimRight(line, "\r\n"); line != "" {
			out = append(out, line)
		}
	}
	return out
}

// maxKeyColumn bounds the values of key columns, in bytes.
const maxKeyColumn = 1000

// clip cuts a long value, and reports whether it did. Different values stay different.
func clip(s *string) bool {
	if len(*s) <= maxKeyColumn {
		return false
	}
	sum := sha256.Sum256([]byte(*s))
	*s = strings.ToValidUTF8((*s)[:maxKeyColumn-40], "") + "… " + hex.EncodeToString(sum[:16])
	return true
}

// Place identifies a message of a subscription.
type Place struct {
	// Incarnation is that of the subscription.
	Incarnation string
	Topic       string
	TopicID     [16]byte
	Partition   int32
	// Generation is that of position.Origin; 0 if it is unknown.
	Generation int64
	Offset     int64
}

// ID returns the id of the dead letter of the message, after a number of collisions, or of its
// redelivery with a number above 0.
func (p *Place) ID(collisions, redelivery int) gocql.UUID {
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	id := outbox.NameID(namespace, p.Incarnation, p.Topic, gocql.UUID(p.TopicID).String(), number(int64(p.Partition)), number(p.Generation), number(p.Offset), number(int64(collisions))).UUID()
	if redelivery > 0 {
		return outbox.NameID(id, number(int64(redelivery))).UUID()
	}
	return id
}

func (p *Place) metadata() map[string]string {
	return map[string]string{
		metaIncarnation: p.Incarnation, metaTopic: p.Topic, metaTopicID: gocql.UUID(p.TopicID).String(), metaPartition: strconv.Itoa(int(p.Partition)),
		metaGeneration: strconv.FormatInt(p.Generation, 10), metaOffset: strconv.FormatInt(p.Offset, 10),
	}
}

// ReadPlace returns the place of the message of a dead letter.
func ReadPlace(l *dlq.DeadLetter) (p Place, err error) {
	m := l.Metadata
	id, err1 := gocql.ParseUUID(m[metaTopicID])
	number, err2 := strconv.ParseInt(m[metaPartition], 10, 32)
	generation, err3 := strconv.ParseInt(m[metaGeneration], 10, 64)
	offset, err4 := strconv.ParseInt(m[metaOffset], 10, 64)
	p = Place{m[metaIncarnation], m[metaTopic], id, int32(number), generation, offset}
	if err = errors.Join(err1, err2, err3, err4); err != nil || p.Topic == "" || p.Incarnation == "" {
		return Place{}, fmt.Errorf("dead letter %s: its metadata has no place in a topic", l.EventID)
	}
	return p, nil
}

// Record returns the record that a replay of the dead letter delivers, which must come from
// Read or Claim: the original event or, after an edit, the edited one with its new id and
// the original id in the header ce_originalid.
func Record(l *dlq.DeadLetter) (*kgo.Record, error) {
	place, err := ReadPlace(l)
	if err != nil {
		return nil, err
	}
	content := l.Content()
	r := &kgo.Record{Topic: place.Topic, Partition: place.Partition, Offset: place.Offset, Value: content.Payload}
	if l.WrittenAt != 0 {
		r.Timestamp = time.UnixMicro(l.WrittenAt)
	}
	if key, ok := l.Metadata[metaKey]; ok {
		r.Key = []byte(key)
	} else if raw, ok := l.Metadata[metaRawKey]; ok {
		if r.Key, err = base64.StdEncoding.DecodeString(raw); err != nil {
			return nil, fmt.Errorf("dead letter %s: %s: %w", l.EventID, metaRawKey, err)
		}
	}
	if exact, ok := l.Metadata[metaHeaders]; ok && l.Edit == nil {
		r.Headers, err = decodeHeaders(exact)
		return r, err
	}
	header := func(name, value string) {
		if value != "" {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
		}
	}
	id, subject := l.Metadata[metaEventID], l.AggregateID
	if s, ok := l.Metadata[metaSubject]; ok {
		subject = s
	}
	if l.Edit != nil {
		header(outbox.HeaderID, l.EditedID.String())
		header(outbox.HeaderOriginalID, id)
	} else {
		header(outbox.HeaderID, id)
	}
	header(outbox.HeaderSource, l.Metadata[metaSource])
	header(outbox.HeaderSpecVersion, outbox.SpecVersion)
	header(outbox.HeaderType, l.EventType)
	header(outbox.HeaderSubject, subject)
	header(outbox.HeaderTime, l.Metadata[metaTime])
	if l.Sequence != 0 {
		header(outbox.HeaderSequence, strconv.FormatInt(l.Sequence, 10))
	}
	header(outbox.HeaderAggregateType, l.AggregateType)
	header(outbox.HeaderContentType, content.ContentType)
	for _, name := range slices.Sorted(maps.Keys(content.Headers)) {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: name, Value: []byte(content.Headers[name])})
	}
	for _, key := range slices.Sorted(maps.Keys(l.Metadata)) {
		if name, ok := strings.CutPrefix(key, metaHeader); ok && (l.Edit == nil || name != outbox.HeaderOriginalID) {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: name, Value: []byte(l.Metadata[key])})
		}
	}
	return r, nil
}

// decodeHeaders returns the headers of a record exactly.
func decodeHeaders(text string) (out []kgo.RecordHeader, err error) {
	var headers []kafkarecord.Header
	if err := json.Unmarshal([]byte(text), &headers); err != nil {
		return nil, fmt.Errorf("metadata %s: %w", metaHeaders, err)
	}
	for _, h := range headers {
		name := h.Name
		if h.NameBase64 != nil {
			name = string(h.NameBase64)
		}
		out = append(out, kgo.RecordHeader{Key: name, Value: h.Value})
	}
	return out, nil
}
