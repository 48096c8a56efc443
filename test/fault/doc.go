// Package fault kills the outbox's processes with SIGKILL at random moments
// while orders arrive, silences nodes of the database, replaces processes by those
// of another version, and compares the topics with the database afterwards.
//
// The tests have the build tag fault. Their choices are the same in every run;
// FAULT_SEED selects others, FAULT_KILLS sets their number.
package fault
