// Package schedule stores messages until they are due and then writes them to
// the outbox.
//
// A Store writes, reads, lists and cancels waiting messages. A Scheduler runs
// in the relay's process and releases due messages: it writes the event of the
// message to the outbox, and the relay publishes it. Any number of schedulers
// may run; a lease selects the one that works. Two schedulers that both hold
// the lease are harmless.
//
// # Premises
//
//   - The clocks of the database's nodes agree within minutes. Messages are due, their outbox rows
//     dated, and minutes closed CloseAfter later by them; a clock of a scheduler's host that is
//     wrong, or set, changes nothing.
//   - A row that was accepted may become visible later than that: in another data centre when its
//     hints arrive. So both ask all replicas first, and leave it while one is away. A row that only a
//     batchlog has by then is lost with its batch, whose writer has received no answer.
//
// It is a part of the program, and may change in any version.
package schedule
