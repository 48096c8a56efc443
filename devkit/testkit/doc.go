// Package testkit is for the tests of services that write events and of consumers: an embedded
// ScyllaDB, an embedded Kafka and a relay between them, faults of each, and checks of the
// result. Everything is reached over TCP, with any driver:
//
//	k := testkit.Start(t, testkit.Options{Schema: []string{"schema.cql"}, Relay: "relay.yaml"})
//	service := k.Run("service", testkit.Build(t, "."), "--scylla", k.CQL)
//	k.FaultDatabase(testkit.Fault{Effect: testkit.LoseAnswer, Chance: 0.05})
//	k.KillDuring(10, func() { … requests to the service … }, service, k.Relay)
//	k.NothingLost()
//
// The relay is a process of its own, with the code of this module, so that it can be killed: the
// test binary starts itself again, and the package's initialization then runs the relay in place
// of the tests.
//
// The engines show how a program behaves, not how fast it is; docs/testing.md has what they were
// compared with. The package may change in a minor version. Its checks wait for up to
// [Patience], so that they do not depend on the speed of the machine, and fail the test then.
package testkit
