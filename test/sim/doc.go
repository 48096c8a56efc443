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
// A seed decides what customers do, how long messages take and, in TestRandom,
// what goes wrong when. It does not decide how the scheduler interleaves
// goroutines that are ready at the same moment, so a failure may take a few
// runs of its seed to come back:
//
//	SIM_SEED=42 go test ./test/sim -run TestRandom -count=5
//
// SIM_RUNS is how many seeds TestRandom tries.
package sim
