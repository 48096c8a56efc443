// Package calls is the circuit breaker before the Kafka brokers.
//
//   - call: the records that were passed to the producer within 50 ms, or one request of
//     an administrator. It is the unit that the breaker counts.
//   - A call is open until all its records are returned. It is answered when a broker
//     answered, also with a refusal, and failed when no broker did.
//   - failing: a call failed, and none was answered since. One record at a time is then
//     admitted.
//
// Calls is safe for concurrent use. Its lock is taken while those of its callers are
// held; it calls nothing while it holds the lock except the breaker.
//
// The package knows neither events nor partitions: the caller reports how many partitions
// have outstanding records, because one silent partition is not a silent broker.
package calls
