package stream

import (
	"context"
	"encoding/json"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/internal/jsonform"
	"github.com/scylla-outbox/scylla-outbox/internal/kafkarecord"
	"github.com/scylla-outbox/scylla-outbox/internal/registry"
	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// shared is a record for all its subscriptions. It is converted to an event and to JSON
// once. Without a record it reports a deleted topic.
type shared struct {
	anew   string // that topic's name
	record *kgo.Record
	typ    string // header ce_type
	about  string // header ce_subject

	once sync.Once
	json []byte
}

func newShared(r *kgo.Record) *shared {
	s := &shared{record: r}
	for i := range r.Headers {
		switch r.Headers[i].Key {
		case outbox.HeaderType:
			s.typ = string(r.Headers[i].Value)
		case outbox.HeaderSubject:
			s.about = string(r.Headers[i].Value)
		}
	}
	return s
}

// JSON returns the event as JSON, with its payload decoded by its schema. It is safe for
// concurrent use.
func (s *shared) JSON(d *decoder) []byte {
	s.once.Do(func() {
		e := kafkarecord.DecodeWith(s.record, jsonform.Valid)
		d.decode(&e)
		s.json, _ = json.Marshal(e.ForJSON()) // texts, numbers and valid JSON are always marshalled
	})
	return s.json
}

const (
	// schemaTimeout bounds the wait of an event for its schema, and hurriedTimeout that of the
	// events within registry.RetryAfter of one that could not be decoded: the next events fill
	// the buffers of clients.
	schemaTimeout  = 500 * time.Millisecond
	hurriedTimeout = time.Millisecond
	// maxDecoded bounds the JSON of a payload: a buffer contains many of them.
	maxDecoded = 1 << 20
)

// decoder decodes payloads by their schemas, as far as that is possible in time.
type decoder struct {
	schemas Schemas      // nil decodes none
	hurried atomic.Int64 // until this time, in nanoseconds
}

// decode decodes the payload of e. Otherwise e does not change. It does not depend on the
// context of one client, because all clients receive the result.
func (d *decoder) decode(e *kafkarecord.Event) {
	if d.schemas == nil {
		return
	}
	timeout := schemaTimeout
	if time.Now().UnixNano() < d.hurried.Load() {
		timeout = hurriedTimeout
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	decoded := *e
	if d.schemas.Decode(ctx, &decoded) != nil {
		d.hurried.Store(time.Now().Add(registry.RetryAfter).UnixNano())
		return
	}
	if len(decoded.Data) <= maxDecoded {
		*e = decoded
	}
}
