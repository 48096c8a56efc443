// Package checkpoint stores the progress of a relay and restores it after a restart.
//
//   - Store: the tables relay_checkpoints and relay_topics. CQLStore implements it;
//     SteadyStore never returns an older position than it returned before.
//   - Stream: the changes of one CDC stream from the read to the acknowledgement. Its
//     position is the last change of the acknowledged prefix.
//   - Streams: the streams being read, their positions, and the saving of these.
//   - Manager: the progress manager of scylla-cdc-go, which resumes the sweep reader.
//   - Skipped: streams without rows of a shard, which the sweep reader does not open.
//   - Scan, Scans: the table scans of relay_backfills.
//
// A change is pending from Stream.Begin until each of its events is settled; a position
// never passes a pending change. The package does not publish and does not read the log.
//
// # Relies on
//
// All rows are visible a confidence window after their write time. So no position is saved
// that is later than the database's time minus the window, and a stored one that is later
// than its own write time minus the window, because the clock of its host was ahead, is
// lowered to that.
//
// The checkpoints of a relay's name and keyspace are all that it knows of published events.
// Checkpoints of another name or keyspace for the same table are found at a first start (Others),
// which is then refused; checkpoints that it may not read are not, and every event with a row is
// published again.
//
// Streams.mu may be held while Stream.mu is taken, not the other way round.
package checkpoint
