// Package dlq stores dead letters: events that the relay could not publish, and the
// later events of their aggregates, which are blocked by them.
//
// # Vocabulary
//
// A dead letter has a status, a version and a history. Pending, blocked, processing,
// failed and suspended ones are open and block the later events of their aggregate, unless
// they are unblocked; resolved and archived ones are not. A claim gives one owner a dead
// letter for a limited time. The chain of an aggregate contains its open dead letters
// in the order of the events. A list contains the dead letters of one status, error
// class, event type or aggregate. A request notifies the relay of an operator's change.
// A hold is the reason for which the relay does not replay dead letters now. An edit
// replaces the published content of a dead letter, under a new id; the original event
// remains.
//
// # Roles
//
// The relay writes, claims and resolves dead letters. Operators change them by the
// methods that take an Actor. Package dlq/jobs changes many of them. Every change is
// one lightweight transaction on the version of the dead letter, and contains its line
// of the history.
//
// Lists are in the order of FirstFailedAt. Jobs, which leave out dead letters younger than
// they are, and notices of new dead letters rely on its being the time of Write: the relay
// and subscriptions set it for each attempt.
//
// Every change relies on lightweight transactions being linearizable: at a serial level that a
// keyspace of several data centers does not share, two owners may claim one dead letter, and its event
// is published twice. The expiry of claims relies on owners ending with their leases; a dead letter
// whose owner continues after that is published once more by the next one.
//
// The package does not publish: only the relay does. docs/design/dead-letters.md
// describes the states, the tables and why they converge.
//
// It is a part of the program, and may change in any version.
package dlq
