// Package dlq keeps dead letters: events that the relay could not publish, and
// the later events of their aggregates that wait behind them.
//
// A Store writes letters, hands them out under claims, and records what became
// of them. It never talks to Kafka: only the relay publishes. The relay buries,
// claims and resolves; operators change letters by the methods that take an
// Actor, which leave a Request that wakes the relay.
//
// A bulk operation is a Job, which a Runner in any process runs: it changes each
// letter once, whoever dies meanwhile. An edit replaces what is published of a
// letter, under a new id; the letter keeps the event as it was.
//
// Every change of a letter is one lightweight transaction that expects the
// letter's version, and it carries its line of the letter's history.
// docs/design/dead-letters.md has the states, the tables and why they
// converge.
package dlq
