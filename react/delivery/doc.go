// Package delivery stores the results of deliveries by the rules of package
// react, for the reactors and for operators.
//
// A delivery is one event at one rule. Both determine its id, so a repeated
// event is the same delivery. Only the owner of the record's partition in the
// rule's consumer group changes it, except for Repeat, which changes finished
// ones only. Rows are therefore written without lightweight transactions, and
// the last write wins.
package delivery
