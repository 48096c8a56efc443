// Package inbox tests outbox/inbox on the embedded engine: its module does not
// depend on the engine.
//
// A seed decides the deliveries, the deaths and the faults of the simulation. A
// failure names its seed, and how to run it again:
//
//	INBOX_FIRST=42 INBOX_SEEDS=1 go test ./test/sim/inbox -run TestSeeds -count 20
package inbox
