// Package older tracks the rows of an outbox table that a scan has not offered yet.
//
//   - Rows: the ranges of tokens of a scan, and how far each is scanned.
//   - ahead: an aggregate whose older rows were accepted before the scan reached them.
//   - Found: the events of the ranges that a start found in the topics.
//
// It relies on the tokens of the aggregates being the same as in the database. If they were not,
// the scan would offer rows that were passed on ahead of it, and the dedup index and the topics
// alone would prevent a repetition.
//
// No other lock is taken while Rows.mu is held.
package older
