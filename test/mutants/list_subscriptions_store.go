package main

import "slices"

// storeMutants break what package subscriptions/store promises, and the dead letters of
// subscriptions.
var storeMutants = slices.Concat(storeOnly, deadLetterMutants)

var storeOnly = []mutant{
	inStore("RandomOwners|Fence_", mutant{
		name: "store: a former owner writes", file: "subscriptions/store/partition.go",
		old: "		if pt.mu.epoch != epoch {\n", new: "		if false {\n",
	}),
	inStore("StatementsThatBeginLate", mutant{
		name: "store: a write does not compare the one before it", file: "subscriptions/store/partition.go",
		old: "	next.last = id\n", new: "	next.last = next.last\n",
	}),
	inStore("UnknownOutcomes", mutant{
		name: "store: a claim without an answer is claimed again", file: "subscriptions/store/partition.go",
		old: "		if st.last == id { // an attempt", new: "		if false { // an attempt",
	}),
	inStore("RandomOwners|FinishesTheWrites|UnknownOutcomes", mutant{
		name: "store: outcomes are read without Paxos", file: "subscriptions/store/store.go",
		old: "	return s.query(ctx, stmt, args...).Consistency(s.serial)", new: "	return s.query(ctx, stmt, args...)",
	}),
	inStore("StatementsThatBeginLate|RandomOwners", mutant{
		name: "store: an unknown outcome is not reported", file: "subscriptions/store/partition.go",
		old: "			return errors.Join(err, unknown, context.Cause(ctx))\n		}\n	}\n}\n\nfunc (s *Store) ensure",
		new: "			return errors.Join(err, context.Cause(ctx))\n		}\n	}\n}\n\nfunc (s *Store) ensure",
	}),
	inStore("TheLaterCommandWins", mutant{
		name: "store: a resume that finds nothing to change loses to an earlier pause", file: "subscriptions/store/resource.go",
		old: "		r.Paused = paused // also", new: "		if r.Paused == paused {\n			return errUnchanged\n		}\n		r.Paused = paused // also",
	}),
	inStore("Trim_", mutant{
		name: "store: a message below the beginning is not read", file: "subscriptions/store/partition.go",
		old: "min(max(next.first, c.first), c.lowest)", new: "max(next.first, c.first)",
	}),
	inStore("KeepsEveryByte", mutant{
		name: "store: a header without a value has an empty one", file: "subscriptions/store/headers.go",
		old: "		if h.Value == nil {\n", new: "		if false {\n",
	}),
	inStore("InChunksAndPages", mutant{
		name: "store: the first page of messages is all", file: "subscriptions/store/messages.go",
		old: "		if len(page) < pageSize {\n", new: "		if len(page) <= pageSize {\n",
	}),
	inStore("LeavesNothing", mutant{
		name: "store: a subscription created again is the deleted one", file: "subscriptions/store/resource.go",
		old: "		if _, ok := r.deleted[r.Incarnation()]; !ok {\n", new: "		if true {\n",
	}),
	inStore("Versions_", mutant{
		name: "store: the version of a change is not compared", file: "subscriptions/store/resource.go",
		old: "sub.Version > 0 && (created || sub.Version != r.Version)", new: "false",
	}),
	inStore("Instances_", mutant{
		name: "store: a report does not expire", file: "subscriptions/store/instances.go",
		old: "int(instanceLife/time.Second)", new: "0",
	}),
	inStore("ReceiptKey_", mutant{
		name: "store: a key of receipts replaces the first one", file: "subscriptions/store/statements.go",
		old: "(name, value) VALUES (?, ?) IF NOT EXISTS", new: "(name, value) VALUES (?, ?)",
	}),
}

var deadLetterMutants = []mutant{
	ofLetters("Replay_AfterFailures|UntilItIsAcknowledged", mutant{
		name: "deadletter: a replay is done before it is stored", file: "subscriptions/internal/deadletter/replay.go",
		old: "	r.Messages.Replay(record, p)\n	return false, nil", new: "	r.Messages.Replay(record, p)\n	return true, nil",
	}),
	ofLetters("WaitsForABusyOffset", mutant{
		name: "deadletter: a replay takes the place of another message", file: "subscriptions/internal/deadletter/replay.go",
		old: "	case Free:\n", new: "	case Free, Busy:\n",
	}),
	ofLetters("DecodesAsTheOriginal", mutant{
		name: "deadletter: a key that is not UTF-8 is lost", file: "subscriptions/internal/deadletter/convert.go",
		old: "	if e.KeyBase64 == nil {", new: "	if e.KeyBase64 == nil || true {",
	}),
	ofLetters("New_ID", mutant{
		name: "deadletter: a subscription created again finds the old dead letters", file: "subscriptions/internal/deadletter/convert.go",
		old: "NameID(namespace, p.Incarnation, p.Topic", new: "NameID(namespace, p.Topic",
	}),
	ofReplays("IsDeliveredUntil", mutant{
		name: "replay: an acknowledged replay is not resolved", file: "subscriptions/engine/replay.go",
		old: "	if len(replays) == 0 {\n", new: "	if true {\n",
	}),
	ofReplays("EndsWithSeekAndPurge", mutant{
		name: "replay: a purged replay counts as acknowledged", file: "subscriptions/engine/replay.go",
		old: "		case r.purged:\n", new: "		case false:\n",
	}),
	ofReplays("EndsWithSeekAndPurge", mutant{
		name: "replay: a seek leaves dead letters claimed", file: "subscriptions/engine/replay.go",
		old: "		if id == (gocql.UUID{}) {\n", new: "		if true {\n",
	}),
	ofReplays("IsDeliveredUntil", mutant{
		name: "replay: a failed replay is another dead letter", file: "subscriptions/engine/deadletter.go",
		old: "	if d.DeadLetter != (gocql.UUID{}) {\n", new: "	if false {\n",
	}),
	ofReplays("DatabaseAway", mutant{
		name: "replay: an error of the resolution removes the row", file: "subscriptions/engine/replay.go",
		old: "		if err == nil {\n			remove", new: "		if true {\n			remove",
	}),
	{
		name: "account: lost offsets are not reported", file: "subscriptions/verify/verify.go", pkg: "./subscriptions/verify", run: "TestCheck_",
		old: "a.unsettled(0, p.Start); p.Lost > 0 {", new: "a.unsettled(0, p.Start); p.Lost < 0 {",
	},
	{
		name: "account: stored messages are lost", file: "subscriptions/verify/verify.go", pkg: "./subscriptions/verify", run: "TestCheck_",
		old: "		a.stored[o] = true\n", new: "",
	},
	{
		name: "account: a requested replay is undelivered", file: "subscriptions/verify/verify.go", pkg: "./subscriptions/verify", run: "TestCheck_",
		old: "return r.EventID == id", new: "return false",
	},
	{
		name: "replay: a deleted subscription is never removed", file: "subscriptions/engine/clean.go", pkg: "./subscriptions/engine", run: "CleansUp",
		old: "	for _, d := range all {\n", new: "	for _, d := range all[len(all):] {\n",
	},
}

func ofReplays(run string, m mutant) mutant {
	m.pkg, m.run = "./subscriptions/engine", "TestReplay_"+run
	return m
}

func ofLetters(run string, m mutant) mutant {
	m.pkg, m.run = "./subscriptions/internal/deadletter", run
	return m
}

func inStore(run string, m mutant) mutant {
	m.pkg, m.run = "./subscriptions/store", run
	return m
}
