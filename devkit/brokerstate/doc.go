// Package brokerstate rebuilds, from its log, the state that the embedded broker,
// kfake, keeps of its idempotent producers.
//
// A broker remembers the last five batches of each producer in each partition. It does
// not append a batch again that a producer repeats because the response was lost. A
// real Kafka rebuilds this state from its log when it starts after a crash. kfake keeps
// it in memory, writes it to seq_windows.json at a clean close only, and trusts that
// file when it starts: after a SIGKILL it appends such a batch a second time. [Recover]
// updates the file from the log; it is called before kfake opens the directory.
//
// The formats are kfake's own and documented only by its source, persist.go: meta.json,
// seq_windows.json with entries of version 2, and segments
// partitions/TOPIC-N/OFFSET.dat of Kafka record batches one after the other. The rules
// by which a batch advances its producer's window are in its pushAndValidate.
// They were checked with kfake v0.0.0-20260918054303-01f206a7e32c; the tests check a
// new version.
package brokerstate
