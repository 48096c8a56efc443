// Package harness runs the outbox binary as real processes for the end-to-end
// and fault tests, and compares the topics with the database. It uses clients
// of its own and does not rely on the output of the processes.
package harness
