// Package delivery keeps what became of events at the rules of package react, for
// those who deliver them and for those who look.
//
// A delivery is one event at one rule. Its id follows from both, so an event that
// comes twice is one delivery. Whoever owns the record's partition in the rule's
// consumer group alone changes it, but for Repeat, which only changes what is
// finished; so rows are written without lightweight transactions, and the last
// write wins.
package delivery
