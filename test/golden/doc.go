// Package golden replays recorded conversations with a real ScyllaDB node against
// another server and reports differences between the responses.
//
// The recordings are in test/testdata/golden, whose README describes them. A Case is
// played step by step over raw frames: each recorded request is sent again, with the
// prepared ids and paging states of this run in place of the recorded ones, while the
// server's clock is set to the recorded node's. The response is decoded by this package
// alone and compared with the recorded one, except for values that cannot be equal,
// such as random bits of uuids (see Diff).
//
// Of a recorded cluster the node stands for all nodes. What the others caused happens to
// it when the recording shows it: generations (see Case.Generations), events, and operations
// that time out, with what became of the write (see Case.Fates).
package golden
