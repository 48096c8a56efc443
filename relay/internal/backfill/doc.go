// Package backfill publishes events of the outbox table that the CDC log no longer
// contains, and single events on request.
//
//   - Backfill: decides at a start whether a scan of the table is needed, and runs it by
//     ranges of tokens. A range is saved as done when all its events are acknowledged.
//   - need: the reasons for a scan: the log has lost rows (Outrun), the first start with a
//     table that is older than its log, or a request (Forced).
//   - Repairs: the requests of relay_repairs, and their states. The repairer answers them.
//
// The package offers events to a publish.Publisher and reads the topics back through a
// readback.Reader; a scan that was interrupted continues with the next start.
//
// Backfill.mu is not held while another part is called.
package backfill
