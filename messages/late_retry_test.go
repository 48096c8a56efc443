package messages

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/scyllatest"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// A message that is due soon is submitted with an unknown outcome, and again
// when its time has passed. Then the write of the first request becomes
// visible. There is one message; cancelling it works, and it is not in the
// outbox as well.
func TestService_RepeatedAfterItsTimeGoesTheSameWay(t *testing.T) {
	t.Parallel()
	var ago atomic.Int64
	ago.Store(int64(2 * time.Hour))
	b := setup(t, func(c *Config) {
		c.Clock = world.Clock(func() time.Time { return time.Now().Add(-time.Duration(ago.Load())) })
	})
	b.brief()
	b.Node.Faults().MustAdd(faults.Rule{
		Match: faults.Match{Kinds: []engine.OpKind{engine.OpLoggedBatch}},
		Effect: faults.Effect{
			Failure: faults.WriteTimeout(faults.BatchLog, 0, 1), Fate: engine.FateLater, Later: []time.Duration{3 * time.Second},
		},
	})
	at := time.Now().Add(-time.Hour)
	n, opts := NewMessage{Topic: "t", DeliverAt: &at}, Options{Client: "c", IdempotencyKey: "k"}
	var u *UnavailableError
	if _, err := b.Accept(t.Context(), n, opts); !errors.As(err, &u) || !u.Unknown {
		t.Fatalf("Accept() = %v, want an unknown outcome", err)
	}
	ago.Store(0)
	b.Node.Faults().Clear()
	a, err := b.Accept(t.Context(), n, opts)
	if err != nil || a.ID != u.ID || a.State != Scheduled {
		t.Fatalf("Accept() again = %+v, %v, want it scheduled", a, err)
	}
	written := func() bool {
		var id gocql.UUID
		err := b.Session.Query("SELECT id FROM scheduled_messages WHERE id = ?", a.ID).Scan(&id)
		return err == nil
	}
	world.Eventually(t, "the schedule has it", written)
	if err := b.Cancel(t.Context(), a.ID); err != nil {
		t.Fatalf("Cancel() = %v", err)
	}
	if events := b.events(t); len(events) > 0 {
		t.Errorf("it was cancelled, and is in the outbox: %+v", events)
	}
}

// A message whose write time the database refuses, because the clock of the host is off, gets
// the time of the database.
func TestService_AcceptWithAClockThatIsOff(t *testing.T) {
	t.Parallel()
	scyllatest.EachVersion(t, func(t *testing.T, conf scyllafake.Config) {
		for _, off := range []time.Duration{-time.Minute, time.Minute} {
			t.Run(off.String(), func(t *testing.T) {
				t.Parallel()
				b := &fixture{World: world.StartOn(t, conf)}
				b.Service = b.another(t, func(c *Config) { c.Clock = world.Clock(func() time.Time { return time.Now().Add(off) }) })
				a, err := b.Accept(t.Context(), NewMessage{Topic: "t"}, Options{Client: "c"})
				if err != nil || a.State != Queued {
					t.Fatalf("Accept() = %+v, %v", a, err)
				}
				events := b.Outbox(t)
				if len(events) != 1 || events[0].ID.UUID() != a.ID || time.Since(events[0].At).Abs() > world.Patience {
					t.Errorf("the outbox has %+v, want the message", events)
				}
			})
		}
	})
}

// A repeated batch receives the first response, although its messages have
// changed; refused items are evaluated again.
func TestHTTP_SameKeyIsTheSameBatch(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const batch = `{"messages":[{"topic":"t","payload":1},{"topic":"t","delay":"1h"},{"topic":"t","delay":"soon"}]}`
	first := world.Request(t, b.handler, "POST", "/v1/messages/batch", batch, "Idempotency-Key", "k")
	if first.Status != 207 {
		t.Fatalf("POST = %d %s", first.Status, first.Text)
	}
	results := first.Body["results"].([]any)
	later := results[1].(map[string]any)["message"].(map[string]any)
	if r := world.Request(t, b.handler, "DELETE", later["self"].(string), ""); r.Status != 204 {
		t.Fatalf("DELETE = %d %s", r.Status, r.Text)
	}
	again := world.Request(t, b.handler, "POST", "/v1/messages/batch", batch, "Idempotency-Key", "k")
	if first.Header.Get("Idempotency-Replayed") != "" || again.Header.Get("Idempotency-Replayed") != "true" || again.Text != first.Text {
		t.Errorf("again %v %s, want the first response, %s", again.Header, again.Text, first.Text)
	}
	if events, waiting := len(b.events(t)), len(b.waiting(t)); events != 1 || waiting != 0 {
		t.Errorf("%d events and %d waiting messages, want one and none", events, waiting)
	}
}
