// Package engines starts the embedded engines: the database, package scyllafake, and
// the broker, kfake. Both listen on TCP, so that every client connects to them as to
// real servers.
//
// Without a data directory the engines keep everything in memory. With one they keep
// their data in its folders scylla and kafka, and one process at a time can use it.
// After the kill of a broker, [Engines.Start] rebuilds the state of its producers
// (package brokerstate).
//
// An engine that cannot write to its disk fails: the context of [Engines.UntilFailed]
// ends, and [Engines.Failure] returns the reason.
//
// The engines are for development and tests. The package creates neither tables nor
// topics.
package engines
