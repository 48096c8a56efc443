package main

// inboxMutants break the inbox of consumers.
var inboxMutants = []mutant{
	{
		name: "inbox: a fence does not notice a missing event", file: "outbox/inbox/advance.go", pkg: "./test/sim/inbox", run: "DuplicateAndGap",
		old: "return condition{kind: equal, mark: mark{&before, &s.Epoch}}", new: "_ = before\n\treturn condition{kind: less, mark: mark{epoch: &s.Epoch}}",
	},
	{
		name: "inbox: a fence compares the number before the epoch", file: "outbox/inbox/advance.go", pkg: "./test/sim/inbox", run: "Fence_Epochs",
		old: "case s.Epoch == epoch && have >= s.Sequence:", new: "case have >= s.Sequence:",
	},
	{
		name: "inbox: an event of an ended epoch is applied", file: "outbox/inbox/fence.go", pkg: "./test/sim/inbox", run: "Fence_Epochs",
		old: `epoch = " AND " + columns[1] + " = ?"`, new: `epoch = " AND " + columns[1] + " != ?"`,
	},
	{
		name: "inbox: a fence reads its mark without the decided writes", file: "outbox/inbox/advance.go", pkg: "./test/sim/inbox", run: "LastIncludes",
		old: "level := gocql.Consistency(attempt.Serial(f.cfg.LocalSerial))", new: "level := gocql.LocalQuorum",
	},
	{
		name: "inbox: a fence reports an effect of its own as a duplicate", file: "outbox/inbox/advance.go", pkg: "./test/sim/inbox", run: "Fence_LostResponses",
		old: "lost = true", new: "lost = false",
	},
	{
		name: "inbox: an effect is applied without its condition", file: "outbox/inbox/fence.go", pkg: "./test/sim/inbox", run: "TestSeeds",
		old: `update+" = ?"+epoch`, new: `update+" != ?"+epoch`,
	},
	{
		name: "inbox: the mark expires with the rows", file: "outbox/inbox/fence.go", pkg: "./test/sim/inbox", run: "ItsOwnTTL",
		old: "f.table.cql(), f.cfg.TTL/time.Second,", new: "f.table.cql(), max(60, f.cfg.TTL/time.Second),",
	},
	{
		name: "inbox: the driver retries conditional statements", file: "outbox/inbox/advance.go", pkg: "./test/sim/inbox", run: "IgnoresTheRetryPolicy",
		old: "RetryPolicy(attempt.Never{}).", new: "",
	},
	{
		name: "inbox: a fence ignores LocalSerial", file: "outbox/inbox/advance.go", pkg: "./test/sim/inbox", run: "LocalSerial",
		old: "SerialConsistency(attempt.Serial(f.cfg.LocalSerial))", new: "SerialConsistency(gocql.Serial)",
	},
	{
		name: "inbox: an effect may run past its lease", file: "outbox/inbox/claim.go", pkg: "./test/sim/inbox", run: "ExpiredLease",
		old: "sent.Add(c.cfg.Lease - margin)", new: "sent.Add(c.cfg.Lease + margin)",
	},
	{
		name: "inbox: a result that was lost counts as stored", file: "outbox/inbox/claim.go", pkg: "./test/sim/inbox", run: "Once_LostResponses",
		old: "e.owner == c.owner && e.done:", new: "e.owner == c.owner:",
	},
	{
		name: "inbox: a consumer that stops waits for the end of its lease", file: "outbox/inbox/once.go", pkg: "./test/sim/inbox", run: "StoresAfter",
		old: "time.AfterFunc(settle, end)", new: "_ = end",
	},
	{
		name: "inbox: a failed effect keeps its lease", file: "outbox/inbox/once.go", pkg: "./test/sim/inbox", run: "ReleasesAfter",
		old: "		c.free(after)\n", new: "",
	},
}
