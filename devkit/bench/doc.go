// Package bench measures how an outbox's events get to their topics: the latency and
// cost of a relay, and the rates of the clients alone on the same machine.
//
// Load comes at a fixed rate, independent of the responses. The time of an event counts
// from when it was to be sent, so a system that stalls does not receive less load. The
// relay is a process of its own, which separates its processor time and memory from
// the load, the consumer, the database and the broker.
package bench
