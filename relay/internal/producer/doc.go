// Package producer sends records to Kafka: records of one aggregate in one batch at a time,
// and none twice.
//
//   - Flight: the outstanding records of one aggregate. All of them are in one batch of one
//     partition, and they can be recalled as long as no request contains them.
//   - rejected: a record that would begin another batch of its flight, or that belongs to
//     a gated partition. The client returns it without having sent it.
//   - larger client: a client for a topic whose size limit was raised.
//
// Producer is safe for concurrent use. Its callers hold locks when they call Send; results
// are delivered without locks, by goroutines of the client. Hooks call the Observer
// without locks.
//
// The package keeps no order among flights and does not retry refused records. Package
// publish does both.
package producer
