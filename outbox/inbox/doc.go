// Package inbox applies events once: for any consumer of the relay's topics, or
// of any other source whose events may be delivered more than once.
//
// # Fence: effects in the consumer's own table
//
// A Fence keeps the number of the last applied event, the mark, in a column of
// the consumer's own table, one for each partition:
//
//	ALTER TABLE shop.order_totals ADD (applied_seq bigint static, applied_id text static, applied_epoch bigint static)
//
// Apply writes the effect and the mark in one conditional batch of that
// partition (IF applied_seq = n-1). Both are applied or neither is. A duplicate
// and a gap are different results, and no table of ids grows. Two columns are optional. With
// applied_id, another event with the number of the last one is a *ConflictError rather than a
// duplicate: its source has given a number twice. With applied_epoch, the events of a source that
// was restored from a backup are applied although it gives numbers again: they are of a later
// epoch, which is compared before the number. Without it they are refused.
//
// The effect inside the fence is applied exactly once and in the order of the
// sequence numbers: after crashes, redelivery, reordering, lost responses, and
// with several consumers of one partition. FromAny and Increasing leave out events
// that arrive late; see Order. The first event of an epoch may be any whose number is at most the
// next one. So if it arrives before an earlier event of its epoch, as from another topic, the
// earlier one counts as a duplicate. Conditions:
//
//   - - The statements of the effect write one partition of the table of the
//     mark. ScyllaDB refuses a conditional batch of several tables or
//     partitions. Effects elsewhere need Once, or a table of their own whose
//     partitions are the aggregates.
//   - - Only conditional statements write or delete the columns that the effect writes.
//     Conditional statements take their write time from the database, others
//     from their client: a client whose clock is ahead hides later effects.
//     USING TIMESTAMP is not possible.
//   - - An effect that depends on rows of the partition reads them together with
//     the mark, in one SELECT at the serial consistency of the fence, and is
//     applied only if the mark was n-1. It is then not applied if this fence has
//     changed the partition in the meantime. If others write these rows too, such
//     as the fence of a second source, if numbers have holes, or if the mark is of
//     an earlier epoch, the effect needs a condition on the values read (IF sum = ?); Apply
//     returns ErrCondition if that has changed.
//   - - The mark stays. Delete rows, not partitions, also in effects: a deleted
//     partition has lost its mark, and redelivered events begin again at its
//     first number. DELETE with a range of clustering keys deletes all rows and
//     keeps the mark; in a table without clustering columns, set columns to null.
//     The mark has no TTL, also in a table with default_time_to_live, unless
//     FenceConfig.TTL sets one; it must then exceed the retention of the topic,
//     and the order is not FromOne.
//   - - All processes that apply to a table use the same serial consistency,
//     and sequence numbers of one source. A second source needs columns of its own.
//
// # Once: effects elsewhere
//
// A Once keeps a row for each event id: a lease while the effect runs, then its
// result. Effects elsewhere (HTTP calls, mails) are at least once, not exactly
// once: a consumer that dies between the effect and its mark leaves a lease that
// expires, and the effect runs again. Pass the id to the effect as its
// idempotency key; a receiver that honors it makes the effect exactly once. Once
// guarantees that
//
//   - - a stored result is returned to every later call, for OnceConfig.Keep;
//     the effect does not run again;
//   - - at most one call runs the effect of an id at a time, as long as effects
//     end with their context, and the clocks of the database's nodes agree
//     within a second.
//
// # Both
//
// Neither imports a Kafka client. With outbox.FromRecord, Event.AggregateID is
// the key, Event.Sequence the number and Event.Epoch its epoch, Event.ID with Event.Source the id.
//
// Conditional statements need a keyspace that supports them: ScyllaDB before
// 2025.4 has none in keyspaces with tablets. They need a quorum of the partition's
// replicas in all data centers, or with LocalSerial in that of the session. Apache
// Cassandra works as well.
package inbox
