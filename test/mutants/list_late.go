package main

// lateMutants break what the relay does about rows that become visible late, and about
// numbers that are missing.
var lateMutants = []mutant{
	unit("TestLate_FirstEvent", mutant{
		name: "a row that became visible late counts as published", file: "relay/internal/publish/lookup.go",
		old: "	case f.Written > known:",
		new: "	case false:",
	}),
	{
		name: "a row of an older event counts as written once", file: "relay/internal/publish/lookup.go", pkg: "./relay/internal/publish", run: "TestPublisher_Fate",
		old: "(f.Rewritten() || !f.CreatedAt.IsZero() && f.FirstWrite()-minClockMargin.Microseconds() <= known)", new: "f.Rewritten()",
	},
	{
		name: "a row is written first after its event was created by any clock", file: "relay/internal/publish/lookup.go", pkg: "./relay/internal/publish", run: "TestPublisher_Fate",
		old: "f.FirstWrite()-minClockMargin.Microseconds() <= known", new: "f.FirstWrite() <= known",
	},
	unit("TestRewritten", mutant{
		name: "a write time after the forgotten ids proves that an event is not published", file: "relay/internal/publish/offer.go",
		old: "	case o.By == ByTail || !o.Owner:\n",
		new: "	case o.By == ByTail:\n",
	}),
	unit("TestConflicts_NumbersBeginAgainAmongManyEvents", mutant{
		name: "a write time before the forgotten ids proves that an event is published", file: "relay/internal/publish/offer.go",
		old: "	case o.By == ByTail || !o.Owner:\n",
		new: "	case o.By == ByTail || !o.Owner && o.Written > p.ids.horizon(e.ID.UUID()):\n",
	}),
	unit("TestRewritten", mutant{
		name: "a row that was written again is searched for at its last write time only", file: "relay/internal/readback/proof.go",
		old: "	a.since = min(",
		new: "	_ = min(",
	}),
	unit("TestRewritten", mutant{
		name: "a row that was written again after a restart is new", file: "relay/internal/earlier/earlier.go",
		old: "if fate == Rewritten {",
		new: "if false {",
	}),
	unit("TestRewritten", mutant{
		name: "the first event of an unknown aggregate is new, also if its row was written again", file: "relay/internal/publish/offer.go",
		old: "o.Anyway || e.Sequence == 1 && !p.rewrittenLocked(e, o.Written)):",
		new: "o.Anyway || e.Sequence == 1):\n		_ = cdclog.Rewritten",
	}),
	unit("TestRewritten", mutant{
		name: "no service's clock is ahead of the broker's", file: "relay/internal/readback/proof.go",
		old: "append(d.expected(ask.since), ask.since/1000-d.margin().Milliseconds())",
		new: "d.expected(ask.since)",
	}),
	unit("TestRelay_OrdersTheRowsOfABatch", mutant{
		name: "the rows of a batch are published in the reverse order", file: "relay/internal/capture/tail_order.go",
		old: "cmp.Compare(h.Seq, o.Seq)",
		new: "cmp.Compare(o.Seq, h.Seq)",
	}),
	unit("TestRelay_ARowStoredASecondTime", mutant{
		name: "a start does not remember the events that it read back", file: "relay/internal/publish/lookup.go",
		old: "	p.ids.seed(found, before.UnixMicro())\n",
		new: "	_ = p.ids.seed\n",
	}),
	unit("TestProofs_QuickAfterLateEvents", mutant{
		name: "an event was published as late as others were found lately", file: "relay/internal/readback/proof_near.go",
		old: "	if early > proofMargin {\n",
		new: "	if false {\n",
	}),
	unit("TestReplay_WaitsForTheEventBeforeTheChain", mutant{
		name: "the event before a chain has an earlier write time than its head", file: "relay/internal/publish/start.go",
		old: "after = max(e.WrittenAt, e.FirstFailedAt.UnixMicro()) + margin",
		new: "after = e.WrittenAt + 0*margin",
	}),
	unit("TestReplay_WaitsForTheEventBeforeTheChain", mutant{
		name: "a chain is replayed while a reader searches for the events before it", file: "relay/internal/publish/replay.go",
		old: "_, claimed := s.claims[c.Key]",
		new: "claimed := false",
	}),
	unit("TestReplayer_DeadLettersAroundAWaitingEvent", mutant{
		name: "an event waits for dead letters of later events", file: "relay/internal/chains/chains.go",
		old: "(seq == 0 || c.Head().Seq <= seq)",
		new: "(seq >= 0)",
	}),
	unit("TestReplayer_DeadLettersAroundAWaitingEvent", mutant{
		name: "a chain is replayed before an earlier event that waits", file: "relay/internal/publish/replay.go",
		old: " || c.Head().Seq > r.firstLocked(l)",
		new: "",
	}),
	unit("TestReplayer_DeadLettersAroundAWaitingEvent", mutant{
		name: "a run of dead letters passes an event that waits", file: "relay/internal/publish/replay.go",
		old: "(ref.Seq > first || ",
		new: "(ref.Seq > first && false || ",
	}),
	unit("TestStart_DeadLettersAfterAnUnknownEvent", mutant{
		name: "after a start only the head of a chain waits for the sweep", file: "relay/internal/publish/start.go",
		old: "e.ErrorClass == chains.ClassBehind && e.Sequence > 1 {",
		new: "e.ErrorClass == chains.ClassBehind && e.Sequence > 1 && i == 0 {",
	}),
	unit("TestRewritten_AcrossACheckpoint", mutant{
		name: "a first event that was written again across a checkpoint counts as new", file: "relay/internal/publish/offer.go",
		old: "cdclog.Due(e) < p.mu.readFrom",
		new: "cdclog.Due(e) < 0",
	}),
	unit("TestRewritten_AcrossACheckpoint", mutant{
		name: "the sweep does not look for an event that was created before its position", file: "relay/internal/capture/sequencer.go",
		old: "!known && (e.Rewritten() || e.FirstWrite() < began)",
		new: "!known && e.Rewritten()",
	}),
	unit("TestConflicts_IDOfADeadLetter", mutant{
		name: "an event counts as published whose id a dead letter of another aggregate has", file: "dlq/subscription.go",
		old: "if !entry.IsOf(row.AggregateID) && !row.IsOf(entry.AggregateID) {",
		new: "if false {",
	}),
	unit("TestConflicts_IDOfTwoEventsOfAnAggregate", mutant{
		name: "two events of an aggregate with one id are one event", file: "relay/internal/readback/proof_wide.go",
		old: "&& e.Sequence == ask.event.Sequence",
		new: "",
	}),
	unit("TestRelay_CDCLogLacksEvents", mutant{
		name: "no row that is stored without a CDC log is dated earlier", file: "relay/internal/backfill/gap.go",
		old: "w.seen.Add(-window)",
		new: "w.seen.Add(0 * -window)",
	}),
	{
		name: "no position is saved between a change of the log and its discovery", file: "relay/internal/backfill/plan.go", pkg: "./relay/internal/backfill", run: "TestBackfill_IsDecided",
		old: "from := n.position.Add(-n.window)", new: "from := n.position",
	},
	unit("TestRepair_OfAnEventThatAScanPublished", mutant{
		name: "a repair repeats what a scan published after the verification", file: "relay/internal/backfill/repair.go",
		old: "o.Old(row.Written) && r.doubt(q)",
		new: "false",
	}),
	unit("TestRepair_OfAnEventThatAScanPublished", mutant{
		name: "every request after a scan is answered with unknown first", file: "relay/internal/backfill/repair.go",
		old: "o.Old(row.Written) && r.doubt(q)",
		new: "o != nil && r.doubt(q)",
	}),
	unit("TestStart_ADeadLetterWaitsForTheScan", mutant{
		name: "a dead letter is replayed before the scan has passed on the event before it", file: "relay/internal/publish/replay.go",
		old: " || after > 0 && p.mu.older != nil && p.mu.older.Behind(c.Aggregate)",
		new: "",
	}),
	unit("TestDeadLetters_TheEventBeforeIsLateAndUnpublished", mutant{
		name: "a dead letter is replayed without the late event before it", file: "relay/internal/publish/replay.go",
		old: "if c.Strict && c.Head().After > 0 {",
		new: "if false {",
	}),
	unit("TestDeadLetters_TheEventBeforeIsLateAndUnpublished", mutant{
		name: "a settled dead letter in the index proves that the events before it are published", file: "relay/internal/publish/lookup.go",
		old: "published && bool(in):",
		new: "published && (bool(in) || true):",
	}),
	unit("TestDeadLetters_TheEventBeforeIsLateAndUnpublished", mutant{
		name: "a discarded dead letter proves that the events before it are published", file: "relay/internal/publish/lookup.go",
		old: "if sent && !l.Unblocked",
		new: "if (sent || true) && !l.Unblocked",
	}),
	unit("TestStart_AnUnknownEventBeforeAChain", mutant{
		name: "a dead letter behind a discarded one is replayed without the events before both", file: "relay/internal/publish/start.go",
		old: "ref.After, aggregate, next = after, e.AggregateID, e.Sequence+1",
		new: "ref.After, after, aggregate, next = after, 0, e.AggregateID, e.Sequence+1",
	}),
	unit("TestStart_AnUnknownEventBeforeAChain", mutant{
		name: "a dead letter follows one that is in no chain", file: "relay/internal/publish/start.go",
		old: "		if strict {\n			if aggregate",
		new: "		{\n			if aggregate",
	}),
	unit("TestReplayer_AHeadThatIsGone", mutant{
		name: "a dead letter is replayed without a look-up after one that is gone", file: "relay/internal/publish/replay.go",
		old: "		return false, err\n	}\n	of := storedEvent(l)",
		new: "		return true, err\n	}\n	of := storedEvent(l)",
	}),
	unit("TestRepairer_DoubtsMoreThanItRemembers", mutant{
		name: "repeated requests for many events are never granted", file: "relay/internal/backfill/repair.go",
		old: "			delete(r.doubted, id)\n			break\n",
		new: "			delete(r.doubted, id)\n",
	}),
	unit("TestRepair_PublishesEarlierMissingEvents", mutant{
		name: "a repair publishes an event before an earlier one that is missing too", file: "relay/internal/earlier/earlier.go",
		old: "found.Highest == found.Published {",
		new: "found.Highest == found.Published || true {",
	}),
	unit("TestReader_StartsAgainWithoutRepetitions", mutant{
		name: "a restarted reader hands on again what was settled before", file: "relay/internal/capture/sequencer.go",
		old: "len(events) == 0 || p.Settled(t) {",
		new: "len(events) == 0 {",
	}),
	unit("TestStreams_KnowWhatWasSettledBeforeARestart", mutant{
		name: "a second restart of the reader forgets what the first one knew", file: "relay/internal/checkpoint/stream.go",
		old: "for t := range before.settled {",
		new: "for t := range s.settled {",
	}),
	unit("TestStreams_KnowWhatWasSettledBeforeARestart", mutant{
		name: "a restarted reader hands on again what no checkpoint has passed", file: "relay/internal/checkpoint/stream.go",
		old: "		s.settledTo = before.position\n",
		new: "",
	}),
	unit("TestProofs", mutant{
		name: "the proof reads the partition of the aggregate's id", file: "relay/internal/readback/proof_near.go",
		old: "keyPartition(a.topic, a.key, len",
		new: "keyPartition(a.topic, a.event.AggregateID[:], len",
	}),
	unit("TestLate_FirstEvent", mutant{
		name: "a new generation makes the rows before it count as published", file: "relay/internal/checkpoint/streams.go",
		old: "	var latest int64\n",
		new: "	latest := gen.UnixMicro()\n",
	}),
	unit("TestPublisher_FateOfAForgottenEvent", mutant{
		name: "an id that is forgotten proves that its event is not published", file: "relay/internal/publish/lookup.go",
		old: "max(began, min(p.ids.horizon(f.ID.UUID()), remembered))",
		new: "began",
	}),
	unit("TestGaps_OfAnAggregateUnderWayAreKept", mutant{
		name: "gaps of an aggregate with events in progress are forgotten", file: "relay/internal/dedup/lines.go",
		old: "!ok && !x.busy(a) {",
		new: "!ok {",
	}),
	unit("TestGaps_OfAnAggregateUnderWayAreKept", mutant{
		name: "a skipped number counts as published", file: "relay/internal/publish/offer.go",
		old: "	case s.lines.IsGap(e.AggregateID.UUID(), e.Sequence):",
		new: "	case false:",
	}),
	unit("TestGaps_FoundByTheNextEvent", mutant{
		name: "no gaps are remembered", file: "relay/internal/dedup/lines.go",
		old: "		if seq > l.Next {\n			x.skip(",
		new: "		if false {\n			x.skip(",
	}),
	unit("TestGaps_FoundByTheNextEvent", mutant{
		name: "skipped numbers are not looked up again", file: "relay/internal/dedup/gaps.go",
		old: "return g != nil && (seq >= g.due || time.Since(g.at) >= gapsAgain)",
		new: "return g != nil && false",
	}),
	unit("TestGaps_AreLookedUpAtGrowingDistances", mutant{
		name: "skipped numbers are looked up with every event", file: "relay/internal/dedup/gaps.go",
		old: "g.step = min(2*g.step, maxGapStep)",
		new: "g.step = 0",
	}),
	unit("TestPublisher_AClaimKeepsOthersOut", mutant{
		name: "a claim does not exclude other callers", file: "relay/internal/publish/offer.go",
		old: "busy && !o.Owner {",
		new: "false && busy {",
	}),
	unit("TestBlocked_NumbersWithHoles", mutant{
		name: "repeated gaps are waited for as long as the first", file: "relay/internal/capture/sequencer.go",
		old: "s.gapWait>>s.sink.Missing(aggregate)",
		new: "s.gapWait",
	}),
	unit("TestBlocked_WaitsForTheDatabase", mutant{
		name: "events overtake waiting events of their aggregate", file: "relay/internal/capture/sequencer.go",
		old: "	if !s.blocked.has(e.AggregateID.UUID()) {",
		new: "	if s.blocked.has(e.AggregateID.UUID()) {\n		return s.sink.Submit(ctx, e, publish.BySweep, settled)\n	} else {",
	}),
	unit("TestLate_DecidedConditionalWrite", mutant{
		name: "an earlier event counts as published without a proof", file: "relay/internal/readback/proof.go",
		old: "return fates[result], nil",
		new: "return earlier.Published, nil",
	}),
	unit("TestProofs", mutant{
		name: "an event that was published late counts as not published", file: "relay/internal/readback/proof_wide.go",
		old: "if !found[a.eventKey()] {",
		new: "if true {",
	}),
	unit("TestProofs", mutant{
		name: "a record that is dated before its event shows since when a partition is retained", file: "relay/internal/readback/proof_wide.go",
		old: "at == math.MaxInt64 && !e.misdated {",
		new: "at == math.MaxInt64 {",
	}),
	unit("TestProofs", mutant{
		name: "records deleted by retention count as not published", file: "relay/internal/readback/proof_wide.go",
		old: "	case start.Offset == 0:",
		new: "	case true:",
	}),
	unit("TestProofs_UnknownTopic", mutant{
		name: "one answer of a broker proves that a topic does not exist", file: "relay/internal/readback/unknown.go",
		old: "a.over || now.Sub(a.since) >= agreeFor",
		new: "true",
	}),
	unit("TestProofs_WaitForTheBroker", mutant{
		name: "a partition that cannot be read proves that an event is not published", file: "relay/internal/readback/proof_near.go",
		old: "		case p.err != nil:\n				p.answer(proofAnswer{err: p.err})",
		new: "		case p.err != nil:\n				p.answer(proofAnswer{result: ProofUnpublished})",
	}),
	unit("TestReplay_DiscardedInProgress", mutant{
		name: "the index counts an event twice whose dead letter was settled during its replay", file: "relay/internal/publish/send.go",
		old: "	p.ids.forget(it.event.ID.UUID())\n",
		new: "",
	}),
	scenario("TestLate_EveryKind", mutant{
		name: "rows that are late across a restart count as published", file: "relay/internal/readback/proof.go",
		old: "return fates[result], nil",
		new: "return earlier.Published, nil",
	}),
}
