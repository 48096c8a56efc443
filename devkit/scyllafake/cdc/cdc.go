// Package cdc makes CDC log tables and their rows as ScyllaDB makes them.
//
// LogTable derives a log's schema from its base table. A Manager turns mutations of
// base tables into mutations of their logs: it splits each into changes of one
// timestamp, one TTL and one kind, numbers them, and routes them to the stream that was in use at the change's time.
//
// The rows follow ScyllaDB 5.1 (cdc/log.cc, cdc/split.cc) and the recordings in
// test/testdata/golden, including the odd ones, because readers of a real log meet
// those too.
package cdc

// The columns of every log beside the columns of its base table.
const (
	ColStreamID   = "cdc$stream_id"
	ColTime       = "cdc$time"
	ColBatchSeqNo = "cdc$batch_seq_no"
	ColOperation  = "cdc$operation"
	ColTTL        = "cdc$ttl"
	ColEndOfBatch = "cdc$end_of_batch"

	prefixDeleted  = "cdc$deleted_"
	prefixElements = "cdc$deleted_elements_"
)

// Operation is the value of cdc$operation.
type Operation int8

// CDC operations.
const (
	OpUpdate          Operation = 1
	OpInsert          Operation = 2
	OpRowDelete       Operation = 3
	OpPartitionDelete Operation = 4
	OpRangeStartIncl  Operation = 5
	OpRangeStartExcl  Operation = 6
	OpRangeEndIncl    Operation = 7
	OpRangeEndExcl    Operation = 8
)
