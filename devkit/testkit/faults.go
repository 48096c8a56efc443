package testkit

import (
	"strings"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
)

// Effect is what a fault does to a request.
type Effect uint8

// The effects.
const (
	// Refuse answers with an error, and nothing is executed. A driver may retry the request.
	Refuse Effect = iota + 1
	// LoseRequest executes nothing, and the client cannot know that: the database answers that
	// the request timed out, the broker ends the connection.
	LoseRequest
	// LoseAnswer executes the request, and the client cannot know that: the database answers that
	// the request timed out, the broker ends the connection.
	LoseAnswer
	// Delay executes the request after Fault.Delay.
	Delay
)

// Fault is a fault of the database or of the broker. Of several that match a request, the first
// one hits it.
type Fault struct {
	// Effect is what happens. Required.
	Effect Effect
	// Delay is the time of the effect Delay.
	Delay time.Duration
	// On is the table (keyspace.table) or the topic that the fault is limited to. Empty is any,
	// except the tables of the database itself. Of the broker, only Refuse can be limited. The table
	// must exist; the topic must exist at the end of the test.
	On string
	// Reads hits the reads of the database instead of the writes.
	Reads bool
	// Chance is the probability that a request is hit. 0 is 1.
	Chance float64
	// Times is the number of requests that are hit. 0 is any number, until Injected.Remove.
	Times int
}

// Injected is a fault that has been injected. It is safe for concurrent use.
type Injected struct {
	hits   func() int
	remove func()
}

// Hits returns the number of requests that were hit, also after Remove.
func (i *Injected) Hits() int { return i.hits() }

// Remove ends the fault.
func (i *Injected) Remove() { i.remove() }

// FaultDatabase makes the database fail: its writes (statements, batches and conditional ones of
// any client, also of the relay) or, with Reads, its reads. An invalid fault ends the test.
func (k *Kit) FaultDatabase(f Fault) *Injected {
	k.t.Helper()
	rule := faults.Rule{Count: f.Times, Probability: f.Chance, Match: faults.Match{
		Kinds: []engine.OpKind{engine.OpWrite, engine.OpUnloggedBatch, engine.OpLoggedBatch, engine.OpCAS},
		Func:  func(op engine.Op) bool { return !strings.HasPrefix(op.Keyspace, "system") },
	}}
	if f.On != "" {
		var ok bool
		if rule.Match.Keyspace, rule.Match.Table, ok = strings.Cut(f.On, "."); !ok {
			k.t.Fatalf("fault of the database: On is %q: write keyspace.table", f.On)
		}
		var name string
		err := k.session.Query("SELECT table_name FROM system_schema.tables WHERE keyspace_name = ? AND table_name = ?", rule.Match.Keyspace, rule.Match.Table).Scan(&name)
		if err != nil {
			k.t.Fatalf("fault of the database: On is %q: look for the table, which must exist: %v", f.On, err)
		}
	}
	if f.Reads {
		rule.Match.Kinds = []engine.OpKind{engine.OpRead, engine.OpSerialRead}
	}
	switch f.Effect {
	case Refuse:
		rule.Effect.Failure = faults.Unavailable(0, 1)
	case LoseRequest:
		rule.Effect.Failure = faults.WriteTimeout("", 0, 1)
		rule.Effect.Failure.Unlogged = true
	case LoseAnswer:
		rule.Effect.Failure, rule.Effect.Fate = faults.WriteTimeout("", 0, 1), engine.FateApply
	case Delay:
		rule.Effect.Delay = f.Delay
	}
	if f.Reads && (f.Effect == LoseRequest || f.Effect == LoseAnswer) {
		rule.Effect.Failure, rule.Effect.Fate = faults.ReadTimeout(0, 1), engine.FateNormal
	}
	in := k.engines.Database.Faults()
	id, err := in.Add(rule)
	if err != nil {
		k.t.Fatalf("fault of the database: %v", err)
	}
	return &Injected{
		hits:   func() int { return in.Hits(id) },
		remove: func() { _ = in.Remove(id) }, // a second time it is gone
	}
}

// SetDatabaseClock sets by how much the clock of the database is ahead of that of this machine;
// negative is behind. By it rows expire, and writes are dated to which the driver gives no time.
func (k *Kit) SetDatabaseClock(ahead time.Duration) {
	k.engines.Database.Faults().Clock().SetSkew(ahead)
}

// FaultBroker makes the broker fail: its produce requests. An invalid fault ends the test.
func (k *Kit) FaultBroker(f Fault) *Injected {
	k.t.Helper()
	if f.Effect < Refuse || f.Effect > Delay || f.Reads || f.On != "" && f.Effect != Refuse {
		k.t.Fatalf("fault of the broker: %+v has no effect, concerns reads, or names a topic without Refuse", f)
	}
	if t := k.t; f.On != "" {
		t.Cleanup(func() {
			if k.produce.broker.TopicInfo(f.On) == nil {
				t.Errorf("fault of the broker: On is %q, and no such topic was made: it hit nothing", f.On)
			}
		})
	}
	return k.produce.add(f, k.rnd.Uint64())
}
