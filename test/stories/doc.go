// Package stories tells what happens to an order when something fails, one
// file per story, with the numbers that the system was asked for: a temporary
// outage of the broker, an extended one that ends in dead letters and their
// replay, a write that fails, a breaker that opens midway, a relay that crashes.
//
// The whole system runs in virtual time; see package sim, which also holds
// every story to the promises that nothing is lost, doubled or out of order.
package stories
