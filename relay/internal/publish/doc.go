// Package publish publishes events to Kafka: each aggregate's in the order in which they
// were offered, and each event once, however often it is offered.
//
// Vocabulary:
//
//   - Offer: an event that a reader passes on. The answer is taken, repeated (it is in the
//     dedup index), or that an earlier event of its aggregate is missing.
//   - lane: the queue of one aggregate. Events of a lane for one topic and record key are sent
//     one after the other without waiting; an event for another waits for all before it.
//   - dedup index: the ids of published events and the next number of each aggregate, see
//     package dedup.
//   - dead letter: an event that the publisher gave up on. The chain of an aggregate is its
//     dead letters, which block its later events.
//   - gate: a partition to which nothing is published until the relay starts again: it was not read
//     back, or it is stalled and over its limits. Its events are postponed: they wait in the log.
//
// An event passes through the states of EventState, its lane through those of laneState, see
// docs/design/README.md.
//
// What happens to an event, such as one whose answer is lost: Offer puts it into the lane of its
// aggregate (offer.go). Whenever something changes that a lane waits for, pump collects what the
// decision depends on, its view, and executes the step that the pure function decide returns, until
// that is to wait (pump.go, decide.go). A record that is sent comes back to done (send.go), with an
// error only if it is in no topic; then the lane is judged once all its records are back.
//
// The parts: stripes have the aggregates with their lanes, lines and claims; eventIDs has the
// events in progress and the dedup index; judgeLocked judges offers; partitions has what each
// partition has outstanding, which ones are stalled, and the suspects that are sent alone;
// deadLetterWriter writes dead letters; deadLetters has the open ones, and Replayer replays
// them; topicMaker creates topics. The Publisher moves events between them.
//
// Locks: a stripe has the lock of its aggregates, lanes and items. Publisher.mu locks all
// stripes, in their order; nobody locks several single ones. The other fields in the struct of
// that name, with the chains in them, are read with any stripe locked and changed with all of
// them; so are the fields of Replayer that are marked so. Methods that end in Locked need all
// stripes, or, if their comment states it, the one of their lane or event. These locks are taken
// before batch.mu, before that of partitions, before the locks of eventIDs, and before the locks of packages
// calls, producer, older, topics and swept; no two of those are held together.
//
// Callbacks: Offer.Settled is called once, when its event is acknowledged or stored as a
// dead letter, or from Offer if it was published before. It must not call the Publisher,
// because a stripe is locked. The methods of replay are called with all stripes locked, the
// TopicNames and the Prover without it.
//
// It relies on these facts:
//
//   - An error of package producer means that the record is not in its topic. If it is there all the
//     same, the event is published twice.
//   - A topic that was published to exists: that a broker does not know it is transient until the
//     topic could be created. State with records in flight is never removed by a look-up.
//   - The key of a record determines its partition. Where events of one aggregate have different
//     keys, consumers see their order in the times of the records alone.
//   - Dead letters, their claims and the times of replays are dated by the database's clock, which
//     all owners of a shard have in common. The times of operators are those of their hosts: a replay
//     that one requests is due at once, and after a restart of the relay at that time.
//
// The package does not read the CDC log and keeps no checkpoints. Package capture offers
// the events, package readback seeds the dedup index, package producer has the Kafka
// clients and package calls the circuit breaker.
package publish
