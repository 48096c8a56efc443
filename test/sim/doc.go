// Package sim checks the promises of the whole system under virtual time.
//
// One testing/synctest bubble contains a scyllafake node, a kfake broker, the order
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
// A plan that found a bug is kept in testdata/seeds, with a description of the bug, and
// always run; `go run ./test/sim/run -shrink FILE` first removes from it the parts that
// are not needed.
package sim
