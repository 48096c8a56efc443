// Package store contains the state of subscriptions in ScyllaDB: the subscriptions with
// their versions, the epochs of partitions, the messages that are deferred or blocked, the
// key of receipts, and the reports of instances.
//
// # Fencing
//
// The rows of a partition of a topic are one partition of subscription_messages. An
// instance claims it before it reads it: the claim increments the static column epoch by a
// lightweight transaction. Every write is a conditional batch on that partition, which
// compares epoch and last_write, the random id of the write before it, and replaces
// last_write. Three properties follow:
//
//   - After a claim, no write of a former owner is applied: its epoch is another one. A
//     write that was decided before the claim is visible to it, because Paxos finishes it
//     first.
//   - A write is applied at most once, also if the database begins to execute it after its
//     client gave up and wrote something else: last_write is another one by then.
//   - A write with an unknown outcome is determined by a serial read: last_write is its id,
//     or it is not applied and can be repeated with the same id.
//
// # Premises
//
//   - Lightweight transactions of a partition are linearizable. If they are not, as after a node
//     was restored from a backup, two owners may write, and messages are delivered again.
//   - Replicas that missed a deletion are repaired within gc_grace_seconds. If they are not, a
//     settled message comes back and is delivered again.
//   - The limits of the server for one write are the defaults: a batch of 1 MiB, a statement of
//     16 MiB. With lower ones large messages cannot be stored, and hand-overs lose their leases.
//
// The package has no timers and no goroutines, and it does not interpret messages.
//
// It is a part of the program, and may change in any version.
package store
