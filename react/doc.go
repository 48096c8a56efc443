// Package react hands events to plugins, as they come to their topics: to e-mail,
// Slack and other services, to signed webhooks, or to Go code.
//
// A Rule says which events (topics, types, an expression in CEL) go where, and how
// patiently. Each rule is a consumer group of its own, with its own queue, time-out,
// attempts and concurrency, so a plugin that is slow, hangs or panics holds up its
// rule and no other.
//
// Delivery is at least once: an offset is committed when all before it is
// delivered, or stands as failed in the table of deliveries (package delivery), and
// what a crash interrupted is delivered again, with the same delivery id. By default
// the events of an aggregate go to a plugin one at a time, in the order of their
// topic; one that failed for good lets the next one pass.
package react
