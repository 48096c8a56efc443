package orders

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/test/seeds"
)

// seen is an observed order, and the state of its model.
type seen struct {
	Version int64
	Status  Status
	Tag     string // content of the last update, shipping or cancellation
}

// asked is an operation on an order, and answer its result.
type asked struct {
	Change    Change // empty reads
	IfVersion int64  // 0 for none
	Tag       string // written, if it is made
}

type answer struct {
	// Kind is ok, conflict, stale, refused (nothing stored) or unknown.
	Kind string
	Seen seen // for ok; for conflict and stale the current order
}

// orderModel is the specification of one order: a sequential state machine. A
// change without a response may have happened, once, or not.
var orderModel = porcupine.NondeterministicModel{
	Init: func() []any { return []any{seen{Version: 1, Status: StatusPlaced}} },
	Step: func(state, input, output any) []any {
		s, in, out := state.(seen), input.(asked), output.(answer)
		if in.Change == "" {
			if out.Kind == "ok" && out.Seen != s {
				return nil
			}
			return []any{s}
		}
		if in.Change == ChangeConfirm {
			in.Tag = s.Tag // the order is unchanged
		}
		stale := in.IfVersion != 0 && in.IfVersion != s.Version
		to, allowed := s.Status.after(in.Change)
		next := seen{Version: s.Version + 1, Status: to, Tag: in.Tag}
		switch {
		case out.Kind == "refused":
			return []any{s}
		case out.Kind == "unknown" && (stale || !allowed):
			return []any{s}
		case out.Kind == "unknown":
			return []any{s, next}
		case out.Kind == "stale" && stale && out.Seen == s, out.Kind == "conflict" && !stale && !allowed && out.Seen == s:
			return []any{s}
		case out.Kind == "ok" && !stale && allowed && out.Seen == next:
			return []any{next}
		}
		return nil
	},
	DescribeOperation: func(in, out any) string { return fmt.Sprintf("%+v -> %+v", in, out) },
}

func observe(o *Order) seen {
	s := seen{Version: o.Version, Status: o.Status, Tag: o.Country}
	switch o.Status {
	case StatusShipped:
		s.Tag = o.Tracking
	case StatusCancelled:
		s.Tag = o.CancelReason
	}
	return s
}

// process returns a service that fails before its nth statement; 0 never.
func (b *fixture) process(t testing.TB, n int) *Service {
	s := b.brief(t, func(c *Config) {
		c.Breaker = Breaker{Failures: 1 << 20, Rate: 1, MinCalls: 1 << 20}
	})
	if n > 0 {
		var count atomic.Int64
		s.guard.Dead = func() bool { return count.Add(1) >= int64(n) }
	}
	return s
}

func (in asked) do(t testing.TB, s *Service, id gocql.UUID, key string) (Order, error) {
	opts := WriteOptions{IdempotencyKey: key}
	if in.IfVersion != 0 {
		opts.IfVersion = []int64{in.IfVersion}
	}
	var r Result
	var err error
	switch in.Change {
	case "":
		return s.Get(t.Context(), id)
	case ChangeUpdate:
		r, err = s.Update(t.Context(), id, Update{Country: &in.Tag}, opts)
	case ChangeConfirm:
		r, err = s.Confirm(t.Context(), id, Confirmation{}, opts)
	case ChangeShip:
		r, err = s.Ship(t.Context(), id, Shipment{Tracking: in.Tag}, opts)
	default:
		r, err = s.Cancel(t.Context(), id, Cancellation{Reason: in.Tag}, opts)
	}
	return r.Order, err
}

// run executes an operation like a client whose service may fail after any
// statement. With a key, another process retries until there is a response:
// together that is one operation.
func (in asked) run(t testing.TB, b *fixture, rnd *rand.Rand, id gocql.UUID, key string) answer {
	for try := 0; ; try++ {
		die := 0
		if rnd.IntN(3) == 0 && try < 8 {
			die = 1 + rnd.IntN(9)
		}
		o, err := in.do(t, b.process(t, die), id, key)
		var conflict *ConflictError
		var stale *PreconditionError
		var away *UnavailableError
		switch {
		case err == nil:
			return answer{"ok", observe(&o)}
		case errors.As(err, &conflict):
			return answer{"conflict", observe(&conflict.Order)}
		case errors.As(err, &stale):
			return answer{"stale", observe(&stale.Order)}
		case !errors.As(err, &away):
			t.Errorf("%+v: %v", in, err)
			return answer{Kind: "unknown"}
		case key != "" && try < 100:
			time.Sleep(5 * time.Millisecond) // lost connections are restored concurrently
		case die > 0 || away.Unknown || key != "":
			return answer{Kind: "unknown"}
		default:
			return answer{Kind: "refused"}
		}
	}
}

// addFaults makes statements time out, late or never applied, and connections break.
func (b *fixture) addFaults(probability float64) {
	cas := faults.WriteTimeout(faults.CAS, 1, 2)
	soon := []time.Duration{20 * time.Millisecond, 150 * time.Millisecond}
	for kind, effects := range map[engine.OpKind][]faults.Effect{
		engine.OpLoggedBatch: {
			{Failure: faults.WriteTimeout(faults.Batch, 0, 1)},
			{Failure: faults.WriteTimeout(faults.Batch, 0, 1), Fate: engine.FateLater, Later: soon},
			{Disconnect: true, Fate: engine.FateApply},
		},
		engine.OpCAS: {
			{Failure: cas},
			{Failure: cas, Fate: engine.FateDecided},
			{Failure: cas, Fate: engine.FateApply},
			{Failure: faults.Unavailable(0, 1)},
			{Disconnect: true, Fate: engine.FateApply},
		},
		engine.OpWrite:      {{Failure: faults.WriteTimeout("", 0, 1), Fate: engine.FateLater, Later: soon}},
		engine.OpRead:       {{Failure: faults.ReadTimeout(0, 1)}},
		engine.OpSerialRead: {{Failure: faults.ReadTimeout(0, 1)}},
	} {
		for _, e := range effects {
			b.Node.Faults().MustAdd(faults.Rule{Match: faults.Match{Kinds: []engine.OpKind{kind}, Keyspace: "outbox"}, Probability: probability, Effect: e})
		}
	}
}

// Several clients write each order concurrently, while statements fail in every
// way and processes fail between any two of them. Every history must be
// linearizable; every success is one event, and every refusal none.
func TestOrder_IsLinearizable(t *testing.T) {
	t.Parallel()
	seed := seeds.Of(t)
	b := setup(t)
	const writers, each = 6, 7
	rnd := rand.New(rand.NewPCG(seed, 0))
	b.addFaults([]float64{0.02, 0.05, 0.08}[rnd.IntN(3)])
	for round := range 4 {
		var o Order
		for {
			r, err := b.process(t, 0).Create(t.Context(), testNewOrder(), WriteOptions{IdempotencyKey: fmt.Sprint("order-", round)})
			if err == nil {
				o = r.Order
				break
			}
		}
		begin := time.Now()
		var mu sync.Mutex
		var history []porcupine.Operation
		var wg sync.WaitGroup
		for w := range writers {
			rnd := rand.New(rand.NewPCG(seed, uint64(1+round*writers+w)))
			wg.Go(func() {
				version := int64(1)
				for i := range each {
					in := asked{Tag: fmt.Sprintf("%d-%d", w, i)}
					switch n := rnd.IntN(20); {
					case n < 4:
						in.Tag = ""
					case n < 15:
						in.Change = ChangeUpdate
						if rnd.IntN(3) > 0 {
							in.IfVersion = version
						}
					case n < 17:
						in.Change, in.Tag = ChangeConfirm, ""
					case n < 19 && i > 3:
						in.Change = ChangeShip
					case i > 4:
						in.Change = ChangeCancel
					default:
						in.Change = ChangeUpdate
					}
					key := ""
					if in.Change != "" && rnd.IntN(2) == 0 {
						key = fmt.Sprintf("%d-%d-%d", round, w, i)
					}
					call := time.Since(begin).Nanoseconds()
					out := in.run(t, b, rnd, o.ID, key)
					end := time.Since(begin).Nanoseconds()
					if out.Kind == "unknown" {
						end = math.MaxInt64 // it may still be made
					}
					if out.Seen.Version > 0 {
						version = out.Seen.Version
					}
					mu.Lock()
					history = append(history, porcupine.Operation{ClientId: w, Input: in, Output: out, Call: call, Return: end})
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		b.checkHistory(t, o, history)
	}
}

// checkHistory compares the responses with the stored events.
func (b *fixture) checkHistory(t *testing.T, o Order, history []porcupine.Operation) {
	t.Helper()
	first := observe(&o)
	model := orderModel
	model.Init = func() []any { return []any{first} }
	result, _ := porcupine.CheckOperationsVerbose(model.ToModel(), history, 10*time.Minute)
	if result != porcupine.Ok {
		t.Errorf("the history of order %s is %s", o.ID, result)
		for _, op := range history {
			t.Logf("%d: %+v -> %+v [%d, %d]", op.ClientId, op.Input, op.Output, op.Call, op.Return)
		}
	}
	time.Sleep(200 * time.Millisecond) // the last late writes
	var now Order
	for try := 0; ; try++ {
		var err error
		if now, err = b.process(t, 0).Get(t.Context(), o.ID); err == nil {
			break
		} else if try > 500 {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond) // lost connections are restored concurrently
	}
	// One event for each version, and the last one is the order.
	var events []Order
	for try := 0; ; try++ {
		var ok bool
		if events, ok = b.events(t, o.ID); ok {
			break
		} else if try > 500 {
			t.Fatal("the outbox cannot be read")
		}
		time.Sleep(10 * time.Millisecond)
	}
	if int64(len(events)) != now.Version {
		t.Errorf("order %s: %d events, is at version %d", o.ID, len(events), now.Version)
	}
	ids := map[gocql.UUID]bool{}
	for i, e := range events {
		if e.Version != int64(i+1) || ids[e.EventID] {
			t.Errorf("order %s: event %d is of version %d and id %s, twice: %v", o.ID, i+1, e.Version, e.EventID, ids[e.EventID])
		}
		ids[e.EventID] = true
	}
	if last, _ := json.Marshal(events[len(events)-1]); len(events) > 0 {
		if got, _ := json.Marshal(now); string(got) != string(last) {
			t.Errorf("order %s is %s, its last event %s", o.ID, got, last)
		}
	}
	// Each success is the event of its version; no refusal is in any.
	for _, op := range history {
		in, _ := op.Input.(asked)
		out, _ := op.Output.(answer)
		switch {
		case in.Change == "" || out.Kind == "unknown":
		case out.Kind == "ok":
			if v := out.Seen.Version; v < 2 || v > int64(len(events)) || observe(&events[v-1]) != out.Seen {
				t.Errorf("order %s: %+v was answered %+v, which is no event", o.ID, in, out)
			}
		case in.Tag != "" && slices.ContainsFunc(events, func(e Order) bool { return observe(&e).Tag == in.Tag }):
			t.Errorf("order %s: %+v was answered %+v, and is in an event", o.ID, in, out)
		}
	}
}

// events are the orders of an order's events; false if they could not be read.
func (b *fixture) events(t testing.TB, id gocql.UUID) ([]Order, bool) {
	t.Helper()
	var out []Order
	for seq := int64(1); ; seq++ {
		var payload []byte
		var event gocql.UUID
		err := b.Session.Query("SELECT payload, event_id FROM outbox_messages WHERE aggregate_id = ? AND seq = ?", id.String(), seq).Scan(&payload, &event)
		if errors.Is(err, gocql.ErrNotFound) {
			return out, true
		}
		if err != nil {
			return nil, false
		}
		var o Order
		if err := json.Unmarshal(payload, &o); err != nil {
			t.Fatal(err)
		}
		o.EventID = event
		out = append(out, o)
	}
}

// The model itself rejects impossible histories.
func TestOrder_ModelRefusesWhatMustNotBe(t *testing.T) {
	t.Parallel()
	update := func(v int64, tag string) asked { return asked{Change: ChangeUpdate, IfVersion: v, Tag: tag} }
	ok := func(v int64, tag string) answer { return answer{"ok", seen{v, StatusPlaced, tag}} }
	for name, history := range map[string][]porcupine.Operation{
		"two changes of one version": {
			{ClientId: 0, Input: update(1, "a"), Output: ok(2, "a"), Call: 0, Return: 5},
			{ClientId: 1, Input: update(1, "b"), Output: ok(2, "b"), Call: 0, Return: 5},
		},
		"a lost change": {
			{ClientId: 0, Input: update(1, "a"), Output: ok(2, "a"), Call: 0, Return: 5},
			{ClientId: 1, Input: asked{}, Output: answer{"ok", seen{1, StatusPlaced, ""}}, Call: 6, Return: 7},
		},
		"a refusal that was made": {
			{ClientId: 0, Input: update(0, "a"), Output: answer{Kind: "refused"}, Call: 0, Return: 5},
			{ClientId: 1, Input: asked{}, Output: ok(2, "a"), Call: 6, Return: 7},
		},
		"unknown, made twice": {
			{ClientId: 0, Input: update(0, "a"), Output: answer{Kind: "unknown"}, Call: 0, Return: math.MaxInt64},
			{ClientId: 1, Input: asked{}, Output: ok(3, "a"), Call: 6, Return: 7},
		},
	} {
		if porcupine.CheckOperations(orderModel.ToModel(), history) {
			t.Errorf("%s passes", name)
		}
	}
	fine := []porcupine.Operation{
		{ClientId: 0, Input: update(0, "a"), Output: answer{Kind: "unknown"}, Call: 0, Return: math.MaxInt64},
		{ClientId: 1, Input: asked{}, Output: answer{"ok", seen{1, StatusPlaced, ""}}, Call: 6, Return: 7},
		{ClientId: 1, Input: asked{}, Output: ok(2, "a"), Call: 8, Return: 9},
	}
	if !porcupine.CheckOperations(orderModel.ToModel(), fine) {
		t.Error("a late change does not pass")
	}
}
