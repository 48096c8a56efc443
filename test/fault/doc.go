// Package fault kills the outbox's processes with SIGKILL at random moments
// while orders come in, makes nodes of the database silent, and holds the topics against
// the database afterwards.
//
// The tests take the build tag fault. Their choices are the same in every run; FAULT_SEED
// makes others, FAULT_KILLS changes how many there are.
package fault
