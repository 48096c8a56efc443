package stream

import (
	"encoding/json"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/internal/jsonform"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/kafkarecord"
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

// JSON returns the event as JSON. It is safe for concurrent use.
func (s *shared) JSON() []byte {
	s.once.Do(func() {
		e := kafkarecord.DecodeWith(s.record, jsonform.Valid)
		s.json, _ = json.Marshal(&e) // texts, numbers and valid JSON are always marshalled
	})
	return s.json
}
