// Package epochs stores since when the numbers of aggregates may have begun again.
//
// A service whose database is restored from a backup gives numbers again that are in the topics
// already. An operator then begins an epoch of its outbox table: the relay marks the events of the
// epoch, and consumers compare epochs before numbers.
//
// What it relies on, and what follows where that fails:
//
//   - An epoch begins while neither writers nor relays of the table run: the rows that were restored
//     are written before it, and every number that is given again is written in it. The write time
//     is the only property that tells the two apart in every table; the time of an event is set by
//     its service. outbox schema new-epoch refuses to begin one while a relay runs or rows are
//     written. An event of a writer that it does not notice may be of the earlier epoch, and
//     consumers take it for obsolete.
//   - A writer's clock is at most clockError behind the database's: an epoch begins as much earlier
//     than the command that begins it, but after the last row.
//   - A row that is written again in an epoch, as a decided event is by Appender, is of that epoch.
//     The relay publishes an event once, so its record has one epoch, unless the topic has lost it.
//   - Epochs are named by the Unix times at which they begin, not counted: a restore may undo the
//     row of an epoch, and a name that was given again would hide that events are later. So the
//     next epoch is later than the epochs of the table and of the records, and two of them begin at
//     least a second of the database's clock apart.
//   - A backup has the first events of each aggregate, up to some number. Events without a row that
//     are followed by rows of their epoch are lost, not undone.
package epochs
