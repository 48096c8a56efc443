// Package relay publishes events from the outbox table to Kafka.
//
// A Relay reads the CDC log of the table twice: immediately with its tail reader, and
// after the confidence window with its sweep reader, which uses scylla-cdc-go. It orders
// the events of each aggregate by sequence, publishes them with an idempotent producer,
// and advances the checkpoint of a stream once all events that the sweep reader found
// are acknowledged. Each event is in its topic once, also after a crash: at its start a
// Relay reads its topics back to find published events. Without the right to read them,
// a crash repeats the events published after the last checkpoint; consumers that must
// not process an event twice compare the event id in the ce_id header. Order is
// guaranteed within an aggregate, not across aggregates.
//
// What it relies on, and what follows where that fails, is in docs/promises.md, and for each part in
// its package comment.
//
// docs/design/relay.md explains the design and its limits.
//
// It is a part of the program, and may change in any version.
package relay
