// Package older tracks the rows of an outbox table that a scan has not offered yet.
//
//   - Rows: the ranges of tokens of a scan, and how far each is scanned.
//   - ahead: an aggregate whose older rows were accepted before the scan reached them.
//   - Found: the events of the ranges that a start found in the topics.
//
// Rows.mu may be taken while the lock of a publish.Publisher is held, and no other lock is
// taken while Rows.mu is held.
package older
