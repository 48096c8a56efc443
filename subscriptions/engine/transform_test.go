package engine

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/jsonform"
	"github.com/scylla-outbox/scylla-outbox/internal/kafkarecord"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/plugin"
)

// wrap is a transform that fails for e1.
const wrap = `{"payload": {"was": data, "n": data.name == "e1" ? data.missing : 1}, "headers": {"from": topic, "name": headers.name}}`

// A consumer receives the result of the transform, of every delivery. A message for which it
// fails is a dead letter with its own content, and the request continues with the others. Its
// replay uses the transform of that time.
func TestEngine_TransformsPulledMessages(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		s := subscriptions.Subscription{Name: "s", Topics: []string{"a"}, Transform: wrap, MaxReceive: 2, Backoff: time.Second}
		w.put(s)
		p := w.start()
		w.produce("a", "k", "e0")
		m := p.one("e0", 1)
		if string(m.Data) != `{"n":1,"was":{"name":"e0"}}` || m.Headers["from"] != "a" || m.ID != eventID("a", "e0") || m.AggregateID != "k" || m.Key != "k" || m.Sequence != 1 || m.Topic != "a" {
			t.Errorf("received %+v", m)
		}
		p.ok(subscriptions.ActionNack, m)
		if m = p.one("e0", 2); string(m.Data) != `{"n":1,"was":{"name":"e0"}}` {
			t.Errorf("the second delivery is %s: it was stored transformed", m.Data)
		}
		p.ok(subscriptions.ActionAck, m)

		// The messages of the same key, and of the same request, are delivered.
		began := time.Now()
		go func() { time.Sleep(10 * time.Second); w.produce("a", "k", "e1"); w.produce("a", "k", "e2") }()
		got, err := p.Receive(context.Background(), "s", subscriptions.Receive{Max: 1, Wait: 20 * time.Second, AutoAck: true})
		if err != nil || len(got) != 1 || nameOfMessage(&got[0]) != "e2" || time.Since(began) > 15*time.Second {
			t.Errorf("received %v, %v after %s; want e2", names(got), err, time.Since(began))
		}
		w.sleep(time.Second)
		l := w.letter(dlq.Suspended)
		if l.ErrorClass != ClassRejected || l.ErrorText != "transform: no such key: missing" || string(l.Payload) != `{"name":"e1"}` || l.Headers["name"] != "e1" || l.Headers["from"] != "" || l.Attempts != 1 {
			t.Errorf("dead letter %+v", l)
		}
		if got := p.receive(10, 5*time.Second); len(got) != 0 || w.db.rowCount() != 0 {
			t.Errorf("%v, %d rows; want nothing", names(got), w.db.rowCount())
		}

		w.replay(l.EventID)
		if got := p.receive(10, 10*time.Second); len(got) != 0 {
			t.Errorf("%v of the replay with the same transform", names(got))
		}
		if l := w.letter(dlq.Suspended); l.Replays != 1 || l.ErrorClass != ClassRejected {
			t.Errorf("%d replays, %s", l.Replays, l.ErrorClass)
		}
		s.Transform = `{"payload": "corrected"}`
		w.put(s)
		w.sleep(5 * time.Second)
		w.replay(l.EventID)
		m = p.one("e1", 1)
		if m.Text == nil || *m.Text != "corrected" {
			t.Errorf("the replay is %+v", m)
		}
		p.ok(subscriptions.ActionAck, m)
		w.letter(dlq.Resolved)

		s.Transform = ""
		w.put(s)
		w.sleep(5 * time.Second)
		w.produce("a", "k", "e3")
		if m = p.one("e3", 1); string(m.Data) != `{"name":"e3"}` {
			t.Errorf("received %s without a transform", m.Data)
		}
	})
}

func eventID(topic, name string) string {
	e := kafkarecord.Decode(event(topic, "k", name))
	return e.ID
}

// A transform that tests the topic replaces payload and headers of that topic alone.
func TestEngine_TransformsOneTopic(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		w.put(subscriptions.Subscription{Name: "s", Topics: []string{"a", "b"}, Transform: `topic == "b" ? {"payload": {"was": data}, "headers": {"from": topic}} : {}`})
		p := w.start()
		for topic, want := range map[string]string{"a": `{"name":"e0"}`, "b": `{"was":{"name":"e0"}}`} {
			w.produce(topic, "k", "e0")
			got := p.receive(1, 5*time.Second)
			if len(got) != 1 || got[0].Topic != topic || string(got[0].Data) != want || (got[0].Headers["from"] == "b") != (topic == "b") {
				t.Errorf("received %+v of %s, want the payload %s", got, topic, want)
			}
			p.ok(subscriptions.ActionAck, got...)
		}
	})
}

// Many messages whose transform fails do not stop the others, and each is one dead letter.
func TestEngine_TransformFailsForMany(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		w.put(subscriptions.Subscription{Name: "s", Topics: []string{"a"}, Transform: `{"payload": data.name.endsWith("7") ? data : data.missing}`})
		p := w.start()
		w.many("a", 0, 500, 25)
		var got []string
		for range 100 {
			some := p.receive(3, 5*time.Second)
			p.ok(subscriptions.ActionAck, some...)
			got = append(got, names(some)...)
		}
		if n := len(w.db.letters()); len(got) != 50 || n != 450 || w.db.rowCount() != 0 {
			t.Errorf("%d messages, %d dead letters, %d rows; want 50, 450, none", len(got), n, w.db.rowCount())
		}
		st, err := p.Status(context.Background(), "s")
		if err != nil || st.Lag != 0 {
			t.Errorf("Status() = %+v, %v, want no lag", st, err)
		}
	})
}

// A plugin receives the result, also to decide. The delivery id is that of the event. A
// message for which the transform fails takes no place of a call.
func TestEngine_TransformsPushedMessages(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		r := newReceiver(t, func(_ context.Context, e plugin.Event) error {
			if e.Headers["name"] == "e0" && e.Attempt == 1 {
				return errTest
			}
			return nil
		})
		s := pushTo(subscriptions.Subscription{Transform: `{"payload": {"was": data, "n": data.name.startsWith("bad") ? data.missing : 1}, "headers": {"from": topic, "name": data.name == "e2" ? "unwanted" : headers.name}}`})
		s.Push.Concurrency, s.MaxReceive = 2, 3
		w.put(s)
		w.start(plugins(r))
		w.produce("a", "k", "e0")
		for _, name := range []string{"bad1", "bad2", "bad3", "e2", "e4"} {
			w.produce("a", "k", name)
		}
		w.sleep(time.Minute)
		if got := r.calledNames(); !slices.Equal(got, []string{"e0", "e0", "e4"}) {
			t.Errorf("calls %v", got)
		}
		for _, e := range r.of("e4") {
			if string(e.Data) != `{"n":1,"was":{"name":"e4"}}` || e.Headers["from"] != "a" || e.DeliveryID != plugin.NewEvent("s", kafkarecord.Decode(event("a", "k", "e4")), 1).DeliveryID {
				t.Errorf("call with %+v", e)
			}
		}
		letters := w.db.letters()
		for _, l := range letters {
			if l.ErrorClass != ClassRejected || l.ErrorText != "transform: no such key: missing" || !strings.HasPrefix(string(l.Payload), `{"name":"bad`) || l.Headers["from"] != "" {
				t.Errorf("dead letter %+v", l)
			}
		}
		if len(letters) != 3 {
			t.Fatalf("%d dead letters, want 3", len(letters))
		}
		s.Transform = `{"payload": [data.name]}`
		w.put(s)
		w.sleep(5 * time.Second)
		w.replay(letters[0].EventID)
		w.sleep(30 * time.Second)
		name := letters[0].Headers["name"]
		if calls := r.of(name); len(calls) != 1 || string(calls[0].Data) != `["`+name+`"]` {
			t.Errorf("calls of the replay %+v", calls)
		}
	})
}

// A subscription with an expression that every message would fail is refused.
func TestEngine_RefusesExpressions(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		p := w.start()
		for want, s := range map[string]subscriptions.Subscription{
			"transform: line 1, column 2: unknown key body: use payload and headers": {Transform: `{"body": data}`},
			"filter: line 1, column 1: undeclared reference to 'total'":              {Filter: "total > 1"},
		} {
			s.Name, s.Topics = "s", []string{"a"}
			if _, err := p.Put(context.Background(), s, "test"); err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("Put() = %v, want %q", err, want)
			}
		}
		if _, err := p.Get(context.Background(), "s"); !errors.Is(err, subscriptions.ErrNotFound) {
			t.Errorf("Get() = %v, want ErrNotFound", err)
		}
		if _, err := p.Put(context.Background(), subscriptions.Subscription{Name: "s", Topics: []string{"a"}, Transform: " "}, "test"); err != nil {
			t.Error(err)
		}
	})
}

// A subscription without a transform pays nothing for it.
func TestEngine_WithoutTransformAllocatesNothing(t *testing.T) {
	rec := event("a", "k", "e0")
	g := &group{e: new(Engine)}
	want := testing.AllocsPerRun(100, func() { _ = kafkarecord.DecodeWith(rec, jsonform.Valid) })
	if got := testing.AllocsPerRun(100, func() { _, _ = g.event(t.Context(), rec) }); got != want {
		t.Errorf("%v allocations, want %v", got, want)
	}
}
