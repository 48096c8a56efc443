package faults

import (
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
)

// Timeouts of a node with default settings.
const (
	WriteTimeoutAfter = 2 * time.Second
	ReadTimeoutAfter  = 5 * time.Second
	ScanTimeoutAfter  = 10 * time.Second // scans, and the read before a write with images
)

// BatchlogReplay returns a rule for the next logged batch, which reaches the batchlog
// but not its replicas: the client gets a write timeout BATCH, none of one. The batch
// is applied after each of the delays, with its own timestamp: each time with the same
// log row, in 5.1 with another one. Without delays it is never applied.
//
// Recorded with 5.1: a replica killed and back after 3 s, two holders of the batchlog: twice at
// 64 s. A replica frozen for 2 s: immediately, when it executes the write that waited,
// then at 20.5 s and 49.5 s.
func BatchlogReplay(after ...time.Duration) Rule {
	return oneBatch("batchlog replay", Effect{Failure: WriteTimeout(Batch, 0, 1)}, after)
}

// BatchLogTimeout returns a rule for the next logged batch, whose batchlog write times
// out: BATCH_LOG, at ONE, none of one. That does not mean that it is not applied: of
// four such batches two were, at a replay up to 64 s later, in 5.1 with two log rows
// each; the others never.
func BatchLogTimeout(after ...time.Duration) Rule {
	return oneBatch("batchlog timeout", Effect{Failure: WriteTimeout(BatchLog, 0, 1)}, after)
}

// CoordinatorCrash returns a rule for the next logged batch, whose coordinator crashes:
// the connection is lost, and the batch is applied after the delays. Recorded: when the
// frozen replica continues, then twice by replay 39 s later.
func CoordinatorCrash(after ...time.Duration) Rule {
	return oneBatch("coordinator crash", Effect{Disconnect: true}, after)
}

func oneBatch(name string, e Effect, after []time.Duration) Rule {
	e.Delay = WriteTimeoutAfter
	if len(after) > 0 {
		e.Fate, e.Later = engine.FateLater, after
	}
	return Rule{Name: name, Match: Match{Kinds: []engine.OpKind{engine.OpLoggedBatch}}, Count: 1, Effect: e}
}

// BatchlogReplayAcrossGeneration is BatchlogReplay with a CDC generation that starts in
// between: the log row appears late, in the stream of the time of the write, which is
// closed then. In 5.1 the replay fails forever, and neither the rows nor their log rows
// ever appear. generation is the delay until its start, the replay comes after it. It
// concerns keyspaces with vnodes; with tablets, split the table.
func BatchlogReplayAcrossGeneration(generation, replay time.Duration) Rule {
	r := BatchlogReplay(replay)
	r.Name = "batchlog replay across a generation"
	r.Effect.Generation = &Generation{In: generation}
	return r
}

// CASTimeout returns a rule for the next conditional statement or batch, which times
// out: CAS, at SERIAL. If decided, row and log row appear with the next conditional or
// SERIAL operation on the partition, with the ballot's timestamp; the response is
// immediate, as for a level that cannot be reached. If not, nothing was proposed and
// nothing is applied.
func CASTimeout(decided bool) Rule {
	e := Effect{Failure: WriteTimeout(CAS, 1, 2)}
	if decided {
		e.Fate = engine.FateDecided
	} else {
		e.Delay = WriteTimeoutAfter
	}
	return Rule{Name: "cas timeout", Match: Match{Kinds: []engine.OpKind{engine.OpCAS}}, Count: 1, Effect: e}
}

// CASAcrossGeneration returns a decided CASTimeout after which, with this delay, a CDC
// generation starts. Every conditional and SERIAL operation on the partition is then
// refused with "cdc: attempted to get a stream from an earlier generation", until CDC
// is turned off, the partition read at SERIAL, and CDC turned on again. The round is
// then finished without a log row.
func CASAcrossGeneration(generation time.Duration) Rule {
	r := CASTimeout(true)
	r.Name = "cas across a generation"
	r.Effect.Generation = &Generation{In: generation}
	return r
}

// FrozenReplica returns a rule for a node whose only fellow replica (two nodes,
// replication factor 2) does not respond but still counts as alive. Operations that
// need both replicas time out; writes are then applied on the remaining replica. Logged
// batches of several partitions time out at every level, since the batchlog is the
// other node's; afterwards they are applied, twice, after batchlog, or never when it is
// negative.
func FrozenReplica(batchlog time.Duration) Rule {
	decide := func(op engine.Op) (engine.Verdict, bool) {
		fail := func(delay time.Duration, f *Failure, fate engine.Fate, later ...time.Duration) (engine.Verdict, bool) {
			return engine.Verdict{Delay: delay, Err: f.error(op), Fate: fate, Later: later}, true
		}
		if op.Kind == engine.OpLoggedBatch {
			if batchlog < 0 {
				return fail(WriteTimeoutAfter, WriteTimeout(BatchLog, 0, 1), engine.FateNormal)
			}
			return fail(WriteTimeoutAfter, WriteTimeout(BatchLog, 0, 1), engine.FateLater, batchlog, batchlog)
		}
		switch op.Kind {
		case engine.OpSerialRead:
			f := ReadTimeout(1, 2)
			f.DataPresent = false
			return fail(ReadTimeoutAfter, f, engine.FateNormal)
		case engine.OpCAS:
			return fail(WriteTimeoutAfter, WriteTimeout(CAS, 1, 2), engine.FateNormal)
		}
		if !needsTwo(op.Consistency) {
			return engine.Verdict{}, false
		}
		if op.Kind == engine.OpRead {
			return fail(ReadTimeoutAfter, ReadTimeout(1, 2), engine.FateNormal)
		}
		if hasImages(op) {
			f := ReadTimeout(1, 2)
			level := imageLevel(op.Consistency)
			f.Consistency = &level
			return fail(ScanTimeoutAfter, f, engine.FateNormal)
		}
		return fail(WriteTimeoutAfter, WriteTimeout("", 1, 2), engine.FateApply)
	}
	return Rule{Name: "frozen replica", Effect: Effect{Decide: decide}}
}

// DownReplica returns a rule for a node whose only fellow replica (two nodes,
// replication factor 2) counts as down. Operations that need both replicas are refused
// immediately, and so are logged batches of several partitions at every level but ANY,
// because no second node can store the batchlog.
func DownReplica() Rule {
	decide := func(op engine.Op) (engine.Verdict, bool) {
		level := op.Consistency
		f := Unavailable(1, 2)
		switch {
		case op.Kind == engine.OpLoggedBatch && level != engine.Any:
			level, f = engine.One, Unavailable(0, 1)
		case op.Kind == engine.OpCAS:
			level = engine.Serial
		case op.Kind == engine.OpSerialRead:
		case !needsTwo(level):
			return engine.Verdict{}, false
		case hasImages(op):
			level = imageLevel(level)
		}
		f.Consistency = &level
		return engine.Verdict{Err: f.error(op)}, true
	}
	return Rule{Name: "down replica", Effect: Effect{Decide: decide}}
}

// needsTwo reports whether a level requires both of two replicas.
func needsTwo(c engine.Consistency) bool {
	switch c {
	case engine.Any, engine.One, engine.LocalOne:
		return false
	}
	return true
}

// imageLevel returns the level at which the row is read before a write with images.
func imageLevel(c engine.Consistency) engine.Consistency {
	switch c {
	case engine.Any:
		return engine.One
	case engine.All, engine.Serial:
		return engine.Quorum
	case engine.LocalSerial:
		return engine.LocalQuorum
	}
	return c
}

// JoiningNode returns a rule for a node that has just joined and serves CQL before its
// first generation starts: until the given time of the node's clock, every write to a
// table with CDC fails with 0000.
func (in *Injector) JoiningNode(until time.Time) Rule {
	decide := func(op engine.Op) (engine.Verdict, bool) {
		now := in.clock.Now()
		if !now.Before(until) || !in.logged(op) {
			return engine.Verdict{}, false
		}
		return engine.Verdict{Err: cqlerr.New(cqlerr.Server, "cdc::metadata::get_stream: could not find any CDC stream"+
			" (current time: %s). Are we in the middle of a cluster upgrade?", now.UTC().Format("2006/01/02 15:04:05"))}, true
	}
	return Rule{
		Name:   "joining node",
		Match:  Match{Kinds: []engine.OpKind{engine.OpWrite, engine.OpUnloggedBatch, engine.OpLoggedBatch, engine.OpCAS}},
		Effect: Effect{Decide: decide},
	}
}

// logged reports whether an operation writes to a table with CDC.
func (in *Injector) logged(op engine.Op) bool {
	for _, m := range op.Mutations {
		if m.Table.CDC != nil && m.Table.CDC.Enabled {
			return true
		}
	}
	return op.Kind == engine.OpCAS && in.node != nil && in.node.logged(op.Keyspace, op.Table)
}
