package main

// verifyMutants break the checks of completeness: outbox verify and the verifier.
var verifyMutants = []mutant{
	{
		name: "verify: a check of no event is ok", file: "internal/verify/check.go", pkg: "./cmd/outbox", run: "TestVerify_YoungEventsAreNotChecked",
		old: "	case c.Published+c.Dead+c.Blocked+c.Closed == 0:\n", new: "	case false:\n",
	},
	{
		name: "verify: a row lost amid others counts as undone", file: "internal/verify/check.go", pkg: "./internal/verify", run: "TestCheck_Undone",
		old: " && e.seq > last.until(epoch):", new: ":",
	},
	{
		name: "verify: the order is that of the numbers, whatever their epochs", file: "internal/verify/check.go", pkg: "./internal/verify", run: "TestCheck_Undone",
		old: "return cmp.Compare(c.epoch(a), c.epoch(b))", new: "return 0",
	},
	{
		name: "epochs: the last row is of the next epoch", file: "internal/epochs/epochs.go", pkg: "./internal/epochs", run: "TestNext",
		old: "lastWrite.Unix()+1", new: "lastWrite.Unix()",
	},
	{
		name: "epochs: two commands begin the next epoch", file: "internal/epochs/epochs.go", pkg: "./internal/epochs", run: "TestBegin",
		old: "	if !begun {", new: "	if !begun && err != nil {",
	},
	{
		name: "new-epoch: an epoch is not later than those of the records", file: "cmd/outbox/schema_new_epoch.go", pkg: "./cmd/outbox", run: "TestNewEpoch_IsLater",
		old: "n.previousEpoch(), n.lastRecord)\n}", new: "n.previousEpoch())\n}",
	},
	{
		name: "new-epoch: an epoch begins beside a relay", file: "cmd/outbox/schema_new_epoch.go", pkg: "./cmd/outbox", run: "TestNewEpoch_Refusals",
		old: "err == nil && len(alive) > 0 {", new: "err == nil && len(alive) < 0 {",
	},
	{
		name: "verify: young events are not reported", file: "internal/verify/check.go", pkg: "./internal/verify", run: "TestCheck_FindsWhatIsWrong",
		old: "		c.counts.Young++\n", new: "",
	},
	{
		name: "verify: an unreadable row whose dead letter is settled is a problem", file: "internal/verify/check.go", pkg: "./cmd/outbox", run: "TestVerify_DeadLetters",
		old: "		deadLetter, ok := c.l.deadLetters[id]\n		if !ok ||", new: "		deadLetter, ok := c.l.deadLetters[id]\n		if ok = false; !ok ||",
	},
	{
		name: "verify: --wait-old does not wait", file: "cmd/outbox/verify.go", pkg: "./cmd/outbox", run: "TestVerifyFlags_Wait",
		old: "w.Until.Add(confidence+app.VerifyMargin).Sub(now)", new: "w.Until.Sub(now)",
	},
	{
		name: "verifier: a suspect is not confirmed", file: "internal/verify/verifier_pass.go", pkg: "./internal/verify", run: "TestVerifier_Segments",
		old: "	if err := p.topics.more(ctx, p.add); err != nil {", new: "	if err := error(nil); err != nil {",
	},
	{
		name: "verifier: events that the relay has not passed are missing", file: "internal/verify/verifier_pass.go", pkg: "./internal/verify", run: "TestVerifier_LeavesAlone",
		old: "r.Written >= p.limit,", new: "false,",
	},
	{
		name: "verifier: events deleted from a topic are missing", file: "internal/verify/verifier_pass.go", pkg: "./internal/verify", run: "TestVerifier_Retention",
		old: "	case r.Written < horizon:\n", new: "	case r.Written < horizon-horizon:\n",
	},
	{
		name: "verifier: dead letters are missing", file: "internal/verify/verifier_pass.go", pkg: "./internal/verify", run: "TestVerifier_LeavesAlone",
		old: "			delete(missing, l.Event)\n", new: "",
	},
	{
		name: "verifier: aborted records count", file: "internal/verify/verifier_topics.go", pkg: "./internal/verify", run: "TestVerifier_Aborted",
		old: "kgo.FetchIsolationLevel(kgo.ReadCommitted())", new: "kgo.FetchIsolationLevel(kgo.ReadUncommitted())",
	},
	{
		name: "verifier: the relay's answer to a repair is not verified", file: "internal/verify/verifier.go", pkg: "./internal/verify", run: "TestVerifier_Repairs",
		old: "		if !p.has(r) {", new: "		if false {",
	},
	{
		name: "verifier: a wrong relay.topics publishes everything again", file: "internal/verify/verifier.go", pkg: "./internal/verify", run: "TestVerifier_Repairs",
		old: "p.lostAll > 100 && int64(p.lostAll) > p.checked/100 {", new: "false {",
	},
	{
		name: "verifier: a segment has no bound", file: "internal/verify/verifier_pass.go", pkg: "./internal/verify", run: "TestVerifier_Segments",
		old: "	if p.set.Len() >= p.v.cfg.maxEvents {", new: "	if false {",
	},
	{
		name: "verifier: a relay that scans its table has passed everything", file: "relay/passed.go", pkg: "./relay", run: "TestPassed$",
		old: "r.State == checkpoint.ScanRunning", new: "r.State == checkpoint.ScanReplaced",
	},
	scenario("TestVerifier_FindsLateRows", mutant{
		name: "verifier: nothing is repaired", file: "internal/verify/verifier.go",
		old: "	if !p.t.Repair || len(missing) == 0 {", new: "	if true || len(missing) == 0 {",
	}),
	unit("TestRepair_OfAnEventThatItsTopicHasLost", mutant{
		name: "repair: the dedup index proves publication", file: "relay/internal/backfill/repair.go",
		old: "		case inTopic && r.waited(q.ID):", new: "		case inTopic:",
	}),
	unit("TestRepair_OfAnEventThatItsTopicHasLost", mutant{
		name: "repair: two proofs from before the publication publish it again", file: "relay/internal/backfill/repair.go",
		old: "ok && r.seen[q.ID] > before {", new: "ok && before >= 0 {",
	}),
	unit("TestRepair_WaitsForEarlierEvents", mutant{
		name: "repair: an event is published before earlier ones that the sweep reader has not published", file: "relay/internal/backfill/repair.go",
		old: "		if r.publisher.Fate(&f, passed.UnixMicro()-1, math.MaxInt64).Missed() {\n			return errEarlier\n", new: "		if r.publisher.Fate(&f, passed.UnixMicro()-1, math.MaxInt64) > earlier.Doubtful {\n			return errEarlier\n",
	}),
	unit("TestRepair_OfADiscardedEvent", mutant{
		name: "repair: a discarded event is published", file: "relay/internal/backfill/repair.go",
		old: "	} else if withheld {", new: "	} else if withheld && err != nil {",
	}),
	{
		name: "doctor: a CDC log as short as the confidence window is no problem", file: "relay/internal/cdclog/table_info.go", pkg: "./internal/doctor", run: "TestDoctor_ChecksEveryTable",
		old: "f.CDCTTL == 0 || f.CDCTTL > window {", new: "f.CDCTTL == 0 || f.CDCTTL >= window {",
	},
	unit("TestRepair_OfAnEventThatTheSweepPublished", mutant{
		name: "repair: a request that waited for the sweep publishes", file: "relay/internal/backfill/repair.go",
		old: "q.Detail == isBeforeScan || q.Detail == IsBeforeSweep", new: "q.Detail == isBeforeScan",
	}),
	{
		name: "verify: the events of a topic that one broker does not know are missing", file: "internal/verify/topics_there.go", pkg: "./internal/verify", run: "TestVerify_ATopicThatABroker",
		old: "	if len(req.Topics) == 0 {", new: "	if true {",
	},
	{
		name: "verify: events deleted from a former topic are missing", file: "internal/verify/verifier_topics.go", pkg: "./internal/verify", run: "TestVerifier_FormerTopics",
		old: "horizon = max(horizon, t.byWriters(s, s.absence))", new: "_ = s.absence",
	},
	{
		name: "verify: events are not missing beside an empty former topic", file: "internal/verify/verifier_topics.go", pkg: "./internal/verify", run: "TestVerifier_FormerTopics",
		old: "now.Add(-retention[start.Topic])", new: "now.Add(-0*retention[start.Topic])",
	},
	{
		name: "verify: two events of an aggregate with one id are one event", file: "internal/verify/ledger.go", pkg: "./internal/verify", run: "TestVerify_IDOfTwoEventsOfAnAggregate",
		old: " || e.seq > 0 && e.seq != r.Seq", new: "",
	},
}
