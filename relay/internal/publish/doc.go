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
// An event passes through the states of EventState, its lane through the states of
// laneState, see docs/design/README.md.
//
// What happens to an event, such as one whose answer is lost: takeOffers puts it into the lane of its
// aggregate (offer.go). Whenever something changes that a lane waits for, pump collects what the
// decision depends on, its view, and executes the step that the pure function decide returns, until
// that is to wait (pump.go, decide.go). A record without an answer stays with the producer. Returned
// passes its result to the cell (send.go), with an error only if it is in no topic. Without an error
// settle ends the event (offer.go), and the checkpoint may pass it. With one the lane is judged once
// all its records are back: the event is sent again, or becomes a dead letter (dead_letter.go).
//
// One owner: the cell has the state of all aggregates, and the driver alone uses it (cell.go,
// driver.go). Cell.Step takes one input, such as a page of offers or a result of the producer, and
// returns effects: send a record, settle an event, write a dead letter, wake a lane at a time. The
// driver executes them in their order before the next step. So the records of a lane are sent in the
// order of the decisions, a caller of ask sees the effects of all steps before, and no code of another
// package runs within a step. The methods of Publisher post inputs: Offer and OfferPage wait for
// verdicts and for room in the budget, ask runs a function in a step.
//
// The parts of the cell: eventIDs has the events in progress and the dedup index; judge judges offers;
// partitions has what each partition has outstanding, which ones are stalled, and the suspects that are
// sent alone; deadLetters has the open ones, and replays decides which of them are replayed. Beside it
// are deadLetterWriter, which writes dead letters, Replayer, which claims and resolves them, and
// EnsureTopic, which creates topics. They have goroutines of their own, and ask the cell what to do.
//
// Locks: driver.mu guards the inputs that are posted. The breaker, the budget, the producer and packages
// older, topics and swept have locks of their own; a step and its effects take them one at a time.
//
// Memory: an event that is published at the first attempt allocates nothing. The cell uses its lane and
// its item for another event, the driver the slot of its record. A lane that was ever in a list of others,
// or has had a timer, is not used again.
//
// Callbacks: Settler.Settle is called once for each offer by the driver, when its event is acknowledged or
// stored as a dead letter, or was before. An effect must not wait for the cell: neither Settle nor
// the function that receives fatal errors may call the Publisher. TopicNames and the Prover are called by
// other goroutines.
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
//     all owners of a shard have in common. The times of operators come from the clocks of their
//     hosts: a replay that one requests is due at once, and after a restart of the relay at that
//     time.
//   - Dead letters that are older than the table's epoch may be of a backup, and replayed since:
//     the topics are searched before they are (reopened.go). After a restore without an epoch, only
//     those are found that the start reads back; others are published twice.
//
// The package does not read the CDC log and keeps no checkpoints. Package capture offers
// the events, package readback seeds the dedup index, package producer has the Kafka
// clients and package calls the circuit breaker.
package publish
