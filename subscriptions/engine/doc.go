// Package engine runs subscriptions: one Kafka consumer group for each, one queue for each
// partition that this instance owns.
//
// # Parts
//
//	Engine     reads the list of subscriptions, starts and stops groups
//	group      the Kafka client of a subscription; reads, commits, expires, receives
//	partition  a queue with its lock, and its worker for the database
//	beginning  where a partition begins: position, rows, topic and seeks
//	pusher     the consumer of a group with push delivery
//
// A partition has an epoch. It is loaded when it is assigned: epoch, rows, position,
// records, in this order. It is closed when it is revoked, lost or fenced, or when a seek
// moves it; a closed one is loaded again if the group still owns it.
//
// Locks: group.commit before group.mu before partition.mu before group.waiting and the
// locks of calls. None of them is held during a request to the broker or the database,
// except group.commit.
//
// Premises: producers write a key to partition hash % n, with the same hash in all topics; the
// key balancer then gives one instance all partitions of a key. Members of a group for which
// ordering is still none do not offer this balancer and disable it for all: then a key of several
// topics may have several owners. A breaker before a destination trusts that other messages can be
// delivered if the destination is well: one that is alone and always fails as unavailable is
// repeated for ever.
//
// The coordinator refuses a commit of a former generation by ILLEGAL_GENERATION to members only, and
// by UNKNOWN_MEMBER_ID to others. If it does not, an instance keeps partitions of another one until
// its next heartbeat; its acknowledgements are not confirmed meanwhile.
//
// Topics that are restored from a copy end before offsets that the database knows, and give the same
// offsets to other records. Stored messages at or after the end become dead letters. A record is
// another one if its time is not that of the stored message, the lease or the dead letter at its
// offset: two that differ and were written in one millisecond are taken for the same, unless the
// subscription runs before the topic gets new records.
//
// The times of stored messages come from the former owner: if the clocks of hosts differ, they are
// delivered again earlier or later by that. Leases that were handed over keep their remaining time. A
// planned end of a process takes its time, pushDrainTimeout for calls in flight: one that is killed
// before loses its leases, as by a crash.
//
// The package serves requests for the partitions of this instance only; the owner of a
// receipt is found by Owner. It has no HTTP.
//
// It is a part of the program, and may change in any version.
package engine
