// Package schedule stores messages until they are due and then writes them to
// the outbox.
//
// A Store writes, reads, lists and cancels waiting messages. A Scheduler runs
// in the relay's process and releases due messages: it writes the event of the
// message to the outbox, and the relay publishes it. Any number of schedulers
// may run; a lease selects the one that works. Two schedulers that both hold
// the lease are harmless.
//
// It is a part of the program, and may change in any version.
package schedule
