// Package producer sends records to Kafka: records of one aggregate in one batch at a time,
// and none twice.
//
//   - Flight: the outstanding records of one aggregate. All of them are in one batch of one
//     partition, are sent by one client, and can be recalled as long as no request contains them.
//   - rejected: a record that would begin another batch of its flight, or that belongs to
//     a gated partition. The client returns it without having sent it.
//   - client: a Kafka client with a producer id of its own. Each topic has one at a time.
//
// What happens to a record whose answer is lost: the client repeats it with the same sequence number,
// which a broker that has the record drops, until a broker answers. If the client returns it with an
// error all the same, mayHaveWritten decides whether find searches for it (producer.go, search.go).
// The sender receives the result after the search.
//
// Producer is safe for concurrent use; one caller at a time sends the records of a Flight. Results
// are delivered without locks, by goroutines of the client and of searches. Hooks call the Observer
// without locks.
//
// It relies on these facts:
//
//   - A broker drops a batch whose producer id, epoch and sequence number it has seen. A client
//     may count from 0 again after it has given up the buffer of a topic, without a new epoch. A
//     client therefore never sends to a topic again after it was replaced there (client.go). If
//     that failed, acknowledged events would not be in their topic.
//   - An error proves that a record is not written only if no request contained the record, or
//     the broker refused it, and no attempt had no answer. Otherwise the record is searched for
//     in its partition (search.go). It may be written twice if the topic cannot be read, or if a
//     broker refuses a record that an attempt with an uncertain answer, such as
//     REQUEST_TIMED_OUT, has written.
//   - A client returns records while a request with them is under way, if it gives up the buffers
//     of a topic with a new id, or of all topics with a producer id. A broker answers the requests
//     of a connection in order, so that the search begins after an empty one was answered
//     (client.go).
//   - Requests of a lost connection are processed, or lost, before the search reads the end of the
//     partition. A broker that processes one later writes the record twice, with one event id.
//   - UNKNOWN_TOPIC_OR_PARTITION means that a broker does not know a topic now. That the topic is
//     missing is proven by its creation alone; a refusal of it is believed after AgreeAfter.
//   - A broker that dates records itself (LogAppendTime) differs from this host by ClockMargin
//     at most, until a record of the partition was acknowledged. Otherwise a record is not found,
//     and written twice.
//
// The package keeps no order among flights and does not retry refused records. Package
// publish does both.
package producer
