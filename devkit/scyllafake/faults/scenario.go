package faults

import (
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
)

// Timeouts of a node with default settings.
const (
	WriteTimeoutAfter = 2 * time.Second
	ReadTimeoutAfter  = 5 * time.Second
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
