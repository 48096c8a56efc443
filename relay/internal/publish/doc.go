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
// An event passes through the states of EventState, see docs/design/README.md.
//
// The parts: aggregates (lanes, events in progress, dedup index, claims) judges offers;
// flows has what each partition has outstanding, and which ones are stalled; probes sends
// suspects alone; deadLetterWriter writes dead letters; deadLetters has the open ones, and
// Replayer replays them; topicMaker creates topics. The Publisher moves events between them.
//
// Locks: Publisher.mu guards the fields in the struct of that name, with the lanes, items
// and chains in them, and the fields of Replayer that are marked so. Methods that end in
// Locked need it. It is taken before batch.mu and before the locks of packages calls,
// producer, older, topics and swept; no two of those are held together.
//
// Callbacks: Offer.Settled is called once, when its event is acknowledged or stored as a
// dead letter, or from Offer if it was published before. It must not call the Publisher,
// because Publisher.mu may be held. The methods of replay are called with Publisher.mu, the
// TopicNames and the Prover without it.
//
// The package does not read the CDC log and keeps no checkpoints. Package capture offers
// the events, package readback seeds the dedup index, package producer has the Kafka
// clients and package calls the circuit breaker.
package publish
