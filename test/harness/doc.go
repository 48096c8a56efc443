// Package harness runs the outbox binary as real processes for the end-to-end
// and fault tests, and holds what ended up in the topics against what stands in
// the database. It counts with clients of its own and trusts nothing that the
// processes say of themselves.
package harness
