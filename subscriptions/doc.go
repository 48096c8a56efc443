// Package subscriptions gives programs in any language a queue over the topics: receive,
// acknowledge, negative-acknowledge, extend, reject, with a visibility timeout, bounded
// redelivery, order per key and dead letters.
//
// # Vocabulary
//
// A subscription selects records of topics by name, type and a CEL filter. Its transform
// replaces payload and headers of delivered messages, and nothing that is stored. Each
// subscription is one Kafka consumer group. The owner of a partition is the instance to
// which the group has assigned it. A message is a record that the subscription selects.
// A message is waiting, leased, deferred, settled or dead-lettered:
//
//	waiting        in the memory of the owner; can be leased
//	leased         delivered to a consumer until its lease expires; a receipt names the lease
//	deferred       stored in subscription_messages until its next delivery
//	settled        acknowledged, filtered or purged; it is never delivered again
//	dead-lettered  stored in dead_letter_queue under "subscription.NAME"
//
// A key is the record key of a message or, without one, its aggregate id. The key of a
// message is blocked while the message is leased or deferred. A receipt is a signed text
// that names subscription, partition, offset, attempt, lease, owner and epoch. The epoch
// of a partition grows by one with each owner. The position of a partition is the
// committed offset of the group and the set of settled offsets behind it.
//
// A message is identified by subscription, topic id, partition, generation and offset. The
// generation of a partition grows whenever reading begins anew: with each other topic of the
// name, and whenever it goes back.
//
// # Premises
//
//   - The brokers report topic ids. Without them a topic that is created again cannot be told
//     from the former one: partitions do not load, and the status contains the reason.
//   - The database loses no decided write. If it is restored to an earlier state, messages are
//     delivered again, and messages of which only the database had the record are lost.
//   - The coordinator refuses commits of former generations of the group, and stores the
//     metadata of a commit unchanged. If it loses committed offsets, reading begins anew.
//
// # Guarantees
//
// Delivery is at least once. After a confirmed acknowledgement a message is not delivered
// again, also after the failure of any process. With OrderingKey at most one message per
// key is leased over all topics, or one run of Receive.MaxPerKey; the next one is delivered
// after the previous one is settled or, with relaxed order, dead-lettered. At most one lease of a message can be acknowledged.
//
// With Push the instances deliver the messages to a destination themselves, as consumers
// with the same guarantees.
//
// The package does not publish events, and it does not replay dead letters to topics.
// docs/design/subscriptions.md describes the protocols and why they hold.
//
// It is a part of the program, and may change in any version.
package subscriptions
