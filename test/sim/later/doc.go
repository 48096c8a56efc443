// Package later holds the scheduler of messages to its promises under virtual
// time: a year passes in part of a second.
//
// One testing/synctest bubble has a scyllafake node, two message services with
// their callers, and up to four schedulers, each over connections of its own.
// A seed decides what callers ask for and when, whose clock is wrong by how
// much, at which of its messages to the database each process dies (with the
// message carried out or not), and what the database does to whom. What must
// hold afterwards stands in promises_test.go; it is judged by what callers were
// told, by the outbox and by its CDC log alone.
//
// A failure names its seed, and how to run it again:
//
//	LATER_FIRST=42 LATER_SEEDS=1 go test ./test/sim/later -run TestSeeds
//
// A seed does not decide how goroutines that are ready at the same moment are
// interleaved, so a failure may take a few runs to come back (-count 20).
package later
