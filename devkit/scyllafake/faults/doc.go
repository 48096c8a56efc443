// Package faults makes a scyllafake node fail as real clusters fail: it refuses, delays
// and times out operations, drops connections, applies batches later as a batchlog
// replay does, leaves Paxos rounds undone, freezes, skews the node's clock, begins CDC
// generations, and splits tablets.
//
// An Injector is the engine's hook. Its rules define which operations are hit and with
// which effect; scenarios are rules that reproduce recordings of real clusters of
// several nodes (test/testdata/golden: failures, batchlog, batchlog-generation,
// cas-generation).
//
// There is one node and one copy of the data, so effects of several replicas cannot be
// reproduced: a log row that only one replica has (hints for a log are always dropped),
// or reads that disagree.
package faults
