// Package backfill publishes events of the outbox table that the CDC log no longer
// contains, and single events on request.
//
//   - Backfill: decides at a start whether a scan of the table is needed, and runs it by
//     ranges of tokens. A range is saved as done when all its events are acknowledged.
//   - decision: the reasons for a scan: the log has lost rows (Outrun) or was altered
//     (Unlogged), the first start with a table that is older than its log, or a request
//     (Forced).
//   - Gap: a time of which the log may lack rows, found by gapWatch while the relay runs and
//     by the decision at a start.
//   - Repairs: the requests of relay_repairs, and their states. The repairer answers them.
//
// The package offers events to a publish.Publisher and reads the topics back through a
// readback.Reader; a scan that was interrupted continues with the next start.
//
// # Relies on
//
//   - Rows of the log keep the ttl with which they were written, and nothing marks a time
//     without CDC or a log that was dropped. The write time of the table's row in
//     system_schema.tables, which ScyllaDB renews at each ALTER TABLE, shows that any of
//     these may have happened. If the server does not renew it, only the age of the log
//     remains, which shows a dropped log alone.
//   - A gap ends alterSettles (package cdclog) after the statement by the clocks of the
//     writers. A row whose timestamp is later, written by a node that does not know the
//     statement yet, is lost.
//   - A scan begins when all rows that it covers are visible: a confidence window after the
//     gap. Until it is saved the positions stay before the gap, so a crash finds it again.
//
// Backfill.mu is not held while another part is called.
package backfill
