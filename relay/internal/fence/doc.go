// Package fence stops the writes of a relay that may no longer own its shard.
//
// Check guards statements for the database, Connections every byte sent to a broker. The
// lease that decides is in package share: its Hold is the Fence of a running relay. It ends
// a fifth of the session timeout before the shard can be another's, and a coordinator's own
// timeouts are as short.
//
// It relies on a write that was begun before the lease ended being there, or lost, before
// the next owner begins. That fails for a process that is stopped between the check and the
// system call, and for a database node that is stopped with the statement. So each kind of
// write is harmless when it comes late:
//
//   - Position of a stream, generation, first start: it was true and stays true. It may
//     replace a newer one, so that a later start reads topics and log back further; in the
//     life of a relay its checkpoints never go back (checkpoint.SteadyStore).
//   - Topic of a relay, number of shards used, completed ranges of a scan: added to a set,
//     and true.
//   - A scan that begins or seems to run again: more is scanned than is needed, read back
//     for, and not published twice. The newest that runs continues.
//   - Dead letter: conditional, one id is one dead letter. The next owner's start knows which
//     ones were begun, and writes them itself before their events are published
//     (publish.interrupted).
//   - Claim, unclaim, fail, resolve: conditional on the version of the dead letter and its
//     claim. The next owner waits until a claim expires or searches the topics for it; the
//     first of two writers decides, and both write the truth.
//   - Operator's request removed: the dead letter itself was changed before, and a start
//     loads that.
//   - Repair taken or published: a late answer makes the request unknown, for a verification
//     to check again; it does not publish.
//   - Heartbeat: a row that expires by itself. Two live ones are reported, which is right.
//
// Not covered: a relay without a fence (one of the whole table) that is stopped before it
// lists a dead letter, and continues beside its successor; and a process that is stopped for
// longer than settled dead letters are kept.
package fence
