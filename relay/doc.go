// Package relay carries events from the outbox table to Kafka.
//
// A Relay reads the table's CDC log with scylla-cdc-go, puts each aggregate's
// events in sequence, publishes them with an idempotent producer, and moves a
// stream's checkpoint once all before it is acknowledged. Delivery is at least
// once: a crash between acknowledgement and checkpoint repeats events, so
// consumers that must not see one twice compare the event id in the ce_id
// header. Order holds within an aggregate, not across them.
//
// DESIGN.md in this folder says how, and what it does not do.
package relay
