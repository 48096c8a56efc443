// Package stories contains one failure per file, with its required figures: a
// temporary outage of the broker, an extended one with dead letters and their
// replay, a failed write, a breaker that opens midway, a crash of the relay.
//
// The whole system runs in virtual time; see package sim, which also checks
// that no event is lost, duplicated or out of order.
package stories
