// Package verify compares the topics with the outbox table, independently of the relay:
// it shares nothing with the relay but the format of an event.
//
// A Ledger keeps one compact entry for each event, whichever side was read
// first; a Scan fills it with the rows of the outbox, a Consumer with the
// records of the topics, and Ledger.Check reports events that are missing, duplicated or
// out of order. Verification does all of it once, throttled, and continues after an
// interruption. A Verifier does so continuously, within a budget of rows and of memory.
//
// The rows must be read before the ends of the topics are listed: then the event of every
// row was published before the listed ends, or it is missing.
//
// It relies on rows being visible when they are read: one that becomes visible later is checked by the
// next verification. It relies on topics retaining the records of these rows: where they do not, an
// absent event is undetermined rather than missing. It relies on ids: of two rows with one, the second
// is reported as unreadable, and not checked.
package verify
