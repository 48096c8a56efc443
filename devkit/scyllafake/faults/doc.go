// Package faults makes a scyllafake node fail as real clusters fail: it
// refuses, delays and times out operations, drops connections, applies batches
// later as a batchlog replay does, leaves Paxos rounds undone, freezes, skews
// the node's clock, begins CDC generations, and splits tablets.
//
// An Injector is the engine's hook. Its rules say which operations are hit and
// what becomes of them; scenarios are rules that show what was recorded of
// real clusters of several nodes (test/testdata/golden: failures, batchlog,
// batchlog-generation, cas-generation). Handler offers the same over HTTP.
//
// There is one node and one copy of the data, so what takes several replicas to
// see is not to be had: a log row that one replica has and another has not
// (hints for a log are always dropped), or reads that disagree.
package faults
