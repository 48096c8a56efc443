// Package archive stores dead letters outside the database after their retention.
//
// An Archive is in a Bucket: a folder or, in programs that import package cloud, S3, Google
// Cloud Storage or Azure. It contains objects of compressed JSON Lines, by day. The
// manifest of an object is written once, after the object was read back and verified;
// an object without a manifest is not part of the archive. A Sweeper moves resolved and
// failed dead letters to the archive, removes all but their outlines from the database,
// and removes expired objects. The bucket also stores payloads that are too large for an
// event, as a payload.Store; the Sweeper removes them at the end of their lifetime. A
// Keeper purges and restores the dead letters of jobs.
//
// A Sweeper without an archive relies on the other processes to try: it takes the archive for
// removed, and deletes, a week after the last sweep that one with it began.
//
// It is a part of the program, and may change in any version.
package archive
