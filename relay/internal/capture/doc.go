// Package capture reads the CDC log of an outbox table and passes its events to a Sink.
//
//   - Tail: the tail reader. It reads new rows immediately and offers the events of which it
//     knows that all earlier events of their aggregate are published. It guarantees nothing:
//     whatever it misses or is not sure of is left to the sweep reader.
//   - group: adjacent streams that one goroutine of the tail reader reads. A reading reaches
//     back by an overlap, because rows do not become visible in the order of their write
//     times.
//   - held row: a row of a table without sequence numbers that waits until a covering
//     reading, which would have found an earlier row of its aggregate, has ended.
//   - Sweep: the sweep reader. It reads every row once it is older than the confidence
//     window, and moves the positions of the streams.
//   - SweptPages: gathers the events of a stream for the sweep reader, which passes them on in pages.
//     A page waits a millisecond for further events at most, because scylla-cdc-go tells nobody that a
//     window with rows has ended.
//   - Sequencer: passes the events of the sweep reader on in order of sequence number and
//     reads missing ones by key. Aggregates with a missing event are blocked, beside their
//     stream.
//   - Quiet: moves the positions of streams without rows.
//
// Under saturation the newest event goes first (Turns): the sweep reader reads fewer of the rows
// that are published already while the tail reader lags, never none.
//
// The package publishes nothing, does not know which events are published, and saves no
// positions: the Sink and package checkpoint do.
//
// # Relies on
//
// Rows are dated by the database's clock, or by writers that agree with it. The readers use
// that clock (dbclock.Clock), whatever the clock of this host; the sweep reader begins again
// when their difference changes, or a window ends too late by it. If the clocks of all nodes
// are set back by more than the confidence window, rows are written that the sweep reader has
// passed, and nothing shows that they are missing until a later event of their aggregate.
//
// Rows that are published wait for nobody. Only the ids in the dedup index and the ttl of the log
// bound how long the sweep reader may leave them, so it yields less as either comes near.
//
// The table fits its mapping. Where a mapped column is missing or has another type, the sweep
// reader holds the stream of the row, until the relay begins a new pass.
//
// Tail.mu is taken before tailGroup.mu. tailGaps.mu and Tail.mu may be held while the
// swept.Tracker of the sink is called; no other function of a Sink is called with a mutex.
// SweptPages.held is held while a page is submitted. blocked.mu and Turns.mu are taken last.
package capture
