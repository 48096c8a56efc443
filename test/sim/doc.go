// Package sim checks the promises of the whole system under virtual time.
//
// One testing/synctest bubble contains a scyllafake node, one or three kfake brokers, the order
// service with its customers, and a relay. They use the production clients, unmodified,
// over in-memory connections. A simulation of hours takes a second.
//
// A scenario defines the faults and their times. The checks afterwards are the same for
// all scenarios and are in promises.go; they use the topics, the tables and the CDC logs,
// never the relay's own reports.
//
// A seed determines the customers' actions, message delays, the version of Kafka or Redpanda whose
// requests the broker negotiates and, in TestSeeds, the faults and their times (plan.go, kinds*.go). It does not determine how the scheduler
// interleaves goroutines that are ready at the same moment, so a failure may need several
// runs of its seed to recur. Package run tries many seeds in separate processes and
// reports how often a failed one fails and how to repeat it:
//
//	make sim SEEDS=10000
//	make sim SEEDS=1 FIRST=42
//
// # Premises
//
// A simulation finds nothing in what it takes for granted together with the code. It contradicts
// these premises (kinds_answers.go, kinds_topics.go, kinds_log.go, kinds_writers.go, clocks.go):
//
//   - An answer of a broker is true, and arrives. Brokers do not know topics for seconds, one of
//     three does not for minutes, leaders deny theirs; answers to produce requests are lost and
//     the attempts after them end in each of several errors; a topic exists that nobody knows.
//   - Topics keep their records. They are deleted and created again, and single partitions are
//     trimmed. What was published counts as published, and may be published again.
//   - The CDC log has every event. CDC is off for a while, the log is dropped and created, and its
//     ttl changes, while a relay runs and while none does.
//   - Only the relay writes to its topics. Another source and a relay of another table write
//     records with the same keys, ids and numbers, and records that are no events.
//   - Clocks agree. The clock that dates records, the host's or the broker's, and that of the
//     relay's host are an hour off, in both directions; the latter is set back while a relay runs.
//     Where brokers date the records, they do so in the order of their offsets.
//     Those of writers and of the database are seconds off.
//   - Rows are written by outbox.Append, in ascending order. Others write rows that are no events,
//     two events with one number, at the same time or later, or with one id, and media types in headers; the table may have the
//     last event of an aggregate first.
//
// It still shares these with the code, so it shows nothing about them:
//
//   - The clock of the relay's host is ahead of the database's by at most half of the ttl of the log.
//   - A row becomes visible within the confidence window, or its aggregate is written to again
//     (kinds.go, kinds_late.go). The verifier is tested without that, in verifier_test.go.
//   - No broker denies a topic that exists for 5 s together with all others.
//   - No relay starts while CDC is off (relay/log_gap_test.go shows what follows), and the CDC log
//     does not change in plans with late rows: a scan takes events older than its rows for
//     published.
//   - The broker keeps what it acknowledged until somebody deletes it: kfake has no replicas, no
//     elections and no disks. Its topics are not compacted, and not emptied by size or age.
//   - Batches of other producers are small, and can be decompressed.
//   - The database has one node: there is no consistency level below LOCAL_QUORUM, no repair, and
//     no clock that differs between nodes. No host's clock is set forward while a relay runs: the
//     library that reads the CDC log has no other clock than the bubble's.
//   - Events that contradict each other need not be reported in random plans: relays restart and
//     forget aggregates (TestWriters_OfOtherRows, relay/conflicts_test.go).
//   - Partition counts, event types and names of tables and topics do not change.
//   - scyllafake and kfake behave like ScyllaDB, Kafka and Redpanda (docs/testing.md).
//
// A plan that found a bug is kept in testdata/seeds, with a description of the bug, and
// always run; `go run ./test/sim/run -shrink FILE` first removes from it the parts that
// are not needed.
package sim
