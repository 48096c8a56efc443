// Package schedule keeps messages until their time and hands them to the outbox.
//
// A Store writes, reads, lists and takes back messages that wait. A Scheduler
// runs in the relay's process and releases what is due: it writes the message's
// event to the outbox, from where the relay publishes it like any other. Any
// number of schedulers may run; one works, by a lease, and two that both believe
// to have it do no harm.
package schedule
