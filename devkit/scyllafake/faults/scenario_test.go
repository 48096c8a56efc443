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

func TestFrozenReplica_AsRecorded(t *testing.T) {
	t.Parallel()
	readTimeout := func(table, level string, c engine.Consistency, data bool) cqlerr.Error {
		return cqlerr.Error{
			Code: cqlerr.ReadTimeout, Consistency: uint16(c), Received: 1, BlockFor: 2, DataPresent: data,
			Message: "Operation timed out for " + table + " - received only 1 responses from 2 CL=" + level + ".",
		}
	}
	checkOutcomes(t, newInjector(t, FrozenReplica(time.Minute)), []outcome{
		{name: "write", op: write(engine.OpWrite, engine.All, kv), want: writeTimeout("ks.kv", "ALL", engine.All, "SIMPLE"), after: 2 * time.Second, fate: engine.FateApply},
		{name: "write with CDC", op: write(engine.OpWrite, engine.All, ev), want: writeTimeout("ks.ev", "ALL", engine.All, "UNLOGGED_BATCH"), after: 2 * time.Second, fate: engine.FateApply},
		{name: "unlogged batch", op: write(engine.OpUnloggedBatch, engine.All, kv, kv), want: writeTimeout("ks.kv", "ALL", engine.All, "UNLOGGED_BATCH"), after: 2 * time.Second, fate: engine.FateApply},
		{name: "logged batch", op: write(engine.OpLoggedBatch, engine.All, kv, ev), want: batchlogTimeout, after: 2 * time.Second, fate: engine.FateLater},
		{name: "logged batch at ONE", op: write(engine.OpLoggedBatch, engine.One, kv, ev), want: batchlogTimeout, after: 2 * time.Second, fate: engine.FateLater},
		{name: "logged batch at ANY", op: write(engine.OpLoggedBatch, engine.Any, kv, ev), want: batchlogTimeout, after: 2 * time.Second, fate: engine.FateLater},
		{name: "conditional", op: engine.Op{Kind: engine.OpCAS, Keyspace: "ks", Table: "kv", Consistency: engine.All}, want: writeTimeout("ks.kv", "SERIAL", engine.Serial, "CAS"), after: 2 * time.Second},
		{name: "write with images", op: write(engine.OpWrite, engine.All, pre), want: readTimeout("ks.pre", "QUORUM", engine.Quorum, true), after: 10 * time.Second},
		{name: "read", op: read(engine.OpRead, engine.All), want: readTimeout("ks.kv", "ALL", engine.All, true), after: 5 * time.Second},
		{name: "serial read", op: read(engine.OpSerialRead, engine.Serial), want: readTimeout("ks.kv", "SERIAL", engine.Serial, false), after: 5 * time.Second},
		{name: "write at ONE", op: write(engine.OpWrite, engine.One, ev), passes: true},
		{name: "write at ANY", op: write(engine.OpWrite, engine.Any, kv), passes: true},
		{name: "unlogged batch at ONE", op: write(engine.OpUnloggedBatch, engine.One, kv, kv), passes: true},
		{name: "read at ONE", op: read(engine.OpRead, engine.One), passes: true},
	})
	checkOutcomes(t, newInjector(t, FrozenReplica(-1)), []outcome{
		{name: "logged batch, never", op: write(engine.OpLoggedBatch, engine.All, kv, ev), want: batchlogTimeout, after: 2 * time.Second, fate: engine.FateNormal},
	})
}

func TestDownReplica_AsRecorded(t *testing.T) {
	t.Parallel()
	unavailable := func(level string, c engine.Consistency, required, alive int32) cqlerr.Error {
		e := cqlerr.Error{Code: cqlerr.Unavailable, Consistency: uint16(c), Received: alive, BlockFor: required}
		e.Message = "Cannot achieve consistency level for cl " + level + ". Requires " + string('0'+required) + ", alive " + string('0'+alive)
		return e
	}
	all := unavailable("ALL", engine.All, 2, 1)
	checkOutcomes(t, newInjector(t, DownReplica()), []outcome{
		{name: "write", op: write(engine.OpWrite, engine.All, kv), want: all},
		{name: "write with CDC", op: write(engine.OpWrite, engine.All, ev), want: all},
		{name: "unlogged batch", op: write(engine.OpUnloggedBatch, engine.All, kv, kv), want: all},
		{name: "logged batch", op: write(engine.OpLoggedBatch, engine.All, kv, ev), want: unavailable("ONE", engine.One, 1, 0)},
		{name: "logged batch at ONE", op: write(engine.OpLoggedBatch, engine.One, kv, ev), want: unavailable("ONE", engine.One, 1, 0)},
		{name: "logged batch at ANY", op: write(engine.OpLoggedBatch, engine.Any, kv, ev), passes: true},
		{name: "conditional", op: engine.Op{Kind: engine.OpCAS, Keyspace: "ks", Table: "kv", Consistency: engine.All}, want: unavailable("SERIAL", engine.Serial, 2, 1)},
		{name: "write with images", op: write(engine.OpWrite, engine.All, pre), want: unavailable("QUORUM", engine.Quorum, 2, 1)},
		{name: "read", op: read(engine.OpRead, engine.All), want: all},
		{name: "serial read", op: read(engine.OpSerialRead, engine.Serial), want: unavailable("SERIAL", engine.Serial, 2, 1)},
		{name: "write at QUORUM", op: write(engine.OpWrite, engine.Quorum, kv), want: unavailable("QUORUM", engine.Quorum, 2, 1)},
		{name: "write at ONE", op: write(engine.OpWrite, engine.One, ev), passes: true},
		{name: "read at ONE", op: read(engine.OpRead, engine.One), passes: true},
	})
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

func TestJoiningNode_AsRecorded(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 21, 5, 30, 12, 0, time.UTC)
	in := New(nil, NewClock(func() time.Time { return at }), 1)
	in.MustAdd(in.JoiningNode(at.Add(9 * time.Second)))
	none := cqlerr.Error{Message: "cdc::metadata::get_stream: could not find any CDC stream (current time: 2026/11/21 05:30:12). Are we in the middle of a cluster upgrade?"}
	checkOutcomes(t, in, []outcome{
		{name: "write", op: write(engine.OpWrite, engine.One, ev), want: none},
		{name: "batch", op: write(engine.OpLoggedBatch, engine.One, kv, ev), want: none},
		{name: "without CDC", op: write(engine.OpWrite, engine.One, kv), passes: true},
		{name: "read", op: read(engine.OpRead, engine.One), passes: true},
	})
	at = at.Add(9 * time.Second)
	checkOutcomes(t, in, []outcome{{name: "later", op: write(engine.OpWrite, engine.One, ev), passes: true}})
}

func TestFailure_Messages(t *testing.T) {
	t.Parallel()
	two := engine.Two
	for want, f := range map[string]*Failure{
		"Operation failed for ks.kv - received 1 responses and 1 failures from 2 CL=ONE.": {Code: cqlerr.WriteFailure, Received: 1, NumFailures: 1},
		"Cannot achieve consistency level for cl TWO. Requires 2, alive 1":                {Code: cqlerr.Unavailable, Received: 1, Consistency: &two},
		"injected fault overloaded": {Code: cqlerr.Overloaded},
		"as told":                   {Code: cqlerr.Server, Message: "as told"},
	} {
		if got := f.error(write(engine.OpWrite, engine.One, kv)).Message; got != want {
			t.Errorf("message %q, want %q", got, want)
		}
	}
	if got := levelName(0x99); got != "0x0099" {
		t.Errorf("levelName() = %s", got)
	}
}
