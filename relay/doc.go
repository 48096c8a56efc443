// Package relay carries events from the outbox table to Kafka.
//
// A Relay reads the table's CDC log twice: at once, by a tail of its own, and
// when it is settled, by scylla-cdc-go. It puts each aggregate's events in
// sequence, publishes them with an idempotent producer, and moves a stream's
// checkpoint once all that the second reading showed is acknowledged. An event
// is in its topic once, after a crash too: at its start a Relay reads its topics
// back to learn what is out. Without the right to read them a crash repeats what
// went out after the last checkpoint, so consumers that must not see one twice
// compare the event id in the ce_id header. Order holds within an aggregate,
// not across them.
//
// docs/design/relay.md explains how, and what it does not do.
package relay
