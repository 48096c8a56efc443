// Package relaytest has what the tests of the relay's parts share: an outbox table, a
// broker, checkpoints in memory, and the diagrams of states.
package relaytest
