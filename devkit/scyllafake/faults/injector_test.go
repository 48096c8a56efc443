package faults

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/store"
)

// write is a write to some tables of keyspace ks.
func write(kind engine.OpKind, level engine.Consistency, tables ...*catalog.Table) engine.Op {
	op := engine.Op{Kind: kind, Keyspace: "ks", Table: tables[0].Name, Consistency: level}
	for _, t := range tables {
		op.Mutations = append(op.Mutations, &store.Mutation{Table: t})
	}
	return op
}

func read(kind engine.OpKind, level engine.Consistency) engine.Op {
	return engine.Op{Kind: kind, Keyspace: "ks", Table: "kv", Consistency: level}
}

func table(name string, cdc *catalog.CDC) *catalog.Table {
	return &catalog.Table{Keyspace: "ks", Name: name, CDC: cdc}
}

var (
	kv = table("kv", nil)
	ev = table("ev", &catalog.CDC{Enabled: true})
)

func newInjector(t *testing.T, rules ...Rule) *Injector {
	t.Helper()
	in := New(nil, NewClock(nil), 1, nil)
	for _, r := range rules {
		if _, err := in.Add(r); err != nil {
			t.Fatalf("Add(%q) error = %v", r.Name, err)
		}
	}
	return in
}

func refusal() Effect { return Effect{Failure: Refuse(cqlerr.Overloaded, "busy")} }

func TestInjector_Matches(t *testing.T) {
	t.Parallel()
	one := write(engine.OpWrite, engine.One, kv)
	for _, tt := range []struct {
		name  string
		match Match
		op    engine.Op
		want  bool
	}{
		{"everything", Match{}, one, true},
		{"keyspace", Match{Keyspace: "ks"}, one, true},
		{"other keyspace", Match{Keyspace: "other"}, one, false},
		{"table", Match{Keyspace: "ks", Table: "kv"}, one, true},
		{"other table", Match{Table: "ev"}, one, false},
		{"second table of a batch", Match{Table: "ev"}, write(engine.OpLoggedBatch, engine.One, kv, ev), true},
		{"table and keyspace of different mutations", Match{Keyspace: "x", Table: "ev"}, write(engine.OpLoggedBatch, engine.One, kv, ev), false},
		{"kind", Match{Kinds: []engine.OpKind{engine.OpRead, engine.OpWrite}}, one, true},
		{"other kind", Match{Kinds: []engine.OpKind{engine.OpRead}}, one, false},
		{"function", Match{Func: func(op engine.Op) bool { return op.Table == "no" }}, one, false},
	} {
		in := newInjector(t, Rule{Match: tt.match, Effect: refusal()})
		if got := in.Before(t.Context(), tt.op).Err != nil; got != tt.want {
			t.Errorf("%s: hit = %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestInjector_SkipCountAndOrder(t *testing.T) {
	t.Parallel()
	in := newInjector(t)
	first := in.MustAdd(Rule{Name: "first", Skip: 2, Count: 2, Effect: refusal()})
	in.MustAdd(Rule{Name: "second", Count: 1, Effect: Effect{Delay: time.Hour}})
	var got []string
	for range 6 {
		switch v := in.Before(t.Context(), read(engine.OpRead, engine.One)); {
		case v.Err != nil:
			got = append(got, "refused")
		case v.Delay != 0:
			got = append(got, "late")
		default:
			got = append(got, "ok")
		}
	}
	want := []string{"late", "ok", "refused", "refused", "ok", "ok"}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("operations went %v, want %v", got, want)
		}
	}
	if err := in.Remove(first); in.Hits(first) != 2 || err != nil {
		t.Errorf("%d hits, Remove() error = %v; want 2 and none", in.Hits(first), err)
	}
	if err := in.Remove(first); !errors.Is(err, ErrNoRule) {
		t.Errorf("Remove() of a removed rule error = %v", err)
	}
	if in.Clear(); len(in.rules) != 0 || in.Hits(first) != 0 {
		t.Error("rules are left after Clear")
	}
}

func TestInjector_ProbabilityRepeatsWithItsSeed(t *testing.T) {
	t.Parallel()
	run := func(seed uint64) (hits int, pattern [200]bool) {
		in := New(nil, nil, seed, nil)
		id := in.MustAdd(Rule{Probability: 0.3, Effect: refusal()})
		for i := range pattern {
			pattern[i] = in.Before(t.Context(), read(engine.OpRead, engine.One)).Err != nil
		}
		return in.Hits(id), pattern
	}
	n, a := run(7)
	if _, b := run(7); a != b {
		t.Error("equal seeds give different faults")
	}
	if _, b := run(8); a == b {
		t.Error("different seeds give equal faults")
	}
	if n < 30 || n > 90 {
		t.Errorf("%d of 200 hit at probability 0.3", n)
	}
}

func TestInjector_FreezeAndThaw(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		in := newInjector(t)
		in.Freeze()
		start := time.Now()
		time.AfterFunc(time.Minute, in.Thaw)
		if v := in.Before(t.Context(), read(engine.OpRead, engine.One)); v.Err != nil || v.Disconnect || time.Since(start) != time.Minute {
			t.Errorf("Before() = %+v after %v, want to pass after a minute", v, time.Since(start))
		}
		// A rule freezes only operations that it hits, each until the next Thaw.
		in.MustAdd(Rule{Match: Match{Table: "ev"}, Effect: Effect{Freeze: true}})
		if v := in.Before(t.Context(), read(engine.OpRead, engine.One)); v.Err != nil {
			t.Errorf("Before() = %+v", v)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if v := in.Before(ctx, write(engine.OpWrite, engine.One, ev)); !v.Disconnect {
			t.Errorf("Before() = %+v, want the connection closed when the request ends", v)
		}
	})
}

func TestInjector_RefusesBadRules(t *testing.T) {
	t.Parallel()
	in := New(nil, nil, 1, nil)
	cas := Match{Kinds: []engine.OpKind{engine.OpCAS}}
	for name, r := range map[string]Rule{
		"no effect":           {},
		"negative skip":       {Skip: -1, Effect: refusal()},
		"negative count":      {Count: -1, Effect: refusal()},
		"probability":         {Probability: 1.5, Effect: refusal()},
		"negative delay":      {Effect: Effect{Delay: -1}},
		"two ends":            {Effect: Effect{Disconnect: true, Failure: Refuse(cqlerr.Overloaded, "")}},
		"later without times": {Effect: Effect{Disconnect: true, Fate: engine.FateLater}},
		"times without later": {Effect: Effect{Disconnect: true, Later: []time.Duration{1}}},
		"no node":             {Match: cas, Effect: Effect{Generation: &Generation{}}},
	} {
		if _, err := in.Add(r); err == nil {
			t.Errorf("%s: Add() succeeded", name)
		}
	}
	if len(in.rules) != 0 {
		t.Error("bad rules were added")
	}
}

func TestClock(t *testing.T) {
	t.Parallel()
	at := time.Unix(1000, 0)
	c := NewClock(func() time.Time { return at })
	c.SetSkew(-3 * time.Second)
	if got := c.Now(); !got.Equal(time.Unix(997, 0)) || c.Skew() != -3*time.Second {
		t.Errorf("Now() = %v, Skew() = %v", got, c.Skew())
	}
	if NewClock(nil).Now().IsZero() {
		t.Error("a clock over nothing does not run")
	}
}

// The next hook decides operations that the rules let pass.
func TestInjector_Next(t *testing.T) {
	t.Parallel()
	in := New(nil, nil, 1, newInjector(t, Rule{Effect: Effect{Disconnect: true}}))
	in.MustAdd(Rule{Match: Match{Table: "ev"}, Effect: refusal()})
	if v := in.Before(t.Context(), write(engine.OpWrite, engine.One, ev)); v.Err == nil || v.Disconnect {
		t.Errorf("the rule does not count first: %+v", v)
	}
	if v := in.Before(t.Context(), write(engine.OpWrite, engine.One, kv)); !v.Disconnect {
		t.Errorf("the next hook does not decide: %+v", v)
	}
}
