package main

// relayMutants break the relay and its shards.
var relayMutants = []mutant{
	{
		name: "a stream that is opened after the end of its reader is read", file: "relay/internal/capture/sweep.go", pkg: "./relay/internal/capture", run: "TestSweep_StreamOpenedAfterTheEnd",
		old: "	if ctx.Err() != nil {\n		return context.Cause(ctx)\n	}\n	s := c.sweep\n", new: "	s := c.sweep\n",
	},
	{
		name: "the epoch of an event is that of its creation", file: "relay/internal/publish/record.go", pkg: "./relay", run: "TestEpochs_OfEvents",
		old: "cmp.Or(it.written, it.event.CreatedAt.UnixMicro())", new: "cmp.Or(it.event.CreatedAt.UnixMicro(), it.written)",
	},
	{
		name: "numbers of an earlier epoch count in the current one", file: "relay/internal/readback/scan.go", pkg: "./relay", run: "TestEpochs_OfEvents",
		old: "if e.epoch < epoch {", new: "if e.epoch < epoch && false {",
	},
	{
		name: "a running relay does not notice an epoch", file: "relay/table_watch.go", pkg: "./relay", run: "TestEpochs_Begins",
		old: "err == nil && !slices.Equal(now, x.epochs) {", new: "err == nil && !slices.Equal(now, now) {",
	},
	{
		name: "the latency of a heartbeat is that since the start", file: "relay/heartbeat.go", pkg: "./relay", run: "TestHeartbeat_RatesAndBeforeTheStart",
		old: "	b.latency = commits\n", new: "",
	},
	sharing("TestMember_FencesItself", mutant{
		name: "an instance works on past its lease", file: "relay/share/lease.go",
		old: "return end == nil || past(time.Now(), *end)",
		new: "return end == nil",
	}),
	sharing("TestMember_ReplacesAnEndedProcessOfItsHost", mutant{
		name: "an instance removes members whose process lives", file: "relay/share/ended.go",
		old: " || !m.cfg.ended(p) {", new: " {",
	}),
	sharing("TestMember_ReplacesAnEndedProcessOfItsHost", mutant{
		name: "an instance removes members of other hosts", file: "relay/share/ended.go",
		old: " || p.host != m.cfg.process.host", new: "",
	}),
	sharing("TestMember_ReplacesAnEndedProcessOfItsHost", mutant{
		name: "a restarted instance waits for its predecessor's session", file: "relay/share/ended.go",
		old: "			if err := m.remove(ctx, member.MemberID); err != nil {", new: "			if err := error(nil); err != nil {",
	}),
	sharing("TestProcess_Ended", mutant{
		name: "a process id that is used again counts as the former process", file: "relay/share/ended.go",
		old: "	return err == nil && start != p.start", new: "	return false && err == nil && start != p.start",
	}),
	sharing("TestMember_CountsFromWhenItSent", mutant{
		name: "a lease begins with the broker's response", file: "relay/share/heartbeat.go",
		old: "m.lease.renew(sent, false)",
		new: "m.lease.renew(time.Now(), false)",
	}),
	sharing("TestLease", mutant{
		name: "heartbeats make a lease last past a rebalance", file: "relay/share/lease.go",
		old: "last.Before(end) {",
		new: "last.Before(sent) {",
	}),
	sharing("TestPast_BelievesTheFurtherClock", mutant{
		name: "a lease lasts while the machine sleeps", file: "relay/share/lease.go",
		old: "return monotonic <= 0 || wall <= 0",
		new: "return monotonic <= 0 && wall <= 0",
	}),
	sharing("TestMember_SharesWithWhoJoins", mutant{
		name: "a shard goes to another instance before it is drained", file: "relay/share/group.go",
		old: "h.cancel(ErrRevoked)\n	}\n	m.await(holds)",
		new: "h.cancel(ErrRevoked)\n	}",
	}),
	sharing("TestMember_LeavesWithoutTheSessionTimeout", mutant{
		name: "an instance that drains sends no heartbeats", file: "relay/share/member.go",
		old: "m.heartbeats(still)",
		new: "m.heartbeats(tail)",
	}),
	sharing("TestHold_StaysLost", mutant{
		name: "a shard that was lost is owned again when the broker answers", file: "relay/share/hold.go",
		old: "		h.lose(errFenced)\n		return *h.lost.Load()",
		new: "		return errFenced",
	}),
	scenario("TestShards_AreStoppedKilledAndDivided", mutant{
		name: "a late save of the previous owner moves its successor back", file: "relay/internal/checkpoint/steady.go",
		old: "		pos = known\n",
		new: "		_ = known\n",
	}),
	unit("TestFence_NoLateDeadLetter", mutant{
		name: "a dead letter is written behind the fence", file: "relay/relay.go",
		old: ", dlq.WithFence(cfg.Fence)",
		new: "",
	}),
	unit("TestFence_ALateDeadLetterPublishesNothingAgain", mutant{
		name: "an event is published although the previous owner may still write its dead letter", file: "relay/internal/publish/offer.go",
		old: "		it.cause = p.mu.deadLetters.interrupted(o.Event.ID.UUID())\n",
		new: "		it.cause = nil\n",
	}),
	unit("TestProofs$", mutant{
		name: "a proof asks for the retention of topics that it may not read", file: "relay/internal/readback/proof_wide.go",
		old: "		if t.Denied[topic] == nil {",
		new: "		if true {",
	}),
	unit("TestReadBacks_WhoeverDoesNotGoAlong", mutant{
		name: "a reader that ends also ends the read-back of the others in its group", file: "relay/internal/readback/group.go",
		old: "case ctx.Err() != nil: // it",
		new: "case false: // it",
	}),
	unit("TestPublisher_WritesNothingBehindTheFence", mutant{
		name: "records in the producer are written behind the fence", file: "relay/internal/fence/fence.go",
		old: "return &fencedConn{c, fence}, nil",
		new: "return c, nil",
	}),
	seeds(mutant{
		name: "a checkpoint is one event early", file: "relay/internal/checkpoint/stream.go",
		old: "	if n == 0 {\n		return\n	}\n	s.base",
		new: "	if n < len(s.pending) {\n		s.position = s.pending[n].time\n	}\n	if n == 0 {\n		return\n	}\n	s.base",
	}),
	seeds(mutant{
		name: "an event counts as acknowledged when it is offered", file: "relay/internal/capture/sequencer.go",
		old: "if err := s.pass(ctx, e, p.Since, func() { p.Settle(id) }); err != nil {",
		new: "if err := s.pass(ctx, e, p.Since, nil); err == nil { p.Settle(id) } else {",
	}),
	seeds(mutant{
		name: "a repeated row counts as acknowledged while its event is in progress", file: "relay/internal/publish/offer.go",
		old: "		it.settled = append(it.settled, o.Settled)\n	}\n	return false",
		new: "		return true\n	}\n	return false",
	}),
	seeds(mutant{
		name: "the sweep reader offers nothing", file: "relay/internal/capture/sweep.go",
		old: "c.sequencer.Take(ctx, c.progress, change.Time, events)",
		new: "c.sequencer.Take(ctx, c.progress, change.Time, events[:0])",
	}),
	seeds(mutant{
		name: "the sweep reader has no confidence window", file: "relay/internal/capture/sweep.go",
		old: "ConfidenceWindowSize:     s.cfg.ConfidenceWindow + ahead | 1,",
		new: "ConfidenceWindowSize:     1,",
	}),
	seeds(mutant{
		name: "events of the tail reader are not added to the dedup index", file: "relay/internal/publish/event_ids.go",
		old: "		s.mu.index.Add(it.event.ID.UUID(), it.written, in)",
		new: "		_ = it.shown",
	}),
	seeds(mutant{
		name: "ids that the sweep reader has read are evicted immediately", file: "relay/internal/dedup/index.go",
		old: "			x.AddShown(id, written, how)\n			return",
		new: "			_ = how\n			return",
	}),
	seeds(mutant{
		name: "events of the read-back are not added to the dedup index", file: "relay/internal/readback/readback.go",
		old: "r.publisher.Seed(&r.found, since, r.cfg.Clock.Now().Add(r.cfg.ReadBackMargin))",
		new: "r.publisher.Seed(&dedup.Found{}, since, time.Now())",
	}),
	seeds(mutant{
		name: "read-back begins too late", file: "relay/internal/readback/readback.go",
		old: "since = mark.Add(-margin)",
		new: "since = mark.Add(4*margin)",
	}),
	unit("TestReadback_RecordClockDiffers", mutant{
		name: "read-back does not cover a record clock that is behind", file: "relay/internal/readback/clock.go",
		old: "if behind := c.behind(); behind > given {",
		new: "if behind := c.behind(); false && behind > given {",
	}),
	unit("TestReadback_RecordsOfAnotherRelay", mutant{
		name: "read-back takes the records of another table for its own", file: "relay/internal/readback/scan.go",
		old: "e.Ours = source && table",
		new: "e.Ours = source && (table || true)",
	}),
	{
		name: "patterns: a slash in an event type ends what * matches", file: "internal/glob/glob.go", pkg: "./internal/glob", run: "TestMatch",
		old: "ReplaceAll(s, \"/\", \"\\x00\")", new: "ReplaceAll(s, \"/\", \"/\")",
	},
	{
		name: "publisher: all aggregates have one lock", file: "relay/internal/dedup/stripe.go", pkg: "./relay/internal/publish", run: "TestPublisher_StripesProceedByThemselves",
		old: "return int(h * 0x9e3779b97f4a7c15 >> 60)", new: "return int(h >> 63 >> 1)",
	},
	{
		name: "publisher: an event is taken although it has just been offered with another aggregate", file: "relay/internal/publish/event_ids.go", pkg: "./relay/internal/publish", run: "TestEventIDs_BeginAnEventOnce",
		old: "	if s.mu.items[id] != nil || s.mu.index.Has(id) {", new: "	if false {",
	},
	{
		name: "publisher: an acknowledged event leaves those in progress before it is in the index", file: "relay/internal/publish/event_ids.go", pkg: "./relay/internal/publish", run: "TestPublisher_",
		old: "	if published {\n		s.addLocked(it, true)", new: "	if false {\n		s.addLocked(it, true)",
	},
	seeds(mutant{
		name: "the sequencer ignores gaps", file: "relay/internal/publish/offer.go",
		old: "case e.Sequence == l.Next, e.Sequence > l.Next && o.Anyway:",
		new: "case e.Sequence >= l.Next:",
	}),
	seeds(mutant{
		name: "an unknown aggregate begins anywhere", file: "relay/internal/publish/offer.go",
		old: "case !known && (o.Anyway || e.Sequence == 1 && !",
		new: "case !known && (true || !",
	}),
	seeds(mutant{
		name: "the next event for another topic does not wait", file: "relay/internal/publish/send.go",
		old: "l.alone || it.topic != l.part.Topic ||",
		new: "l.alone ||",
	}),
	unit("TestPublisher_WritesEveryEventToARecreatedTopic", mutant{
		name: "a topic that lacks a partition is the one that the client knows", file: "relay/internal/producer/producer.go",
		old: " || strings.Contains(err.Error(), lacksPartition)",
		new: " || lacksPartition == \"\"",
	}),
	unit("TestPublisher_WritesEveryEventToARecreatedTopic", mutant{
		name: "without topic ids a topic with fewer partitions is the former one", file: "relay/internal/topics/catalog.go",
		old: "return f.made || f.Partitions < before.Partitions",
		new: "return f.made",
	}),
	unit("TestPublisher_SendsEachRecordToThePartitionOfItsKey", mutant{
		name: "the next event with another record key does not wait", file: "relay/internal/publish/send.go",
		old: " || !bytes.Equal(it.recordKey(), l.key)", new: "",
	}),
	unit("TestPublisher_NothingPassesARecordThatIsTooLarge", mutant{
		name: "events pass one that is too large", file: "relay/internal/publish/send.go",
		old: "l.alone = p.producer.MayBeTooLarge(&it.event, it.topic)", new: "l.alone = false",
	}),
	unit("TestDeadLetters_ATopicTakesLargerRecords", mutant{
		name: "a topic's limit is asked for once", file: "relay/internal/producer/client.go",
		old: " && found.Limit == r.found.Limit", new: "",
	}),
	seeds(mutant{
		name: "an event that is refused is dropped", file: "relay/internal/publish/suspects.go",
		old: "	case p.table.exists():\n		p.writer.writeForLocked(l, err)\n",
		new: "	case p.table.exists():\n		l.suspect, l.failed = false, nil\n		p.settleLocked(l, front, false)\n		p.pumpLocked(l)\n		l.home.rest(l)\n",
	}),
	scenario("TestGeneration_CrashAtTheEndOfOne", mutant{
		name: "a generation is entered before the previous one is drained", file: "relay/internal/checkpoint/streams.go",
		old: "if err := p.waitSettled(ctx); err != nil {",
		new: "if err := p.waitBelow(ctx, 1<<30); err != nil {",
	}),
	scenario("TestGeneration_CheckpointsCannotBeSaved", mutant{
		name: "a checkpoint that cannot be saved ends the reader", file: "relay/internal/checkpoint/manager.go",
		old: "if err == nil || ctx.Err() != nil || failure.Classify(err) == failure.Fatal {",
		new: "if true || failure.Classify(err) == failure.Fatal {",
	}),
	seeds(mutant{
		name: "acks of the leader alone, and no idempotence", file: "relay/internal/producer/client.go",
		old: "		kgo.RequiredAcks(kgo.AllISRAcks()),",
		new: "		kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite(),",
	}),
	scenario("TestGeneration_StoppedAtTheEndOfOne", mutant{
		name: "a stop does not reach a reader that has generations waiting", file: "relay/internal/capture/sweep.go",
		old: "		reader.Stop()\n",
		new: "		_ = reader\n",
	}),
	unit("TestTablets_ReaderFailsWhileGenerationsArePending", mutant{
		name: "a reader that fails while generations are pending is not stopped", file: "relay/internal/capture/reader_end.go",
		old: "if err != nil && ctx.Err() == nil {",
		new: "if false && err != nil && ctx.Err() == nil {",
	}),
	unit("TestRelay_ClockOfOneNode", mutant{
		name: "the node whose clock is ahead of the others' is believed", file: "internal/dbclock/dbclock.go",
		old: "i == 0 || a > ahead",
		new: "i == 0 || a < ahead",
	}),
	unit("TestSweep_WindowEndsTooLate", mutant{
		name: "a window that ends too late moves the position", file: "relay/internal/capture/sweep.go",
		old: "early > s.tolerated()",
		new: "false && early > s.tolerated()",
	}),
	unit("TestStreams_ClockBelievedAhead", mutant{
		name: "a position that was saved by a wrong clock stays", file: "relay/internal/checkpoint/steady.go",
		old: "if newest == nil {",
		new: "if true || newest == nil {",
	}),
	unit("TestPublisher_WhatIsUnderWayStaysWhenPartitionsAreAdded", mutant{
		name: "an aggregate changes its partition with events in progress", file: "relay/internal/producer/flight.go",
		old: "if p < 0 || int(p) >= n {",
		new: "if true {",
	}),
	unit("TestPartitioner_KeepsAFlightInOneBatch", mutant{
		name: "a record joins the batch of another aggregate while its aggregate has one", file: "relay/internal/producer/flight.go",
		old: "(begins || t.batches[p] != f.batch.Load())",
		new: "begins",
	}),
	unit("TestReadback_GatesAPartitionWithoutALeader", mutant{
		name: "a pause between attempts prolongs the patience of a start", file: "relay/internal/readback/readback.go",
		old: "most = min(most, Patience-now.Sub(patience))",
		new: "most = min(most, Patience)",
	}),
	unit("TestReadback_KnowsWhatWasUnderWay", mutant{
		name: "read-back does not wait for quiet", file: "relay/internal/readback/readback.go",
		old: "		if !quiet.IsZero() && !came {",
		new: "		if true || quiet.IsZero() || came {",
	}),
	unit("TestReadback_Mark", mutant{
		name: "a stream without a checkpoint is not read back from its beginning", file: "relay/internal/readback/mark.go",
		old: "			earlier(begin)\n",
		new: "			_ = begin\n",
	}),
	unit("TestRelay_CrashesRepeatNothing", mutant{
		name: "the topics of a template are not saved", file: "relay/internal/publish/topics_make.go",
		old: "			err = t.names.Remember(ctx, topic)",
		new: "			_ = t.names",
	}),
	unit("TestDeadLetters_CheckpointWaitsForTheDeadLetter", mutant{
		name: "a dead letter is settled before it is written", file: "relay/internal/publish/dead_letter.go",
		old: "	p.mu.deadLetters.writing++\n	p.mu.Unlock()\n",
		new: "	p.mu.deadLetters.writing++\n	p.settleLocked(l, it, true)\n	p.mu.Unlock()\n",
	}),
	unit("TestShards_CarryEachTheirOwn", mutant{
		name: "the sweep reader offers rows of other shards", file: "relay/internal/capture/sweep.go",
		old: "		if !s.in.Own.HasRow(row) {\n",
		new: "		if false {\n",
	}),
	unit("TestShards_CarryEachTheirOwn", mutant{
		name: "the tail reader offers rows of other shards", file: "relay/internal/cdclog/rows.go",
		old: "	if !c.r.again && !c.own.HasKey(data) {\n",
		new: "	if false {\n",
	}),
	unit("TestShards_CarryEachTheirOwn", mutant{
		name: "a shard reads all streams", file: "relay/internal/checkpoint/skipped.go",
		old: "	return s.kept != nil && s.kept.Index(stream) < 0\n",
		new: "	return false\n",
	}),
	unit("TestShards_CarryEachTheirOwn", mutant{
		name: "a shard does not read the streams at its edges", file: "relay/internal/cdclog/shard_generation.go",
		old: "			return own.Meets(a) || i == 0",
		new: "			return a.Has(own.After+1) && a.Has(own.UpTo) || i == 0",
	}),
	unit("TestShards_OneIsBehindWhenTheirNumberChanges", mutant{
		name: "a shard does not continue at the earliest position of the previous shards", file: "relay/internal/layouts/layouts.go",
		old: "pos == (gocql.UUID{}) || scyllacdc.CompareTimeUUID(at, pos) < 0 {",
		new: "pos == (gocql.UUID{}) || scyllacdc.CompareTimeUUID(at, pos) > 0 {",
	}),
	unit("TestShards_OneIsBehindWhenTheirNumberChanges", mutant{
		name: "a shard continues with the newest generation of the previous shards", file: "relay/internal/layouts/layouts.go",
		old: "len(before) == 0 || b.generation.Before(generation)",
		new: "len(before) == 0 || b.generation.After(generation)",
	}),
	unit("TestUnsharded_OneShardTakesOver", mutant{
		name: "one shard begins without the checkpoints of a relay without shards", file: "relay/internal/layouts/layouts.go",
		old: "return other == n }), 0)",
		new: "return other == n }), n)",
	}),
	unit("TestOutages", mutant{
		name: "no notification reports an instance that no broker acknowledges", file: "relay/outages.go",
		old: `case s != nil && s.Error != "":`,
		new: `case s != nil && s.Error == "?":`,
	}),
	unit("TestMembership_StartsUntilItHasJoined", mutant{
		name: "an instance that has not joined yet reports that it runs", file: "relay/membership.go",
		old: `state == "running" && !m.joined {`,
		new: "false {",
	}),
	sharing("TestMember_ReportsThatItMayNotCreateTheTopic", mutant{
		name: "a missing right to create the control topic is retried", file: "relay/share/errors.go",
		old: "case ok && (errors.Is(err, kerr.TopicAuthorizationFailed) ||",
		new: "case !ok && (errors.Is(err, kerr.TopicAuthorizationFailed) ||",
	}),
	unit("TestShards_ReadBackTheirOwn", mutant{
		name: "read-back keeps what other shards published", file: "relay/internal/readback/scan.go",
		old: "if ok = found == 3 && own; ok",
		new: "if ok = found == 3 && (own || true); ok",
	}),
	unit("TestShards_DeadLetters", mutant{
		name: "a shard loads the dead letters of other shards", file: "relay/internal/publish/start.go",
		old: "if e.Status.Open() && ownDeadLetter(p, own, e.EventID, e.AggregateID, e.WrittenAt) {\n",
		new: "if e.Status.Open() {\n",
	}),
	unit("TestShards_DeadLetters", mutant{
		name: "a shard answers requests about dead letters of other shards", file: "relay/internal/publish/replay_requests.go",
		old: "return r.Own.HasText(q.AggregateID) })",
		new: "return true || r.Own.HasText(q.AggregateID) })",
	}),
	unit("TestShards_ScansAndRepairs", mutant{
		name: "a shard answers the repair requests of other shards", file: "relay/internal/backfill/repair.go",
		old: " || !r.own.HasAggregate(q.Aggregate) })",
		new: " })",
	}),
	unit("TestShards_ContinueAScan", mutant{
		name: "a scan is not taken over by shards of another number", file: "relay/internal/layouts/layouts.go",
		old: "	if err := followScans(ctx, own, before, time.Now()); err != nil {\n",
		new: "	if err := error(nil); err != nil {\n",
	}),
	unit("TestDeadLetters_ReadBackGoesToTheClaim", mutant{
		name: "dead letters are not read at the start", file: "relay/internal/publish/start.go",
		old: "			if e.Status.Open() && ",
		new: "			if false && ",
	}),
	unit("TestDeadLetters_ReadBackGoesToTheClaim", mutant{
		name: "read-back does not go back to the claim of a dead letter", file: "relay/run.go",
		old: "			x.back.AlsoSince = checkpoint.Earliest(since, x.dead.Since)\n",
		new: "			_ = checkpoint.Earliest(since, x.dead.Since)\n",
	}),
	unit("TestDeadLetters_BlockBehindARefusedEvent", mutant{
		name: "later events pass a dead letter of their aggregate", file: "relay/internal/publish/send.go",
		old: "(it.cause != nil || p.behindLocked(l, it))",
		new: "it.cause != nil",
	}),
	unit("TestDeadLetters_SpillAndComeBack", mutant{
		name: "a dead letter is replayed without a claim", file: "relay/internal/publish/replay_batch.go",
		old: "	claims := p.table.store.ClaimMany(p.ctx, ids, b.r.owner, p.cfg.ClaimFor)\n",
		new: "	claims := make([]dlq.Claimed, len(ids))\n	for i, id := range ids {\n		claims[i].DeadLetter, claims[i].Err = p.table.store.Read(p.ctx, id)\n	}\n",
	}),
	unit("TestDeadLetters_SpillAndComeBack", mutant{
		name: "a dead letter that was replayed stays open", file: "relay/internal/publish/replay_batch.go",
		old: "	errs := r.p.table.store.ResolveMany(r.p.ctx, many, r.owner)\n",
		new: "	errs := make([]error, len(many))\n",
	}),
	unit("TestDeadLetters_ARowThatGetsItsID", mutant{
		name: "a row that got an id is published for its first dead letter whatever became of it under the id", file: "relay/internal/publish/replay_batch.go",
		old: "			case fate.Settled():\n",
		new: "			case false:\n",
	}),
	unit("TestDeadLetters_BlockBehindARefusedEvent", mutant{
		name: "a chain is replayed when its last dead letter is due", file: "relay/internal/chains/chains.go",
		old: "return &c.DeadLetters[0]",
		new: "return &c.DeadLetters[len(c.DeadLetters)-1]",
	}),
	unit("TestDeadLetters_SpillAndComeBack", mutant{
		name: "the last dead letter of a chain is replayed first", file: "relay/internal/publish/replay.go",
		old: "		w.refs = append(w.refs, ref)\n",
		new: "		w.refs = append([]chains.Ref{ref}, w.refs...)\n",
	}),
	unit("TestDeadLetters_SpillAndComeBack", mutant{
		name: "a replay that an open breaker stopped counts as failed", file: "relay/internal/publish/replay_batch.go",
		old: "		case errors.Is(end.err, errBreakerOpen):\n",
		new: "		case false:\n",
	}),
	unit("TestDeadLetters_CanariesStopAtTheSameError", mutant{
		name: "a canary ignores the error", file: "relay/internal/publish/replay_end.go",
		old: "		if g.Failure != key {\n",
		new: "		if true {\n",
	}),
	unit("TestDeadLetters_CanariesStopAtTheSameError", mutant{
		name: "there are no canaries", file: "relay/internal/chains/group.go",
		old: "	case g.DeadLetters <= above || g.stage == len(canaryStages):\n",
		new: "	case true:\n",
	}),
	unit("TestDeadLetters_ConditionsAndTheSameError", mutant{
		name: "a condition that does not hold is no reason to wait", file: "relay/internal/publish/replay_gates.go",
		old: "if why := r.health.first(names); why != \"\" {",
		new: "if why := r.health.first(names); false {",
	}),
	unit("TestDeadLetters_AStopWaitsForReplays", mutant{
		name: "a stop does not wait for replays", file: "relay/internal/publish/publisher.go",
		old: "(left == blocked || p.shut()) && !p.replays() ||",
		new: "left == blocked || p.shut() ||",
	}),
	unit("TestDeadLetters_AnOperatorsActionOutlivesTheClaim", mutant{
		name: "an operator's change is lost with a claim", file: "relay/internal/publish/replay_end.go",
		old: "			r.adopt(id)\n			return false\n",
		new: "			r.later(id, chains.AtOperator)\n			return false\n",
	}),
	unit("TestDeadLetters_SpillAndComeBack", mutant{
		name: "attempts are used up while the breaker is open", file: "relay/internal/publish/send.go",
		old: "		case stays:\n",
		new: "		case stays:\n			it.attempts++\n",
	}),
	unit("TestDeadLetters_HoldAfterTheLimit", mutant{
		name: "the spill limit is ignored", file: "relay/internal/publish/dead_letter.go",
		old: "|| p.mu.deadLetters.Spilled()+p.mu.deadLetters.writing >= p.cfg.SpillLimit {",
		new: "{",
	}),
	unit("TestPublisher_SurvivesFaults", mutant{
		name: "records that may be in transit are given up", file: "relay/internal/producer/flight.go",
		old: "return f.client.written.Load() >= f.first.Load()",
		new: "return false",
	}),
	unit("TestBreaker_Transitions", mutant{
		name: "a half-open breaker lets everything through", file: "internal/circuit/circuit.go",
		old: "uint32(cfg.Probes),",
		new: "1 << 30,",
	}),
	unit("TestDeadLetters_DiscardedOfATableWithoutNumbers", mutant{
		name: "a discarded event is not added to the dedup index", file: "relay/internal/publish/replay_adopt.go",
		old: "	r.p.ids.addUnsent(id, written)\n",
		new: "",
	}),
	unit("TestDeadLetters_ARestoredOneIsReplayed", mutant{
		name: "a restored dead letter is not added to the relay", file: "relay/internal/publish/replay_adopt.go",
		old: "		r.takeInLocked(e)\n		d.Loosen(",
		new: "		d.Loosen(",
	}),
	{
		name: "a message's topic follows the relay's template", file: "relay/internal/topics/names.go", pkg: "./relay/internal/topics", run: "TestNames_Of",
		old: "	if e.AggregateType == outbox.MessageAggregate {", new: "	if e.AggregateType == outbox.MessageAggregate+\"s\" {",
	},
	{
		name: "a dead letter has no span", file: "relay/internal/publish/dead_letter.go", pkg: "./relay", run: "TestTraces_OfDeadLetters",
		old: "	p.spans.Failed(&it.event, it.topic, deadLetter.ErrorClass, deadLetter.ErrorText, it.attempts, it.capture())\n", new: "",
	},
	{
		name: "the span of a publication lacks its reader", file: "relay/internal/publish/record.go", pkg: "./relay/internal/publish", run: "TestRecord_SpanContainsTheCapture",
		old: "		c.By = FoundBy[it.by]\n", new: "",
	},
	{
		name: "each aggregate with a dead letter counts as blocked", file: "relay/metrics.go", pkg: "./relay", run: "TestMetrics_BlockedAggregates",
		old: "r.publisher.Load().State().Blocked", new: "r.publisher.Load().State().DeadLetters",
	},
	{
		name: "the span of an event for a stream does not name it", file: "internal/stream/subscription.go", pkg: "./internal/stream", run: "TestTraces_OfBothTransports",
		old: "x.ID = x.Headers[outbox.HeaderID]", new: "x.ID = x.Headers[outbox.HeaderSubject]",
	},
	{
		name: "a mapped header of the event's id is not published", file: "relay/internal/publish/record.go", pkg: "./relay", run: "TestRelay_RecordHeaders",
		old: "	for _, key := range cfg.IDHeaders {", new: "	for _, key := range cfg.IDHeaders[:0] {",
	},
	{
		name: "a record header keeps the value of an earlier row", file: "outbox/scanner.go", pkg: "./outbox", run: "TestMapping_RecordHeaders",
		old: "s.texts[i].ok = false", new: "_ = i",
	},
	unit("TestDeadLetters_AnEditedEventTakesTheOriginalsPlace", mutant{
		name: "an edited event does not name its original", file: "relay/internal/publish/replay_end.go",
		old: "		it.original = storedID(deadLetter)\n", new: "",
	}),
	unit("TestDeadLetters_AnEditedEventTakesTheOriginalsPlace", mutant{
		name: "read-back takes an edited event for another", file: "relay/internal/readback/scan.go",
		old: "	if len(original) > 0 {", new: "	if len(original) > 1000 {",
	}),
	unit("TestBackfill_TailLeavesToTheScanWhatIsItsOwn", mutant{
		name: "the tail reader offers rows of a scan while a stream is not opened", file: "relay/internal/checkpoint/streams.go",
		old: "	return s.resumesAt(stream), true",
		new: "	return s.resumesAt(stream), false",
	}),
	unit("TestPartitioner_KeepsAFlightInOneBatch", mutant{
		name: "an aggregate's records are in flight in two batches", file: "relay/internal/producer/flight.go",
		old: "			f.rejecting.Store(true)\n", new: "",
	}),
	unit("TestPublisher_WritesEveryEventToARecreatedTopic", mutant{
		name: "a client sends to a topic again after it was replaced there", file: "relay/internal/producer/client.go",
		old: "if _, had := c.topics[topic]; had || c.failed.Load() {",
		new: "if c.Client.PurgeTopicsFromProducing(topic); c.failed.Load() {",
	}),
	unit("TestQuiet_MovesOnlyStreamsWithoutRows", mutant{
		name: "a quiet stream moves although rows may have expired behind it", file: "relay/internal/capture/quiet.go",
		old: "		if facts.Outruns(",
		new: "		if false && facts.Outruns(",
	}),
	unit("TestQuiet_MovesOnlyStreamsWithoutRows", mutant{
		name: "a quiet stream moves past rows that may become visible late", file: "relay/internal/capture/quiet.go",
		old: "		upTo := now.Add(-q.window)",
		new: "		upTo := now",
	}),
	unit("TestQuiet_StopsAtTheEndOfTheGeneration", mutant{
		name: "a quiet stream moves past the end of its generation", file: "relay/internal/capture/quiet.go",
		old: "			if start.After(p.Generation())",
		new: "			if false && start.After(p.Generation())",
	}),
	{
		name: "a lease outlasts an unnoticed rebalance", file: "relay/share/lease.go", pkg: "./relay/share", run: "TestLease",
		old: "sent.Add(min(l.session, l.rebalance))", new: "sent.Add(l.session)",
	},
}
