// Package relaytest has the parts that the tests of the relay's packages share: an outbox
// table, a broker, checkpoints in memory, and the diagrams of states.
package relaytest
