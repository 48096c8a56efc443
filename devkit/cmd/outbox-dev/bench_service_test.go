package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/devkit/bench"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/scyllatest"
	"github.com/scylla-outbox/scylla-outbox/schema"
)

// The ceiling is valid only if the client alone writes the rows of the service.
func TestBench_TheClientAloneWritesTheSameRows(t *testing.T) {
	t.Parallel()
	node, session := scyllatest.Start(t)
	r, err := record(t.Context(), scyllatest.Cluster(node, schema.DefaultKeyspace), session, 100)
	if err != nil {
		t.Fatal(err)
	}
	// The rows that a service stores, and how many of them a repetition adds.
	tables := map[string]int{"orders": 2, "outbox_messages": 3, "orders_by_customer": 2, "customer_months": 1, "idempotency_keys": 1}
	cells := func() map[string]int {
		out := map[string]int{}
		for table := range tables {
			rows, err := session.Query("SELECT * FROM " + table).Iter().SliceMap()
			if err != nil {
				t.Fatal(err)
			}
			out[table+" rows"] = len(rows)
			for _, row := range rows {
				for name, v := range row {
					if s, ok := v.(string); v != nil && (!ok || s != "") {
						out[table+"."+name]++
					}
				}
			}
		}
		return out
	}
	before := cells()
	for i, what := range []*bench.Recorded{r.order, r.keyedOrder, r.message} {
		if err := what.Send(t.Context(), int64(i)); err != nil {
			t.Fatal(err)
		}
	}
	after := cells()
	for table, n := range tables {
		if before[table+" rows"] != n {
			t.Errorf("%s: the services wrote %d rows, want %d", table, before[table+" rows"], n)
		}
	}
	for name, n := range before {
		want := 2 * n
		switch {
		case after[name] == want:
		// Each recorded order has a customer of its own.
		case strings.HasPrefix(name, "customer_months") && after[name] == 3:
		default:
			t.Errorf("%s: %d, with the repetition %d, want %d", name, n, after[name], want)
		}
	}
	if len(after) != len(before) {
		t.Errorf("other columns: %v, want %v", after, before)
	}
	if got, want := r.keyedOrder.String(), "1 conditional insert and 1 batch of 4 rows"; got != want {
		t.Errorf("an order with a key is %s, want %s", got, want)
	}
}

// With a data center to stay in each of its sessions has a policy of its own.
func TestBenchServe_WithALocalDatacenter(t *testing.T) {
	t.Parallel()
	node := scyllatest.Node(t, scyllafake.Config{Addr: "127.0.0.1:0", Tokens: 4})
	t.Cleanup(func() {
		if err := node.Close(); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	root := newRoot(io.Discard, untilServing(func() { cancel(errServing) }))
	root.SetArgs([]string{"bench", "serve", "--scylla-hosts", node.Addr(), "--scylla-local-dc", "datacenter1", "--addr", "127.0.0.1:0", "--ops-addr", "127.0.0.1:0"})
	if err := root.ExecuteContext(ctx); err != nil || !errors.Is(context.Cause(ctx), errServing) {
		t.Errorf("it ended with %v, because %v; want a server that served", err, context.Cause(ctx))
	}
}

var errServing = errors.New("it serves")

// untilServing is a log that calls itself when a line reports that something serves.
type untilServing func()

func (f untilServing) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("serving")) {
		f()
	}
	return len(p), nil
}

// The goals under overload compare a phase with the same database, and skip figures that were not
// measured.
func TestOverloadGoals(t *testing.T) {
	t.Parallel()
	phase := func(what, load string, rate, p99, refusal float64) bench.Phase {
		p := bench.Phase{What: what, Kind: bench.Whole, Load: load}
		p.Served.PerSecond, p.Sent.P99, p.PatientRefusal.P99, p.Refusal.P99, p.Done = rate, p99, refusal, 20*refusal, 1
		p.Process, p.Database, p.Caller = 100, 50, 25
		return p
	}
	r := &bench.ServiceReport{Phases: []bench.Phase{
		phase("", loadFull, 20_000, 30, 0), phase("", overloadPhase(2), 19_000, 40, 3),
		phase(whatLimited, loadFull, 2000, 30, 0), phase(whatLimited, loadHalf, 1000, 5, 0), phase(whatLimited, overloadPhase(2), 1900, 15, 1.5),
	}}
	got := orderGoals(r, "offered 1/s", []float64{2, 5}) // without calm, raw and bare
	want := "limited database, service, offered 2x its ceiling: serves 1900/s, 95 % of itself as fast as it answers (the goal is 90); p99 15.0 ms, 3.0 times offered half of its ceiling (the goal is below 4); " +
		"a refusal takes 1.5 ms at p99 for callers that keep to Retry-After (the goal is 5), 30.0 ms for others. Busy processors: service 0.19, database 0.10, load 0.05."
	if len(got) != 1 || got[0] != want {
		t.Errorf("goals are %q, want %q", got, want)
	}
}

// A rate that is a multiple of a ceiling needs the row of the ceiling.
func TestBenchOrders_RefusesRatesWithoutACeiling(t *testing.T) {
	t.Parallel()
	root := newRoot(io.Discard, io.Discard)
	root.SetArgs([]string{"bench", "orders", "--only", "offered 2x"})
	if err := root.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "--only") {
		t.Errorf("it ended with %v, want an error that names --only", err)
	}
}
