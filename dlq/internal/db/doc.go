// Package db executes the CQL statements of package dlq and of its jobs: with one
// consistency, one time limit, one retry policy and one fence.
//
// A read may be sent to a second node. A write is never repeated by the driver,
// because a lightweight transaction that timed out may have been applied; the
// caller retries within Retry and first checks what is stored. Permanent reports
// the errors for which a retry cannot help. The package declares no tables and
// knows no dead letters.
//
// It relies on the table's keyspace having a quorum for the serial level. Without one, changes fail
// and are retried; nothing is stored by halves.
package db
