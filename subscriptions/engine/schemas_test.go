package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/registry"
	"github.com/scylla-outbox/scylla-outbox/outbox/kafkarecord"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/push"
)

// schemas decodes binary payloads, unless it is away, or forgot the schema, which fails call
// number forgets.
type schemas struct {
	away           atomic.Bool
	calls, forgets atomic.Int64
}

// Decode implements Schemas.
func (s *schemas) Decode(_ context.Context, e *kafkarecord.Event) error {
	if e.Base64 == nil {
		return nil
	}
	if s.calls.Add(1) == s.forgets.Load() || s.away.Load() {
		return fmt.Errorf("no answer: %w", registry.ErrUnavailable)
	}
	e.Data = json.RawMessage(`{"name":"` + e.Headers["name"] + `"}`)
	return nil
}

func binary(w *world, name string) {
	rec := event("a", "k", name)
	rec.Value = []byte{0, 0xff, 1}
	w.publish(rec)
}

// While the registry is unreachable, a filter waits: no message is skipped, none is a dead
// letter, and the messages before are delivered.
func TestEngine_FilterWaitsForSchemas(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		var s schemas
		s.away.Store(true)
		w.put(subscriptions.Subscription{Name: "s", Topics: []string{"a"}, Filter: `data.name != "e2"`})
		p := w.start(func(c *Config) { c.Schemas = &s })
		w.produce("a", "k", "e0")
		for _, name := range []string{"e1", "e2", "e3"} {
			binary(w, name)
		}
		p.ok(subscriptions.ActionAck, p.one("e0", 1))
		if got := p.receive(10, 20*time.Second); len(got) != 0 || len(w.db.letters()) != 0 {
			t.Errorf("received %v, %d dead letters", names(got), len(w.db.letters()))
		}
		s.away.Store(false)
		var got []string
		for range 2 {
			some := p.receive(1, 10*time.Second)
			p.ok(subscriptions.ActionAck, some...)
			got = append(got, names(some)...)
			if len(some) == 1 && (len(some[0].Data) == 0 || len(some[0].Base64) != 3) {
				t.Errorf("received %s, %v; want data beside the payload", some[0].Data, some[0].Base64)
			}
		}
		if !slices.Equal(got, []string{"e1", "e3"}) || len(w.db.letters()) != 0 {
			t.Errorf("received %v, %d dead letters; want e1, e3", got, len(w.db.letters()))
		}
	})
}

// Without a filter nothing waits. Push delivery evaluates a filter over decoded payloads too.
func TestEngine_DeliversWithoutSchemas(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		var s schemas
		s.away.Store(true)
		w.put(subscriptions.Subscription{Name: "s", Topics: []string{"a"}})
		p := w.start(func(c *Config) { c.Schemas = &s })
		binary(w, "e0")
		if m := p.one("e0", 1); m.Data != nil || len(m.Base64) != 3 {
			t.Errorf("received %s, %v", m.Data, m.Base64)
		}
	})
	inBubble(t, func(w *world) {
		r := newReceiver(t, func(context.Context, push.Event) error { return nil })
		w.put(pushTo(subscriptions.Subscription{Filter: `data.name == "e1"`}))
		w.start(plugins(r), func(c *Config) { c.Schemas = new(schemas) })
		binary(w, "e0")
		binary(w, "e1")
		w.sleep(30 * time.Second)
		if got := r.called(); !slices.Equal(got, []string{"e1"}) {
			t.Errorf("calls %v, want e1", got)
		}
	})
}

// A schema that the cache lost after its record was read, while the registry is unreachable,
// delays the delivery of a transformed message: it is no dead letter.
func TestEngine_TransformWaitsForLostSchemas(t *testing.T) {
	t.Parallel()
	const transform = `{"payload": {"was": data.name}}`
	inBubble(t, func(w *world) {
		var s schemas
		s.forgets.Store(2) // the first call selects the message
		w.put(subscriptions.Subscription{Name: "s", Topics: []string{"a"}, Transform: transform})
		p := w.start(func(c *Config) { c.Schemas = &s })
		binary(w, "e0")
		w.sleep(time.Second)
		got := p.receive(1, 20*time.Second)
		if len(got) != 1 || string(got[0].Data) != `{"was":"e0"}` || got[0].Attempt != 2 || len(w.db.letters()) != 0 {
			t.Errorf("received %+v, %d dead letters", got, len(w.db.letters()))
		}
	})
	inBubble(t, func(w *world) {
		var s schemas
		s.forgets.Store(3) // the first calls select the message
		r := newReceiver(t, func(_ context.Context, e push.Event) error {
			if string(e.Data) != `{"was":"e0"}` {
				t.Errorf("pushed %s", e.Data)
			}
			return nil
		})
		w.put(pushTo(subscriptions.Subscription{Transform: transform}))
		w.start(plugins(r), func(c *Config) { c.Schemas = &s })
		binary(w, "e0")
		w.sleep(time.Minute)
		if got := r.called(); !slices.Equal(got, []string{"e0"}) || len(w.db.letters()) != 0 {
			t.Errorf("calls %v, %d dead letters", got, len(w.db.letters()))
		}
	})
}

// A plugin that chooses among messages receives the decoded payload, and waits for it.
func TestEngine_PluginWaitsForSchemas(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		var s schemas
		s.away.Store(true)
		r := newReceiver(t, func(context.Context, push.Event) error { return nil })
		w.put(pushTo(subscriptions.Subscription{}))
		w.start(plugins(chooser{r}), func(c *Config) { c.Schemas = &s })
		binary(w, "e0")
		binary(w, "e1")
		w.sleep(30 * time.Second)
		s.away.Store(false)
		w.sleep(30 * time.Second)
		if got := r.called(); !slices.Equal(got, []string{"e1"}) || len(w.db.letters()) != 0 {
			t.Errorf("calls %v, %d dead letters; want e1", got, len(w.db.letters()))
		}
	})
}

// chooser accepts e1 by its decoded payload.
type chooser struct{ *receiver }

// CanHandle implements push.Plugin.
func (chooser) CanHandle(e push.Event) bool { return string(e.Data) == `{"name":"e1"}` }
