// Package subscribing simulates subscriptions under virtual time: instances of the engine
// and of forwarding over the real store, with an embedded database and broker, and
// consumers that receive, settle, fail and cheat.
//
// A seed decides what is published, what consumers do with each message, at which message
// to the database or the broker an instance dies, which ones are frozen or cut off, how
// the database and the broker fail, and what operators request. ledger_test.go records
// what consumers saw; judge_test.go checks it afterwards:
//
//   - nothing is lost: each message was acknowledged, is a dead letter, or was removed by
//     an operator
//   - the messages of a key are delivered in order
//   - no delivery follows a confirmed acknowledgement, and a message has one valid lease
//   - forged and foreign receipts are refused, repeated ones change nothing
//   - 'outbox verify --subscription' finds the same
//
// A failure names its seed, and how to run it again:
//
//	SUBSCRIBING_FIRST=42 SUBSCRIBING_SEEDS=1 go test ./test/sim/subscribing -run TestSeeds -count 20
//
// A seed does not decide how goroutines that are ready at the same moment are interleaved,
// so a failure may need a few runs to occur again. Seeds that have failed are in kept.
package subscribing
