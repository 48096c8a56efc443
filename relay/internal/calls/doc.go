// Package calls is the circuit breaker before the Kafka brokers.
//
//   - call: the records that were passed to the producer within 50 ms, or one request of
//     an administrator. It is the unit that the breaker counts.
//   - A call is open until all its records are returned. It is answered when a broker
//     answered, also with a refusal, and failed when no broker did.
//   - failing: a call failed, and none was answered since. One record at a time is then
//     admitted.
//
// It relies on this: only an acknowledged record proves that the broker takes records. A broker
// may answer every other request, or acknowledge the records of some partitions alone. So a
// half-open breaker closes by acknowledged records, and by pings only if its user has nothing to
// publish. If nothing is acknowledged for AttemptTimeout it is open again.
//
// Calls is safe for concurrent use. It calls nothing while it holds its lock except the breaker.
//
// The package knows neither events nor partitions: the caller reports how many partitions
// have outstanding records, because one silent partition is not a silent broker.
package calls
