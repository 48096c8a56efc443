package main

// verifyMutants break the checks of completeness: outbox verify and the verifier.
var verifyMutants = []mutant{
	{
		name: "verify: a check of no event is ok", file: "internal/audit/check.go", pkg: "./cmd/outbox", run: "TestVerify_YoungEventsAreNotChecked",
		old: "	case c.Published+c.Dead+c.Parked+c.Closed == 0:\n", new: "	case false:\n",
	},
	{
		name: "verify: young events are not reported", file: "internal/audit/check.go", pkg: "./internal/audit", run: "TestCheck_FindsWhatIsWrong",
		old: "		c.counts.Young++\n", new: "",
	},
	{
		name: "verify: an unreadable row whose dead letter is settled is a problem", file: "internal/audit/check.go", pkg: "./cmd/outbox", run: "TestVerify_DeadLetters",
		old: "		letter, ok := c.l.letters[id]\n		if !ok {", new: "		letter, ok := c.l.letters[id]\n		if ok = false; !ok {",
	},
	{
		name: "verify: --wait does not wait", file: "cmd/outbox/verify.go", pkg: "./cmd/outbox", run: "TestVerifyFlags_Wait",
		old: "w.Until.Add(confidence+verifyMargin).Sub(now)", new: "w.Until.Sub(now)",
	},
	{
		name: "doctor: a CDC log as short as the confidence window is no problem", file: "relay/backfill_table.go", pkg: "./cmd/outbox", run: "TestDoctor_ChecksEveryTable",
		old: "f.cdcTTL == 0 || f.cdcTTL > window {", new: "f.cdcTTL == 0 || f.cdcTTL >= window {",
	},
}
