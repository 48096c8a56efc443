// Package bench measures how an outbox's events get to their topics: what a
// relay takes and costs, and what the same machine gives to the clients alone.
//
// Load comes at a fixed rate whatever the answers take, and the time of an event
// counts from when it was to be sent, so a system that stalls is not asked less.
// The relay is a process of its own, so that its processor time and memory are
// told apart from those of the load, the consumer, the database and the broker.
package bench
