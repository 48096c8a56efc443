package faults

import (
	"errors"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
)

// outcome is an answer of the recorded case "timeouts" of failures.jsonl.
type outcome struct {
	name   string
	op     engine.Op
	want   cqlerr.Error // Code 0 and no message: it passes
	passes bool
	after  time.Duration
	fate   engine.Fate
}

func checkOutcomes(t *testing.T, in *Injector, tests []outcome) {
	t.Helper()
	for _, tt := range tests {
		v := in.Before(t.Context(), tt.op)
		if tt.passes {
			if v.Err != nil || v.Delay != 0 || v.Fate != engine.FateNormal {
				t.Errorf("%s: %+v, want to pass", tt.name, v)
			}
			continue
		}
		var got *cqlerr.Error
		if !errors.As(v.Err, &got) {
			t.Errorf("%s: passed, want %v", tt.name, &tt.want)
			continue
		}
		got.ID, tt.want.ID = nil, nil
		same := got.Code == tt.want.Code && got.Message == tt.want.Message && got.Consistency == tt.want.Consistency &&
			got.Received == tt.want.Received && got.BlockFor == tt.want.BlockFor && got.WriteType == tt.want.WriteType &&
			got.DataPresent == tt.want.DataPresent
		if !same || v.Delay != tt.after || v.Fate != tt.fate {
			t.Errorf("%s:\ngot  %+v after %v, fate %d\nwant %+v after %v, fate %d", tt.name, *got, v.Delay, v.Fate, tt.want, tt.after, tt.fate)
		}
	}
}

func writeTimeout(table, level string, c engine.Consistency, writeType string) cqlerr.Error {
	return cqlerr.Error{
		Code: cqlerr.WriteTimeout, Consistency: uint16(c), Received: 1, BlockFor: 2, WriteType: writeType,
		Message: "Operation timed out for " + table + " - received only 1 responses from 2 CL=" + level + ".",
	}
}

var batchlogTimeout = cqlerr.Error{
	Code: cqlerr.WriteTimeout, Consistency: uint16(engine.One), BlockFor: 1, WriteType: "BATCH_LOG",
	Message: "Operation timed out for system.batchlog - received only 0 responses from 1 CL=ONE.",
}

func TestScenarios_ErrorsAsRecorded(t *testing.T) {
	t.Parallel()
	batch := write(engine.OpLoggedBatch, engine.One, ev, kv)
	timeout := cqlerr.Error{
		Code: cqlerr.WriteTimeout, Consistency: uint16(engine.One), BlockFor: 1, WriteType: "BATCH",
		Message: "Operation timed out for ks.ev - received only 0 responses from 1 CL=ONE.",
	}
	cas := engine.Op{Kind: engine.OpCAS, Keyspace: "ks", Table: "kv", Consistency: engine.Quorum}
	for _, s := range []struct {
		rule Rule
		outcome
	}{
		{BatchlogReplay(64*time.Second, 64*time.Second), outcome{op: batch, want: timeout, after: 2 * time.Second, fate: engine.FateLater}},
		{BatchlogReplay(), outcome{op: batch, want: timeout, after: 2 * time.Second}},
		{BatchLogTimeout(time.Second), outcome{op: batch, want: batchlogTimeout, after: 2 * time.Second, fate: engine.FateLater}},
		{CASTimeout(true), outcome{op: cas, want: writeTimeout("ks.kv", "SERIAL", engine.Serial, "CAS"), fate: engine.FateDecided}},
		{Rule{Name: "unavailable for a conditional statement", Count: 1, Effect: Effect{Failure: Unavailable(1, 2)}}, outcome{op: cas, want: cqlerr.Error{
			Code: cqlerr.Unavailable, Consistency: uint16(engine.Serial), Received: 1, BlockFor: 2,
			Message: "Cannot achieve consistency level for cl SERIAL. Requires 2, alive 1",
		}}},
		{CASTimeout(false), outcome{op: cas, want: writeTimeout("ks.kv", "SERIAL", engine.Serial, "CAS"), after: 2 * time.Second}},
	} {
		s.name = s.rule.Name
		again := s.outcome
		again.passes = true
		checkOutcomes(t, newInjector(t, s.rule), []outcome{s.outcome, again})
	}
	if v := newInjector(t, CoordinatorCrash(time.Second)).Before(t.Context(), batch); !v.Disconnect || v.Fate != engine.FateLater || v.Err != nil {
		t.Errorf("coordinator crash: %+v", v)
	}
}

func TestFailure_Messages(t *testing.T) {
	t.Parallel()
	two := engine.Two
	for want, f := range map[string]*Failure{
		"Cannot achieve consistency level for cl TWO. Requires 2, alive 1": {Code: cqlerr.Unavailable, Received: 1, Consistency: &two},
		"injected fault 1001": {Code: cqlerr.Overloaded},
		"by the scenario":     {Code: cqlerr.Server, Message: "by the scenario"},
	} {
		if got := f.error(write(engine.OpWrite, engine.One, kv), "batchlog").Message; got != want {
			t.Errorf("message %q, want %q", got, want)
		}
	}
}
