// Package load sends a file of orders and cancellations to an order API.
//
// # Vocabulary
//
//   - line: one JSON object of the file, an order or a cancellation.
//   - load: one run over a file. Its id is part of every Idempotency-Key, so that a retry
//     repeats nothing and a second load creates its own orders.
//   - rejected: a line that could not be read, or that the API refused for good. The load
//     continues.
//   - retried: a request that the API could not serve yet (429, 503, no answer), sent again
//     with the same key.
//
// Lines of one invoice are sent in the order of the file, others concurrently.
//
// The package does not create a file of orders and does not compare what the API stored
// with it.
package load
