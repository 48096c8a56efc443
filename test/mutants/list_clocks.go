package main

// clocks runs the tests of skewed clocks of one package.
func clocks(pkg string, m mutant) mutant {
	m.pkg, m.run = "./"+pkg, "^TestClocks_"
	return m
}

// clockMutants let clients' clocks decide between writes.
var clockMutants = []mutant{
	clocks("relay", mutant{
		name: "a repair is published although its answer is covered", file: "relay/internal/backfill/repair_store.go",
		old: "return state == RepairTaken, nil",
		new: "return true, nil",
	}),
	clocks("relay", mutant{
		name: "a repair that was answered is answered again", file: "relay/internal/backfill/repair_store.go",
		old: "repair_id = ? IF state = ?\",\n		string(to), detail, time.Now(), r.relay, r.table, id, string(from))",
		new: "repair_id = ? IF state != ?\",\n		string(to), detail, time.Now(), r.relay, r.table, id, string(from)+\"!\")",
	}),
	clocks("relay", mutant{
		name: "checkpoints have the time of the relay's host", file: "relay/internal/checkpoint/store.go",
		old: "Idempotent(true).DefaultTimestamp(false)",
		new: "Idempotent(true)",
	}),
	clocks("relay", mutant{
		name: "the start of a scan has the time of the relay's host", file: "relay/internal/checkpoint/scans.go",
		old: "WithContext(ctx).DefaultTimestamp(false)",
		new: "WithContext(ctx)",
	}),
	clocks("relay", mutant{
		name: "the progress of a scan has the time of the relay's host", file: "relay/heartbeat.go",
		old: "Idempotent(true).DefaultTimestamp(false).Exec()",
		new: "Idempotent(true).Exec()",
	}),
	clocks("relay", mutant{
		name: "an instance is silent after its clock is set back", file: "relay/heartbeat.go",
		old: "Idempotent(true).DefaultTimestamp(false).Exec()",
		new: "Idempotent(true).Exec()",
	}),
	clocks("dlq", mutant{
		name: "requests and holds have the time of their writer's host", file: "dlq/internal/db/db.go",
		old: "RetryPolicy(neverAgain{}).DefaultTimestamp(false)",
		new: "RetryPolicy(neverAgain{})",
	}),
	clocks("internal/admin", mutant{
		name: "the audit's outcome may be covered by its intention", file: "internal/admin/audit.go",
		old: "a.stmt.finish, written+1, state",
		new: "a.stmt.finish, written-1, state",
	}),
	clocks("schedule", mutant{
		name: "slots are removed with the time of the scheduler's host", file: "schedule/store.go",
		old: "RetryPolicy(cqlcode.NeverAgain{}).DefaultTimestamp(false)\n	b.SetConsistency(s.cons)\n	return b",
		new: "RetryPolicy(cqlcode.NeverAgain{})\n	b.SetConsistency(s.cons)\n	return b",
	}),
	{
		name: "an event that became visible late is not written again", file: "orders/repair.go",
		old: "err = s.appender.Settle(settling, *e)",
		new: "err = settling.Err()",
		pkg: "./orders", run: "^TestRepair_WritesALateEventAgain$/^read$",
	},
	{
		name: "a change follows an event that could not be written again", file: "outbox/appender.go",
		old: "case err != nil && v == verdictConflict:\n			return Appended{}, fmt.Errorf",
		new: "case err != nil && v == verdictConflict:\n			_ = fmt.Errorf",
		pkg: "./orders", run: "^TestRepair_NothingFollowsALateEvent$",
	},
	{
		name: "an order is up to date before its late event is written again", file: "orders/repair.go",
		old: "		return o, nil\n	}\n	s.committed(ctx, &o)",
		new: "	}\n	s.committed(ctx, &o)",
		pkg: "./orders", run: "^TestRepair_NothingFollowsALateEvent$",
	},
	{
		name: "every read writes the last event again", file: "orders/repair.go",
		old: "(o == nil || o.Version < e.Sequence)",
		new: "(o == nil || o.Version <= e.Sequence)",
		pkg: "./orders", run: "^TestRepair_LeavesWhatIsAppliedAlone$",
	},
	unit("TestRepair_OfADiscardedDeadLetter", mutant{
		name: "a repair publishes an event whose dead letter was discarded", file: "relay/internal/backfill/repair.go",
		old: "} else if withheld {",
		new: "} else if withheld && false {",
	}),
}
