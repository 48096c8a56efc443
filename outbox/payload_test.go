package outbox

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/outbox/payload"
)

// lostStore fails to store, or loses stored payloads.
type lostStore struct {
	payload.Store
	err error
}

func (s lostStore) Put(ctx context.Context, key string, content []byte) error {
	return errors.Join(s.Store.Put(ctx, key, content), s.err)
}

func largeEvent() Event {
	return Event{
		ID: NewID(), AggregateID: NewID(), Sequence: 1, AggregateType: "order", Type: "OrderCreated", ContentType: "text/plain",
		Payload: []byte(strings.Repeat("x", MaxEventBytes+1)), Headers: map[string]string{"a": "b"},
		CreatedAt: time.Date(2027, 2, 14, 8, 0, 0, 0, time.UTC),
	}
}

func payloadFolder(t *testing.T) *payload.Folder {
	t.Helper()
	f, err := payload.NewFolder(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestMovePayload_ReachesTheConsumer(t *testing.T) {
	t.Parallel()
	store, e := payloadFolder(t), largeEvent()
	if e.Validate() == nil {
		t.Fatal("the event fits")
	}
	moved, err := MovePayload(t.Context(), store, e, MaxEventBytes)
	if err != nil || moved.Validate() != nil || len(moved.Payload) != 0 || moved.Payload == nil {
		t.Fatalf("MovePayload() = %v; Validate() = %v, payload %v", err, moved.Validate(), moved.Payload)
	}
	if len(e.Headers) != 1 || len(e.Payload) != MaxEventBytes+1 {
		t.Error("MovePayload changed its argument")
	}
	if again, err := MovePayload(t.Context(), store, moved, 0); err != nil || !maps.Equal(again.Headers, moved.Headers) {
		t.Errorf("MovePayload() of a moved event = %v, %v", again.Headers, err)
	}
	record, err := FromRecord(moved.Key(), moved.Payload, AppendHeaders([]Header(nil), &moved, "/s"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := LoadPayload(t.Context(), store, record.Event)
	if err != nil || string(got.Payload) != string(e.Payload) || !maps.Equal(got.Headers, e.Headers) || got.ContentType != e.ContentType {
		t.Errorf("LoadPayload() = %d bytes, headers %v, type %q, %v", len(got.Payload), got.Headers, got.ContentType, err)
	}
}

func TestMovePayload_KeepsSmallPayloads(t *testing.T) {
	t.Parallel()
	e := largeEvent()
	e.Payload = []byte("small")
	got, err := MovePayload(t.Context(), nil, e, len(e.Payload))
	if err != nil || string(got.Payload) != "small" {
		t.Errorf("MovePayload() = %q, %v", got.Payload, err)
	}
	if got, err = LoadPayload(t.Context(), nil, got); err != nil || string(got.Payload) != "small" {
		t.Errorf("LoadPayload() = %q, %v", got.Payload, err)
	}
}

// TestMovePayload_StoresBeforeTheEvent: the payload of an event that exists is stored, and a
// crash between both leaves a payload that a repetition uses or that expires.
func TestMovePayload_StoresBeforeTheEvent(t *testing.T) {
	t.Parallel()
	store, e := payloadFolder(t), largeEvent()
	crash := errors.New("crash")
	moved, err := MovePayload(t.Context(), lostStore{store, crash}, e, MaxEventBytes)
	if !errors.Is(err, crash) || !moved.ID.IsZero() || !strings.Contains(err.Error(), e.ID.String()) {
		t.Fatalf("MovePayload() = %v, %v, want no event and the error", moved.ID, err)
	}
	moved, err = MovePayload(t.Context(), store, e, MaxEventBytes)
	if err != nil {
		t.Fatalf("MovePayload() after a crash = %v", err)
	}
	if _, err := LoadPayload(t.Context(), store, moved); err != nil {
		t.Error(err)
	}
	n, err := store.Expire(t.Context(), time.Date(2300, 1, 1, 0, 0, 0, 0, time.UTC), 24*time.Hour)
	if n != 1 || err != nil {
		t.Errorf("Expire() = %d, %v, want one object of both attempts", n, err)
	}
	_, err = LoadPayload(t.Context(), store, moved)
	if !errors.Is(err, payload.ErrNotFound) || !strings.Contains(err.Error(), moved.Headers[HeaderDataRef]) || !strings.Contains(err.Error(), e.ID.String()) {
		t.Errorf("LoadPayload() without a payload = %v, want event and reference", err)
	}
}

func TestMovePayload_LivesFromTheDelivery(t *testing.T) {
	t.Parallel()
	e := largeEvent()
	e.DeliverAt = e.CreatedAt.AddDate(0, 11, 0)
	moved, err := MovePayload(t.Context(), payloadFolder(t), e, MaxEventBytes)
	if err != nil {
		t.Fatal(err)
	}
	r, err := payload.Parse(moved.Headers[HeaderDataRef])
	if err != nil || r.Day.Format(time.DateOnly) != e.DeliverAt.Format(time.DateOnly) {
		t.Errorf("the reference has day %s, %v; want that of the delivery, %s", r.Day, err, e.DeliverAt)
	}
}

func TestMovePayload_RefusesInvalidEvents(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Event){
		"CreatedAt":             func(e *Event) { e.CreatedAt = time.Time{} },
		"Payload":               func(e *Event) { e.Payload = make([]byte, payload.MaxBytes+1) },
		`Headers["ce_dataref"]`: func(e *Event) { e.Headers[HeaderDataRef] = payload.Key(nil, e.CreatedAt) },
	} {
		e := largeEvent()
		change(&e)
		_, err := MovePayload(t.Context(), payloadFolder(t), e, MaxEventBytes)
		var invalid *InvalidEventError
		if !errors.As(err, &invalid) || invalid.Fields[0].Field != name {
			t.Errorf("MovePayload() = %v, want field %s", err, name)
		}
	}
}

func TestValidate_AReferenceReplacesThePayload(t *testing.T) {
	t.Parallel()
	e := largeEvent()
	e.Payload, e.Headers = nil, map[string]string{HeaderDataRef: payload.Key([]byte("x"), e.CreatedAt)}
	if err := e.Validate(); err != nil {
		t.Errorf("Validate() = %v", err)
	}
	e.Payload = []byte("x")
	if err := e.Validate(); err == nil {
		t.Error("Validate() accepts a payload beside a reference")
	}
	e.Payload, e.Headers = nil, map[string]string{HeaderDataRef: "/etc/passwd"}
	if err := e.Validate(); err == nil || !strings.Contains(err.Error(), "MovePayload") {
		t.Errorf("Validate() of a wrong reference = %v", err)
	}
}
