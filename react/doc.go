// Package react delivers published events to plugins: to e-mail, Slack and
// other services, to signed webhooks, or to Go code.
//
// A Rule selects events (topics, types, an expression in CEL) and their
// destination, time-outs and retries. Each rule is a consumer group of its own,
// with its own queue, time-out, attempts and concurrency, so a plugin that is
// slow, hangs or panics delays its own rule only.
//
// Delivery is at least once: an offset is committed when all records before it
// are delivered or recorded as failed (package delivery). A delivery that a
// crash interrupted is repeated with the same delivery id. By default the
// events of an aggregate are delivered one at a time, in the order of their
// topic; a failed one does not block the next.
package react
