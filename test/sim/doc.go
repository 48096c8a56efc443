// Package sim holds the whole system to its promises under virtual time.
//
// One testing/synctest bubble has everything: a scyllafake node, a kfake
// broker, the order service with its customers, and a relay, with the same
// unmodified clients between them as in production, over connections in
// memory. Hours pass in a second, so a test can afford an outage of six.
//
// A scenario says what goes wrong and when. What must hold afterwards is the
// same for all of them and stands in promises.go; it is judged by the topics,
// the tables and the CDC logs alone, never by what the relay says of itself.
//
// A seed decides what customers do, how long messages take and, in TestSeeds,
// what goes wrong when (plan.go, kinds*.go). It does not decide how the
// scheduler interleaves goroutines that are ready at the same moment, so a
// failure may take a few runs of its seed to come back. Package run tries many
// seeds in processes of their own, says how often one that failed fails, and
// how to run it again:
//
//	make sim SEEDS=10000
//	make sim SEEDS=1 FIRST=42
//
// A plan that found something stays in testdata/seeds, with what it was, and is
// tried always; `go run ./test/sim/run -shrink FILE` first leaves out of it what
// is not needed.
package sim
