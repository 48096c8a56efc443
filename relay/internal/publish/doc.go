// Package publish publishes events to Kafka: each aggregate's in the order in which they
// were offered, and each event once, however often it is offered.
//
// Vocabulary:
//
//   - Offer: an event that a reader passes on. The answer is taken, repeated (it is in the
//     dedup index), or that an earlier event of its aggregate is missing.
//   - lane: the queue of one aggregate. Events of a lane for one partition are sent one
//     after the other without waiting; an event for another topic waits for all before it.
//   - dedup index: the ids of published events and the next number of each aggregate, see
//     package dedup.
//   - dead letter: an event that the publisher gave up on. The chain of an aggregate is its
//     dead letters, which block its later events.
//   - gate: a partition that was not read back, to which nothing is published.
//
// An event passes through the states of EventState, see docs/design/README.md. An
// offer's Settled is called once, when its event is acknowledged or stored as a dead
// letter, without Publisher.mu.
//
// Publisher.mu guards lanes, dedup index, dead letters and flows; methods that are
// documented as "Called locked" need it. It also guards dedup.Index, chains.Set and
// topics.Names. The locks of calls, producer, older, topics and swept may be taken while
// it is held.
//
// The package does not read the CDC log and keeps no checkpoints. Package capture offers
// the events, package readback seeds the dedup index, package producer has the Kafka
// clients and package calls the circuit breaker.
package publish
