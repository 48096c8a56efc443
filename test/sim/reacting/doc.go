// Package reacting holds the rules of package react to their promises under virtual
// time, over the real store: one testing/synctest bubble has a scyllafake node, a
// broker, and a host on which processes with the same rules follow each other. One at
// a time: the Kafka client holds a lock while it waits for the other members of a
// group, and in a bubble time stands still while anything waits for a lock. What
// happens when partitions change hands is in the tests of package react, and in
// test/fault with real processes.
//
// A seed decides what is published and when, what each call of a plugin comes to
// (taken, refused, for good, late, never, a panic), at which of its messages to the
// database, or after which call, each process dies, and what the database does to
// whom. What must hold afterwards stands in promises_test.go; it is judged by the
// calls that plugins got, by the table of deliveries, and by the committed offsets.
//
// A failure names its seed, and how to run it again:
//
//	REACTING_FIRST=42 REACTING_SEEDS=1 go test ./test/sim/reacting -run TestSeeds
//
// A seed does not decide how goroutines that are ready at the same moment are
// interleaved, so a failure may take a few runs to come back (-count 20).
package reacting
