package appending

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/scyllatest"
	"github.com/scylla-outbox/scylla-outbox/internal/sessions"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/test/seeds"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// account is a row of the table of a service: its event n carries the balance after change n.
type account struct {
	Balance int64 `json:"balance"`
	version int64
}

const accounts = "CREATE TABLE accounts (id uuid PRIMARY KEY, balance bigint, version bigint)"

func bubble(t *testing.T, conf scyllafake.Config, f func(*testing.T, world.World)) {
	t.Helper()
	conf.Seed = seeds.Of(t)
	scyllatest.Bubble(t, func(t *testing.T) {
		node := scyllatest.Node(t, conf)
		c := scyllatest.Cluster(node, "outbox")
		c.Timeout, c.Consistency = 2*time.Second, gocql.LocalQuorum
		s, err := c.CreateSession()
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Query(accounts).Exec(); err != nil {
			t.Fatal(err)
		}
		f(t, world.World{Node: node, Session: s})
		sessions.Close(s)
		if err := node.Close(); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * time.Minute) // the driver's timers
	})
}

func newAppender(t *testing.T, s *gocql.Session, cfg outbox.AppenderConfig) *outbox.Appender {
	t.Helper()
	a, err := outbox.NewAppender(t.Context(), s, outbox.DefaultTable, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func event(id, aggregate gocql.UUID, a account) outbox.Event {
	payload, _ := json.Marshal(a) // cannot fail
	return outbox.Event{ID: outbox.IDFromUUID(id), AggregateID: outbox.IDFromUUID(aggregate), Sequence: a.version, AggregateType: "account", Type: "BalanceChanged", Payload: payload, CreatedAt: time.Now()}
}

// store writes the row of an account as a service does: repeated, late and by several processes.
func store(s *gocql.Session, e *outbox.Event) error {
	var a account
	if err := json.Unmarshal(e.Payload, &a); err != nil {
		return err
	}
	return s.Query("INSERT INTO accounts (id, balance, version) VALUES (?, ?, ?) USING TIMESTAMP ?", e.AggregateID, a.Balance, e.Sequence, e.Sequence).Exec()
}

func load(s *gocql.Session, id gocql.UUID) (a account, err error) {
	err = s.Query("SELECT balance, version FROM accounts WHERE id = ?", id).Scan(&a.Balance, &a.version)
	if errors.Is(err, gocql.ErrNotFound) {
		err = nil
	}
	return a, err
}

// request is a change of an aggregate, from its first attempt to its success, or one attempt that
// found another event under its number.
type request struct{ id string }

type response struct {
	id       string // the event with the number
	sequence int64
}

// register is the specification of an aggregate: a list of event ids that grows at its end.
var register = porcupine.Model{
	Init: func() any { return "" },
	Step: func(state, input, output any) (bool, any) {
		list, in, out := strings.Fields(state.(string)), input.(request), output.(response)
		if n := int64(len(list)); in.id == out.id {
			return n == out.sequence-1, state.(string) + " " + in.id
		}
		return out.sequence <= int64(len(list)) && list[out.sequence-1] == out.id, state
	},
	DescribeOperation: func(in, out any) string { return fmt.Sprintf("%+v -> %+v", in, out) },
}

// writer changes one account several times.
type writer struct {
	t         *testing.T
	session   *gocql.Session
	appender  *outbox.Appender
	aggregate gocql.UUID
	rnd       *rand.Rand
	client    int
	record    func(porcupine.Operation)
	young     bool // passes the age of its rows
}

// change adds one to the balance, once, whatever happens to its statements.
func (w *writer) change(ctx context.Context) {
	id, began := outbox.NewID().UUID(), time.Now()
	record := func(call time.Time, e *outbox.Event) {
		w.record(porcupine.Operation{
			ClientId: w.client, Call: call.UnixNano(), Return: time.Now().UnixNano(),
			Input: request{id.String()}, Output: response{e.ID.String(), e.Sequence},
		})
	}
	var o outbox.AppendOptions
	for {
		a, err := load(w.session, w.aggregate)
		if err != nil {
			continue
		}
		a.Balance, a.version = a.Balance+1, a.version+1
		e := event(id, w.aggregate, a)
		if o.SearchFrom == 0 {
			o.SearchFrom = e.Sequence
		}
		if w.young {
			o.VersionWrittenAt = time.Now()
		}
		call := time.Now()
		r, err := w.appender.AppendNext(ctx, e, o)
		if err == nil {
			record(began, &r.Event)
			if w.rnd.Float64() < 0.3 {
				return // dies between its event and its row
			}
			w.store(&r.Event)
			return
		}
		if lost, ok := errors.AsType[*outbox.ConflictError](err); ok {
			record(call, &lost.Events[0])
			for i := range lost.Events {
				w.store(&lost.Events[i])
			}
		}
		// After an unknown outcome, and after nothing was stored, the change is computed again.
	}
}

// store writes a row until it is stored.
func (w *writer) store(e *outbox.Event) {
	for n := 0; ; n++ {
		err := store(w.session, e)
		if err == nil {
			return
		}
		if n == 100 {
			panic(err) // it is no fault that passes
		}
	}
}

// lossy loses requests and responses without the driver's knowledge. It counts them.
func lossy(seed uint64, dropped *atomic.Int64) func(context.Context, func(context.Context) error) error {
	var mu sync.Mutex
	rnd := rand.New(rand.NewPCG(seed, 1))
	errLost := errors.New("lost")
	return func(ctx context.Context, statement func(context.Context) error) error {
		mu.Lock()
		p := rnd.Float64()
		mu.Unlock()
		if p < 0.15 {
			dropped.Add(1)
			return errLost
		}
		if err := statement(ctx); err != nil || p > 0.4 {
			return err
		}
		dropped.Add(1)
		return errLost
	}
}

func size(name string, short, long int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	if testing.Short() {
		return short
	}
	return long
}

// Concurrent writers lose, double and skip nothing, whatever is lost around them, on both
// versions of the database: each aggregate is a linearizable register. A sweep then makes the
// rows equal to the events. APPEND_AGGREGATES=100 runs the size of docs/testing.md.
func TestAppendNext_ConcurrentWriters(t *testing.T) {
	for name, conf := range versions {
		t.Run(name, func(t *testing.T) {
			bubble(t, conf, func(t *testing.T, w world.World) {
				aggregates, writers, changes := size("APPEND_AGGREGATES", 3, 12), size("APPEND_WRITERS", 8, 8), size("APPEND_CHANGES", 6, 25)
				seed := seeds.Of(t)
				var rules []int
				for kind, effect := range map[engine.OpKind][]faults.Effect{
					engine.OpCAS:   {faults.CASTimeout(true).Effect, faults.CASTimeout(false).Effect},
					engine.OpWrite: {{Failure: faults.WriteTimeout(faults.Simple, 0, 1), Fate: engine.FateApply}, {Failure: faults.WriteTimeout(faults.Simple, 0, 1), Fate: engine.FateNormal}},
				} {
					for _, e := range effect {
						rules = append(rules, w.Node.Faults().MustAdd(faults.Rule{Match: faults.Match{Kinds: []engine.OpKind{kind}}, Probability: 0.08, Effect: e}))
					}
				}
				var dropped atomic.Int64
				cfg := outbox.AppenderConfig{Budget: 2 * time.Second, AttemptTimeout: time.Second, Attempt: lossy(seed, &dropped)}
				a := newAppender(t, w.Session, cfg)
				ids := make([]gocql.UUID, aggregates)
				histories := make([][]porcupine.Operation, aggregates)
				var mu sync.Mutex
				var wg sync.WaitGroup
				for i := range ids {
					ids[i] = outbox.NewID().UUID()
					for c := range writers {
						p := &writer{
							t: t, session: w.Session, appender: a, aggregate: ids[i], client: c, young: c%2 == 0,
							rnd: rand.New(rand.NewPCG(seed, uint64(100*i+c))),
							record: func(op porcupine.Operation) {
								mu.Lock()
								defer mu.Unlock()
								histories[i] = append(histories[i], op)
							},
						}
						wg.Go(func() {
							for range changes {
								p.change(t.Context())
							}
						})
					}
				}
				wg.Wait()
				injected := 0
				for _, rule := range rules {
					injected += w.Node.Faults().Hits(rule)
				}
				w.Node.Faults().Clear()
				calm := newAppender(t, w.Session, outbox.AppenderConfig{})
				swept := mustSweep(t, calm, rows(w.Session))
				all := make(map[gocql.UUID]bool)
				lost, twice, gaps, unequal, want := 0, 0, 0, 0, writers*changes
				for i, id := range ids {
					events, err := calm.Since(t.Context(), &outbox.Event{AggregateID: outbox.IDFromUUID(id)}, 1)
					if err != nil {
						t.Fatal(err)
					}
					lost += max(0, want-len(events))
					for n := range events {
						if all[events[n].ID.UUID()] {
							twice++
						}
						all[events[n].ID.UUID()] = true
						if events[n].Sequence != int64(n+1) {
							gaps++
						}
					}
					if got, err := load(w.Session, id); err != nil || got.Balance != int64(want) || got.version != int64(len(events)) {
						unequal++
						t.Errorf("aggregate %d: balance %d at version %d, %d events, %v; want %d", i, got.Balance, got.version, len(events), err, want)
					}
					if result := porcupine.CheckOperationsTimeout(register, histories[i], time.Minute); result != porcupine.Ok {
						t.Errorf("the history of aggregate %d is not linearizable: %s", i, result)
					}
				}
				t.Logf("%d aggregates x %d writers x %d changes, %d faults of the database, %d lost statements and responses: %d events, %d lost, %d twice, %d gaps, %d unequal balances; %d rows lagged at the end",
					aggregates, writers, changes, injected, dropped.Load(), len(all), lost, twice, gaps, unequal, swept.Events)
				if lost+twice+gaps > 0 || len(all) != aggregates*want {
					t.Errorf("%d events, %d lost, %d twice, %d gaps; want %d events", len(all), lost, twice, gaps, aggregates*want)
				}
			})
		})
	}
}

var versions = map[string]scyllafake.Config{
	"5.1":            {Tokens: 4, Version: "5.1"},
	"2026.1 vnodes":  {Tokens: 4, Vnodes: true},
	"2026.1 tablets": {Tokens: 4},
}
