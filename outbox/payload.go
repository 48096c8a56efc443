package outbox

import (
	"context"
	"fmt"
	"maps"

	"github.com/scylla-outbox/scylla-outbox/outbox/payload"
)

// HeaderDataRef is the record header of an event whose payload is stored elsewhere: a
// reference of package payload. An event brings it in Headers, with an empty Payload;
// see MovePayload.
const HeaderDataRef = payload.Header

// MovePayload stores the payload of e in s if it has more than limit bytes, and returns
// an event with an empty payload and the reference in HeaderDataRef. An event with a
// smaller payload, or none, is returned unchanged.
//
// Call it before Append, and repeat a batch whose outcome is unknown with the returned
// event. If the batch fails, the payload expires like every other. The caller chooses
// the limit; above MaxEventBytes Append refuses a payload that was not moved.
//
// Errors are an *InvalidEventError, or an error of s: then the payload may be stored
// and nothing refers to it.
func MovePayload(ctx context.Context, s payload.Store, e Event, limit int) (Event, error) {
	if len(e.Payload) <= limit || len(e.Payload) == 0 {
		return e, nil
	}
	if s == nil {
		return Event{}, fmt.Errorf("outbox: store the payload of event %s: the store is nil: pass one, such as a payload.Folder", e.ID)
	}
	var bad InvalidEventError
	if len(e.Payload) > payload.MaxBytes {
		bad.add("Payload", fmt.Sprintf("has %d bytes; the maximum of a stored payload is %d", len(e.Payload), payload.MaxBytes), "divide it into several events")
	}
	if _, ok := e.Headers[HeaderDataRef]; ok {
		bad.add(fmt.Sprintf("Headers[%q]", HeaderDataRef), "is set beside a payload", "remove it or the payload")
	}
	// The day of the key, and so the lifetime, begins with the publication.
	day := e.CreatedAt
	if e.DeliverAt.After(day) {
		day = e.DeliverAt
	}
	bad.time("CreatedAt", day)
	if bad.Fields != nil {
		return Event{}, &bad
	}
	key := payload.Key(e.Payload, day)
	if err := s.Put(ctx, key, e.Payload); err != nil {
		return Event{}, fmt.Errorf("outbox: store payload %s of event %s: %w", key, e.ID, err)
	}
	headers := make(map[string]string, len(e.Headers)+1)
	maps.Copy(headers, e.Headers)
	headers[HeaderDataRef] = key
	e.Headers, e.Payload = headers, []byte{}
	return e, nil
}

// LoadPayload is the reverse of MovePayload: it returns e with the payload that
// HeaderDataRef refers to, without that header, once its size and SHA-256 are verified.
// An event without a reference is returned unchanged. Errors name the event and the
// reference. One with payload.ErrNotFound or payload.ErrDamaged in its chain does not end
// by a repetition.
func LoadPayload(ctx context.Context, s payload.Store, e Event) (Event, error) {
	key, ok := e.Headers[HeaderDataRef]
	if !ok {
		return e, nil
	}
	content, err := payload.Load(ctx, s, key)
	if err != nil {
		return Event{}, fmt.Errorf("outbox: event %s: %w", e.ID, err)
	}
	e.Headers = maps.Clone(e.Headers)
	delete(e.Headers, HeaderDataRef)
	e.Payload = content
	return e, nil
}
