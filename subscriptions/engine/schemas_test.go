package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/kafkarecord"
	"github.com/scylla-outbox/scylla-outbox/internal/registry"
	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/plugin"
)

// schemas decodes binary payloads, unless it is away, hangs, or forgot the schema, which fails
// call number forgets.
type schemas struct {
	away, hangs    atomic.Bool
	unknown        atomic.Bool
	size           int // of decoded payloads
	calls, forgets atomic.Int64
}

// Decode implements Schemas.
func (s *schemas) Decode(ctx context.Context, e *kafkarecord.Event) error {
	if e.Base64 == nil {
		return nil
	}
	if s.unknown.Load() {
		return fmt.Errorf("schema 1: %w", registry.ErrUnknown)
	}
	if s.hangs.Load() {
		_ = retry.Wait(ctx, time.Minute)
		return fmt.Errorf("no answer: %w", registry.ErrUnavailable)
	}
	if s.calls.Add(1) == s.forgets.Load() || s.away.Load() {
		return fmt.Errorf("no answer: %w", registry.ErrUnavailable)
	}
	e.Data = json.RawMessage(`{"name":"` + e.Headers["name"] + `"` + strings.Repeat(" ", s.size) + `}`)
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

// A registry that hangs delays the partitions alone whose messages need it: other ones are read,
// and stored messages of the same partition are saved, removed and loaded.
func TestEngine_OthersDoNotWaitForSchemas(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		var s schemas
		w.put(subscriptions.Subscription{Name: "s", Topics: []string{"a", "b"}, Filter: `data.name != "e9"`, Backoff: time.Second, MaxBackoff: time.Second})
		p := w.start(func(c *Config) { c.Schemas = &s })
		binary(w, "e0")
		w.produce("a", "k", "j0")
		p.settle(subscriptions.ActionNack, p.one("e0", 1))
		w.sleep(100 * time.Millisecond)
		p.stop() // another process loads e0
		s.hangs.Store(true)
		p = w.start(func(c *Config) { c.Schemas = &s })
		began := time.Now()
		for i := range 20 { // one of them is in the partition of e0
			name := fmt.Sprint("x", i)
			w.produce("a", name, name)
			p.ok(subscriptions.ActionNack, p.one(name, 1))
			p.ok(subscriptions.ActionAck, p.one(name, 2))
		}
		binary(w, "e1")
		w.produce("a", "k", "j1")
		for i := range 20 {
			w.produce("b", "another", fmt.Sprint("f", i)) // the key of e0 waits in all topics
			p.ok(subscriptions.ActionAck, p.one(fmt.Sprint("f", i), 1))
		}
		if d := time.Since(began); d > 50*time.Second {
			t.Errorf("other messages took %s", d)
		}
		s.hangs.Store(false)
		w.sleep(2 * time.Minute)
		var got []string
		for range 4 {
			some := p.receive(1, 20*time.Second)
			p.ok(subscriptions.ActionAck, some...)
			got = append(got, names(some)...)
		}
		if !slices.Equal(got, []string{"e0", "j0", "e1", "j1"}) || len(w.db.letters()) != 0 || strings.Contains(w.log.String(), "failed to store") {
			t.Errorf("received %v, %d dead letters, log %s", got, len(w.db.letters()), w.log)
		}
	})
}

// A new message waits some seconds for a schema that the registry does not have: a replica of it
// may lag. Then it is not decoded, so that an invalid id does not stop the partition.
func TestEngine_FilterWaitsForNewSchemas(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		var s schemas
		w.put(subscriptions.Subscription{Name: "s", Topics: []string{"a"}, Filter: `data != null && data.name.startsWith("e")`})
		p := w.start(func(c *Config) { c.Schemas = &s })
		s.unknown.Store(true)
		binary(w, "e0")
		w.sleep(newMessage / 2)
		s.unknown.Store(false)
		p.ok(subscriptions.ActionAck, p.one("e0", 1))
		s.unknown.Store(true)
		binary(w, "e1")
		w.produce("a", "k", "e2")
		p.ok(subscriptions.ActionAck, p.one("e2", 1))
	})
}

// The decoded payloads of one request are bounded. The other messages are not counted as attempts.
func TestEngine_BoundedSchemas(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		s := schemas{size: maxBytes / 5 * 2}
		w.put(subscriptions.Subscription{Name: "s", Topics: []string{"a"}, Ordering: subscriptions.OrderingNone, MaxReceive: 1})
		p := w.start(func(c *Config) { c.Schemas = &s })
		for i := range 5 {
			binary(w, fmt.Sprint("e", i))
		}
		w.sleep(time.Second)
		for _, want := range [][]string{{"e0", "e1"}, {"e2", "e3"}, {"e4"}} {
			if got := p.receive(10, 0); !slices.Equal(names(got), want) || got[0].Attempt != 1 {
				t.Errorf("received %v, want %v", names(got), want)
			}
		}
		if n := len(w.db.letters()); n != 0 {
			t.Errorf("%d dead letters", n)
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
		r := newReceiver(t, func(context.Context, plugin.Event) error { return nil })
		w.put(pushTo(subscriptions.Subscription{Filter: `data.name == "e1"`}))
		w.start(plugins(r), func(c *Config) { c.Schemas = new(schemas) })
		binary(w, "e0")
		binary(w, "e1")
		w.sleep(30 * time.Second)
		if got := r.calledNames(); !slices.Equal(got, []string{"e1"}) {
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
		w.put(subscriptions.Subscription{Name: "s", Topics: []string{"a"}, Transform: transform, MaxReceive: 1})
		p := w.start(func(c *Config) { c.Schemas = &s })
		binary(w, "e0")
		w.sleep(time.Second)
		got := p.receive(1, 20*time.Second)
		if len(got) != 1 || string(got[0].Data) != `{"was":"e0"}` || got[0].Attempt != 1 || len(w.db.letters()) != 0 {
			t.Errorf("received %+v, %d dead letters", got, len(w.db.letters()))
		}
	})
	inBubble(t, func(w *world) {
		var s schemas
		s.forgets.Store(3) // the first calls select the message
		r := newReceiver(t, func(_ context.Context, e plugin.Event) error {
			if string(e.Data) != `{"was":"e0"}` {
				t.Errorf("pushed %s", e.Data)
			}
			return nil
		})
		w.put(pushTo(subscriptions.Subscription{Transform: transform, MaxReceive: 1}))
		w.start(plugins(r), func(c *Config) { c.Schemas = &s })
		binary(w, "e0")
		w.sleep(time.Minute)
		if got := r.calledNames(); !slices.Equal(got, []string{"e0"}) || len(w.db.letters()) != 0 {
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
		r := newReceiver(t, func(context.Context, plugin.Event) error { return nil })
		w.put(pushTo(subscriptions.Subscription{}))
		w.start(plugins(chooser{r}), func(c *Config) { c.Schemas = &s })
		binary(w, "e0")
		binary(w, "e1")
		w.sleep(30 * time.Second)
		s.away.Store(false)
		w.sleep(30 * time.Second)
		if got := r.calledNames(); !slices.Equal(got, []string{"e1"}) || len(w.db.letters()) != 0 {
			t.Errorf("calls %v, %d dead letters; want e1", got, len(w.db.letters()))
		}
	})
}

// chooser accepts e1 by its decoded payload.
type chooser struct{ *receiver }

// CanHandle implements plugin.Plugin.
func (chooser) CanHandle(e plugin.Event) bool { return string(e.Data) == `{"name":"e1"}` }
