// Package audit holds the topics against the outbox table, from the outside:
// it shares nothing with the relay but the format of an event.
//
// A Ledger keeps one compact entry for each event, whichever side was read
// first; a Scan fills it with the rows of the outbox, a Consumer with the
// records of the topics, and Ledger.Check says what is missing, double or out
// of order. Verification does all of it once, throttled, and goes on after an
// interruption. A Verifier does so all the time, within a budget of rows and of memory.
//
// The rows are to be read before the ends of the topics are asked for: every
// row that was found then had its event published before, or it is missing.
package audit
