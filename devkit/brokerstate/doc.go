// Package brokerstate rebuilds from its log what the embedded broker, kfake,
// knows of its idempotent producers.
//
// A broker remembers the last five batches of each producer in each partition,
// so that a batch that comes again, because its answer was lost, is not
// appended again. A real Kafka rebuilds that from its log when it starts after
// a crash. kfake keeps it in memory, writes it to seq_windows.json at a clean
// close alone, and takes what that file says for the truth when it starts: after
// a SIGKILL it appends such a batch a second time. [Recover] brings the file up
// to the log; it is called before kfake opens the directory.
//
// The formats are kfake's own and documented only by its source, persist.go:
// meta.json, seq_windows.json with the entries that it calls v2, and segments
// partitions/TOPIC-N/OFFSET.dat of Kafka record batches one after the other. The
// rules by which a batch moves its producer's window on are those of
// its pushAndValidate. Checked with kfake
// v0.0.0-20260918054303-01f206a7e32c; the tests hold a new one to it.
package brokerstate
