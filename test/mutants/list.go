package main

// mutant is a one-line break of the code that the tests must notice.
type mutant struct {
	name string
	file string
	// old is what stands in file, once; new is what takes its place.
	old, new string
	// pkg and run are the test that must go red, in an environment.
	pkg, run string
	env      []string
}

const simulation = "./test/sim"

// seeds lets the first so many seeds of the simulation run, until one is red.
func seeds(m mutant) mutant {
	m.pkg, m.run, m.env = simulation, "^TestSeeds$", []string{"SIM_FIRST=1", "SIM_SEEDS=60"}
	return m
}

// scenario lets one test of the simulation run.
func scenario(run string, m mutant) mutant {
	m.pkg, m.run = simulation, "^"+run+"$"
	return m
}

// unit lets one test of the relay run.
func unit(run string, m mutant) mutant {
	m.pkg, m.run = "./relay", "^"+run+"$"
	return m
}

// sharing lets one test of package relay/share run.
func sharing(run string, m mutant) mutant {
	m.pkg, m.run = "./relay/share", "^"+run+"$"
	return m
}

// mutants are all breaks. They are small, and each breaks a promise.
var mutants = []mutant{
	sharing("TestMember_FencesItself", mutant{
		name: "an instance works on past its lease", file: "relay/share/lease.go",
		old: "return end == nil || past(time.Now(), *end)",
		new: "return end == nil",
	}),
	sharing("TestMember_CountsFromWhenItSent", mutant{
		name: "a lease counts from when the broker's answer came", file: "relay/share/heartbeat.go",
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
	unit("TestPublisher_WritesNothingBehindTheFence", mutant{
		name: "what the producer has is written behind the fence", file: "relay/fence.go",
		old: "return &fencedConn{c, fence}, nil",
		new: "return c, nil",
	}),
	seeds(mutant{
		name: "a checkpoint is one event early", file: "relay/progress.go",
		old: "	if n == 0 {\n		return\n	}\n	s.base",
		new: "	if n < len(s.pending) {\n		s.position = s.pending[n].time\n	}\n	if n == 0 {\n		return\n	}\n	s.base",
	}),
	seeds(mutant{
		name: "an event counts as acknowledged when it is handed on", file: "relay/sequencer.go",
		old: "if err := s.admit(ctx, e, since, func() { p.settle(id) }); err != nil {",
		new: "if err := s.admit(ctx, e, since, nil); err == nil { p.settle(id) } else {",
	}),
	seeds(mutant{
		name: "a repeated row counts as acknowledged while its event is under way", file: "relay/offer.go",
		old: "		it.settled = append(it.settled, o.settled)\n	}\n	return false",
		new: "		return true\n	}\n	return false",
	}),
	seeds(mutant{
		name: "the sweep hands nothing on", file: "relay/sweep.go",
		old: "return s.sequencer.take(ctx, c.progress, change.Time, events)",
		new: "return s.sequencer.take(ctx, c.progress, change.Time, events[:0])",
	}),
	seeds(mutant{
		name: "the sweep has no confidence window", file: "relay/sweep.go",
		old: "ConfidenceWindowSize:     s.cfg.ConfidenceWindow,",
		new: "ConfidenceWindowSize:     1,",
	}),
	seeds(mutant{
		name: "the tail does not remember what it handed on", file: "relay/bury.go",
		old: "		p.memory.addFresh(it.event.ID, it.written)",
		new: "		_ = it.shown",
	}),
	seeds(mutant{
		name: "what the sweep has shown is forgotten at once", file: "relay/memory.go",
		old: "			m.shownAs(id, written, how)\n			return",
		new: "			_ = how\n			return",
	}),
	seeds(mutant{
		name: "what was read back is forgotten", file: "relay/readback.go",
		old: "r.publisher.seed(&r.found, time.Now().Add(r.cfg.ReadBackMargin))",
		new: "r.publisher.seed(&backEvents{}, time.Now())",
	}),
	seeds(mutant{
		name: "read-back begins too late", file: "relay/readback.go",
		old: "mark.Add(-r.cfg.ReadBackMargin)); err != nil {\n		return err\n	}\n	r.report(",
		new: "mark.Add(4*r.cfg.ReadBackMargin)); err != nil {\n		return err\n	}\n	r.report(",
	}),
	seeds(mutant{
		name: "the sequencer ignores gaps", file: "relay/offer.go",
		old: "case e.Sequence == l.next, e.Sequence > l.next && o.anyway:",
		new: "case e.Sequence >= l.next:",
	}),
	seeds(mutant{
		name: "an unknown aggregate begins anywhere", file: "relay/offer.go",
		old: "case !known && (e.Sequence == 1 || o.anyway):",
		new: "case !known:",
	}),
	seeds(mutant{
		name: "the next event for another topic does not wait", file: "relay/publisher.go",
		old: "case l.outstanding > 0 && (l.suspect || l.alone || it.topic != l.topic || p.mayBeTooLarge(it)):",
		new: "case l.outstanding > 0 && (l.suspect || l.alone || p.mayBeTooLarge(it)):",
	}),
	unit("TestPublisher_NothingPassesARecordThatIsTooLarge", mutant{
		name: "events pass one that is too large", file: "relay/publisher.go",
		old: "l.alone = p.mayBeTooLarge(it)", new: "l.alone = false",
	}),
	unit("TestDeadLetters_ATopicTakesLargerRecords", mutant{
		name: "a topic's limit is asked for once", file: "relay/larger.go",
		old: "if limit <= before {", new: "if limit > 0 {",
	}),
	seeds(mutant{
		name: "an event that is refused is dropped", file: "relay/suspects.go",
		old: "	case p.letters.on():\n		p.bury(l, err)\n",
		new: "	case p.letters.on():\n		l.suspect, l.failed = false, nil\n		p.settle(l, front, false)\n		p.pump(l)\n		p.rest(l)\n",
	}),
	scenario("TestGeneration_CrashAtTheEndOfOne", mutant{
		name: "a generation is entered before the one before is drained", file: "relay/streams.go",
		old: "if err := p.waitSettled(ctx); err != nil {",
		new: "if err := p.waitBelow(ctx, 1<<30); err != nil {",
	}),
	scenario("TestGeneration_CheckpointsCannotBeSaved", mutant{
		name: "a checkpoint that cannot be saved ends the reader", file: "relay/checkpoint.go",
		old: "if err == nil || ctx.Err() != nil || Classify(err) == Fatal {",
		new: "if true {",
	}),
	seeds(mutant{
		name: "acks of the leader alone, and no idempotence", file: "relay/publisher.go",
		old: "		kgo.RequiredAcks(kgo.AllISRAcks()),",
		new: "		kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite(),",
	}),
	seeds(mutant{
		name: "an order that is retried keeps its old time", file: "orders/create.go",
		old: "	if began {\n		eventTime",
		new: "	if !began {\n		eventTime",
	}),
	{
		name: "an Idempotency-Key does not decide the ids", file: "orders/create.go", pkg: "./orders", run: ".",
		old: "		if id, err = s.claim(ctx, opts.IdempotencyKey, opCreate, n, id); err != nil {",
		new: "		if _, err = s.claim(ctx, opts.IdempotencyKey, opCreate, n, id); err != nil {",
	},
	scenario("TestGeneration_StoppedAtTheEndOfOne", mutant{
		name: "a stop does not reach a reader that has generations waiting", file: "relay/sweep.go",
		old: "		reader.Stop()\n",
		new: "		_ = reader\n",
	}),
	unit("TestPublisher_WhatIsUnderWayStaysWhenPartitionsAreAdded", mutant{
		name: "an aggregate changes its partition with events under way", file: "relay/lane.go",
		old: "if p := l.partition.Load(); p >= 0 && int(p) < n {",
		new: "if p := l.partition.Load(); p >= 0 && n < 0 {",
	}),
	unit("TestReadback_KnowsWhatWasUnderWay", mutant{
		name: "read-back does not wait for quiet", file: "relay/readback.go",
		old: "		if !quiet.IsZero() && !came {",
		new: "		if true || quiet.IsZero() || came {",
	}),
	unit("TestReadback_.*", mutant{
		name: "a stream without a checkpoint is not read back from its beginning", file: "relay/readback_mark.go",
		old: "			earlier(begin)\n",
		new: "			_ = begin\n",
	}),
	unit("TestReadback_.*", mutant{
		name: "the topics of a template are not remembered", file: "relay/topics_make.go",
		old: "			err = p.remember(ctx, topic)",
		new: "			_ = p.remember",
	}),
	unit("TestDeadLetters_TheCheckpointWaitsForTheLetter", mutant{
		name: "a dead letter is settled before it is written", file: "relay/bury.go",
		old: "	p.letters.writing++\n	p.mu.Unlock()\n",
		new: "	p.letters.writing++\n	p.settle(l, it, true)\n	p.mu.Unlock()\n",
	}),
	unit("TestShards_CarryEachTheirOwn", mutant{
		name: "the sweep hands on rows of other shards", file: "relay/sweep.go",
		old: "		if !s.own.row(row) {\n",
		new: "		if false {\n",
	}),
	unit("TestShards_CarryEachTheirOwn", mutant{
		name: "the tail hands on rows of other shards", file: "relay/tail_row.go",
		old: "	if !c.r.again && !c.own.key(data) {\n",
		new: "	if false {\n",
	}),
	unit("TestShards_CarryEachTheirOwn", mutant{
		name: "a shard reads all streams", file: "relay/shard_streams.go",
		old: "	return s.kept != nil && s.kept.index(stream) < 0\n",
		new: "	return false\n",
	}),
	unit("TestShards_CarryEachTheirOwn", mutant{
		name: "a shard does not read the streams at its edges", file: "relay/shard_streams.go",
		old: "			return own.meets(a) || i == 0",
		new: "			return a.has(own.after+1) && a.has(own.upTo) || i == 0",
	}),
	unit("TestShards_OneIsBehindWhenTheirNumberChanges", mutant{
		name: "a shard goes on where the first of those before it was", file: "relay/shard_layouts.go",
		old: "pos == (gocql.UUID{}) || scyllacdc.CompareTimeUUID(at, pos) < 0 {",
		new: "pos == (gocql.UUID{}) || scyllacdc.CompareTimeUUID(at, pos) > 0 {",
	}),
	unit("TestShards_OneIsBehindWhenTheirNumberChanges", mutant{
		name: "a shard goes on with the newest generation of those before it", file: "relay/shard_layouts.go",
		old: "len(before) == 0 || b.generation.Before(generation)",
		new: "len(before) == 0 || b.generation.After(generation)",
	}),
	unit("TestShards_ReadBackTheirOwn", mutant{
		name: "read-back keeps what other shards published", file: "relay/readback_scan.go",
		old: "	return e, found == 3 && own, nil\n",
		new: "	_ = own\n	return e, found == 3, nil\n",
	}),
	unit("TestShards_DeadLetters", mutant{
		name: "a shard takes on the dead letters of others", file: "relay/letters_load.go",
		old: "if e.Status.Open() && r.ownLetter(p, e.EventID, e.AggregateID, e.WrittenAt) {\n",
		new: "if e.Status.Open() {\n",
	}),
	unit("TestShards_DeadLetters", mutant{
		name: "a shard answers what is asked of others", file: "relay/replay_requests.go",
		old: "r.p.letters.table, r.own.text)",
		new: "r.p.letters.table, nil)",
	}),
	unit("TestShards_ScansAndRepairs", mutant{
		name: "a shard answers the repairs of others", file: "relay/repair.go",
		old: " || !r.own.plain(q.Aggregate) })",
		new: " })",
	}),
	unit("TestShards_GoOnWithAScan", mutant{
		name: "a scan is not taken over by shards of another number", file: "relay/shard_layouts.go",
		old: "	if err := followScans(ctx, own, before, time.Now()); err != nil {\n",
		new: "	if err := error(nil); err != nil {\n",
	}),
	unit("TestDeadLetters_ReadBackGoesToTheClaim", mutant{
		name: "dead letters are not read at the start", file: "relay/letters_load.go",
		old: "			if e.Status.Open() && ",
		new: "			if false && ",
	}),
	unit("TestDeadLetters_ReadBackGoesToTheClaim", mutant{
		name: "read-back does not go back to the claim of a dead letter", file: "relay/relay.go",
		old: "			back.alsoSince = earliest(since, dead.since)\n",
		new: "",
	}),
	unit("TestDeadLetters_ParkBehindARefusedEvent", mutant{
		name: "later events pass a dead letter of their aggregate", file: "relay/publisher.go",
		old: "(it.death != nil || p.letters.blocks(l.id) && !p.cfg.relaxed(it.event.Type))",
		new: "it.death != nil",
	}),
	unit("TestDeadLetters_SpillAndComeBack", mutant{
		name: "a dead letter is replayed without a claim", file: "relay/replay_batch.go",
		old: "	claims := p.letters.store.ClaimMany(p.ctx, ids, b.r.owner, p.cfg.ClaimFor)\n",
		new: "	claims := make([]dlq.Claimed, len(ids))\n	for i, id := range ids {\n		claims[i].Letter, claims[i].Err = p.letters.store.Read(p.ctx, id)\n	}\n",
	}),
	unit("TestDeadLetters_SpillAndComeBack", mutant{
		name: "a dead letter that was replayed stays open", file: "relay/replay_batch.go",
		old: "	errs := r.p.letters.store.ResolveMany(r.p.ctx, many, r.owner)\n",
		new: "	errs := make([]error, len(many))\n",
	}),
	unit("TestDeadLetters_ParkBehindARefusedEvent", mutant{
		name: "a chain is replayed when its last letter is due", file: "relay/letters.go",
		old: "return &c.letters[0]",
		new: "return &c.letters[len(c.letters)-1]",
	}),
	unit("TestDeadLetters_SpillAndComeBack", mutant{
		name: "the last dead letter of a chain is replayed first", file: "relay/replay.go",
		old: "		w.refs = append(w.refs, ref)\n",
		new: "		w.refs = append([]letterRef{ref}, w.refs...)\n",
	}),
	unit("TestDeadLetters_SpillAndComeBack", mutant{
		name: "a replay that an open breaker stopped counts as failed", file: "relay/replay_batch.go",
		old: "		case errors.Is(end.err, errBreakerOpen):\n",
		new: "		case false:\n",
	}),
	unit("TestDeadLetters_CanariesStopAtTheSameError", mutant{
		name: "a canary ignores the error", file: "relay/replay.go",
		old: "		if g.failure != key {\n",
		new: "		if true {\n",
	}),
	unit("TestDeadLetters_CanariesStopAtTheSameError", mutant{
		name: "there are no canaries", file: "relay/canary.go",
		old: "	case g.letters <= above || g.stage == len(canaryStages):\n",
		new: "	case true:\n",
	}),
	unit("TestDeadLetters_ConditionsAndTheSameError", mutant{
		name: "a condition that does not hold is no reason to wait", file: "relay/replay.go",
		old: "if why := r.health.first(names); why != \"\" {",
		new: "if why := r.health.first(names); false {",
	}),
	unit("TestDeadLetters_ConditionsAndTheSameError", mutant{
		name: "the same error is tried again and again", file: "dlq/claim.go",
		old: "	case f.SameError > 0 && repeats >= f.SameError:\n",
		new: "	case false:\n",
	}),
	unit("TestDeadLetters_WaitForTheWindow", mutant{
		name: "a window never closes", file: "dlq/schedule.go",
		old: "return !began.IsZero() && !began.After(now)",
		new: "return !began.IsZero()",
	}),
	unit("TestDeadLetters_AStopWaitsForReplays", mutant{
		name: "a stop does not wait for replays", file: "relay/publisher.go",
		old: "(left == blocked || p.shut()) && !p.replays() ||",
		new: "left == blocked || p.shut() ||",
	}),
	unit("TestDeadLetters_AnOperatorsWordOutlivesTheClaim", mutant{
		name: "an operator's word is lost with a claim", file: "relay/replay.go",
		old: "			r.adopt(id)\n			return false\n",
		new: "			r.later(id, atOperator)\n			return false\n",
	}),
	unit("TestDeadLetters_SpillAndComeBack", mutant{
		name: "attempts are used up while the breaker is open", file: "relay/publisher.go",
		old: "		case p.stays(l, it):\n",
		new: "		case p.stays(l, it):\n			it.attempts++\n",
	}),
	unit("TestDeadLetters_HoldAfterTheLimit", mutant{
		name: "the spill limit is ignored", file: "relay/bury.go",
		old: "|| p.letters.spilled+p.letters.writing >= p.cfg.SpillLimit {",
		new: "{",
	}),
	unit("TestPublisher_SurvivesFaults", mutant{
		name: "what may be on the wire is given up", file: "relay/lane.go",
		old: "return c.p.wired.Load() >= c.handed.Load()",
		new: "return false",
	}),
	unit("TestBreaker_Transitions", mutant{
		name: "a half-open breaker lets everything through", file: "relay/breaker.go",
		old: "uint32(cfg.BreakerProbes),",
		new: "1 << 30,",
	}),
	unit("TestDeadLetters_DiscardedStaysUnpublished", mutant{
		name: "what an operator ended is forgotten", file: "relay/replay.go",
		old: "		p.memory.addUnsent(id, written)\n",
		new: "",
	}),
	unit("TestDeadLetters_ARestoredOneIsReplayed", mutant{
		name: "the event of a restored letter still counts as out", file: "relay/replay.go",
		old: "	r.p.memory.forgetUnsent(e.EventID)\n",
		new: "",
	}),
	{
		name: "a cancellation does not ask whether the message is out", file: "schedule/store.go", pkg: "./schedule", run: "Cancellations",
		old: "payload = null, headers = null, content_type = null WHERE id = ? IF state = 'scheduled'\"",
		new: "payload = null, headers = null, content_type = null WHERE id = ? IF state != 'nothing'\"",
	},
	{
		name: "a release does not ask whether the message was cancelled", file: "schedule/store.go", pkg: "./schedule", run: "Cancellations",
		old: "release_at = ? WHERE id = ? IF state = 'scheduled' AND", new: "release_at = ? WHERE id = ? IF state != 'nothing' AND",
	},
	{
		name: "a release ahead of time does not ask whether the message was cancelled", file: "schedule/store.go", pkg: "./schedule", run: "Hasten",
		old: "changed_at = ? WHERE id = ? IF state = 'scheduled' AND deliver_at = ?\"", new: "changed_at = ? WHERE id = ? IF deliver_at = ?\"",
	},
	{
		name: "a message released ahead of time has no slot before its old one", file: "schedule/hasten.go", pkg: "./test/sim/later", run: "DiesWhileItReleases",
		old: "if err := s.putSlot(ctx, early); err != nil {", new: "if err := ctx.Err(); err != nil {",
	},
	{
		name: "writing a scheduled message again covers what was decided", file: "schedule/store.go", pkg: "./schedule", run: "RevivesNothing",
		old: "b.Query(putRow, m.CreatedAt.Add(-writtenBefore).UnixMicro()", new: "b.Query(putRow, now.Add(writtenBefore).UnixMicro()",
	},
	{
		name: "a release taken up again has a write time of its own", file: "schedule/release.go", pkg: "./schedule", run: "Cancellations|CutOff",
		old: "		at, dueAt := s.cfg.Now(), m.DeliverAt\n		won, err := s.store.release(ctx, &m, at)", new: "		at, dueAt := s.cfg.Now(), m.DeliverAt\n		defer func() { m.releaseAt++ }()\n		won, err := true, error(nil)",
	},
	{
		name: "a change does not look whether the order is as its caller saw it", file: "orders/change.go", pkg: "./orders", run: "StaleVersion",
		old: "!slices.Contains(opts.IfVersion, head.Version) {", new: "!slices.Contains(opts.IfVersion, head.Version) && head.Version < 0 {",
	},
	{
		name: "a change that lost the race counts as made", file: "orders/change.go", pkg: "./orders", run: ".",
		old: "			if applied {\n				s.committed", new: "			if applied || err == nil {\n				s.committed",
	},
	{
		name: "a batch with a message that may still be taken is not sent again", file: "client/messages.go", pkg: "./client", run: "RepeatsABatch",
		old: "if p := r.Results[i].Problem; p != nil && again(p) {", new: "if p := r.Results[i].Problem; p != nil && again(p) && p.Status == 0 {",
	},
	{
		name: "the client does not wait as long as it is asked to", file: "client/client.go", pkg: "./client", run: "RepeatsWithTheSameKey|TakingBack",
		old: "wait = max(wait, p.RetryAfter)", new: "wait = max(wait, p.RetryAfter/10)",
	},
	{
		name: "each attempt of the client has a key of its own", file: "client/client.go", pkg: "./client", run: "RepeatsWithTheSameKey",
		old: "	req.Header = r.header.Clone()\n", new: "	req.Header = r.header.Clone()\n	req.Header.Set(\"Idempotency-Key\", rand.Text())\n",
	},
	{
		name: "a problem of a WebSocket is a plain text", file: "watch/refusal.go", pkg: "./watch", run: "RefusalsAreProblems",
		old: "if status >= http.StatusBadRequest {", new: "if status >= 600 {",
	},
	{
		name: "an empty parameter is one that was left out", file: "internal/params/params.go", pkg: "./internal/params", run: "RefuseEmpty",
		old: "if len(bad) == 0 {", new: "if true {",
	},
	{
		name: "a release taken up late keeps its write time", file: "schedule/release.go", pkg: "./test/sim/later", run: "Scheduler_DiesAtEachMessage",
		old: "const stale = 30 * time.Second", new: "const stale = 30 * time.Hour",
	},
	{
		name: "what was due while nobody was there is left", file: "schedule/scheduler.go", pkg: "./test/sim/later", run: "Scheduler_DiesAtEachMessage",
		old: "w.from = began.Add(-MaxAhead - 30*24*time.Hour)", new: "w.from = began.Add(-time.Minute)",
	},
	{
		name: "a slot is dropped before its message is in the outbox", file: "schedule/release.go", pkg: "./test/sim/later", run: "Scheduler_DiesAtEachMessage",
		old: "	if handed, err := s.hand(ctx, &m); err != nil || !handed {", new: "	if err := s.store.dropSlot(ctx, x); err != nil {\n		return err\n	}\n	if handed, err := s.hand(ctx, &m); err != nil || !handed {",
	},
	{
		name: "a message that another takes up is forgotten", file: "schedule/release.go", pkg: "./schedule", run: "AgainWhileItIsTakenUp",
		old: "			return false, err\n		}\n		m.releaseAt", new: "			return err == nil, err\n		}\n		m.releaseAt",
	},
	{
		name: "a certificate is read once", file: "internal/access/certificate.go", pkg: "./internal/access", run: "RenewedCertificate",
		old: "if err != nil || seen == c.seen {", new: "if err != nil || seen != c.seen || seen == c.seen {",
	},
	{
		name: "a caller who hung up is a defect", file: "orders/http.go", pkg: "./orders", run: "HungUp",
		old: "	if httpapi.HungUp(ctx, err) {", new: "	if httpapi.HungUp(ctx, nil) {",
	},
	{
		name: "react: a delivery is settled although it is not written", file: "react/runner.go", pkg: "./test/sim/reacting", run: "^TestSeeds$", env: []string{"REACTING_SEEDS=12"},
		old: "if done && j.place != nil {\n\t\tr.settle", new: "if j.place != nil {\n\t\tr.settle",
	},
	{
		name: "react: the events of an aggregate go at the same time", file: "react/rule.go", pkg: "./test/sim/reacting", run: "^TestSeeds$", env: []string{"REACTING_SEEDS=12"},
		old: "if r.Order == OrderNone {", new: "if r.Order != \"\" {",
	},
	{
		name: "react/delivery: a list believes its lookups", file: "react/delivery/list.go", pkg: "./react/delivery", run: "UnknownFirstWrite",
		old: "|| !d.CreatedAt.Equal(places[i].CreatedAt)", new: "|| places[i].CreatedAt.IsZero()",
	},
	{
		name: "dlq/api: an error repeats what was sent", file: "internal/httpapi/discreet.go", pkg: "./dlq/api", run: "ErrorsDoNotRepeat",
		old: "e.Value, e.Location = nil, jsonform.Plain(e.Location)", new: "e.Location = jsonform.Plain(e.Location)",
	},
	{
		name: "a repeated creation is answered with the order as it is now", file: "orders/create.go", pkg: "./orders", run: "OrderLifecycle",
		old: "if err != nil || o.Version == 1 {", new: "if err != nil || o.Version > 0 {",
	},
	{
		name: "orders: an error repeats what was sent", file: "orders/http.go", pkg: "./orders", run: "RepeatNothing",
		old: "\thttpapi.Discreet(&cfg)\n", new: "",
	},
	{
		name: "an error repeats the name of a member", file: "internal/jsonform/fields.go", pkg: "./messages", run: "RepeatNothing",
		old: "return plain + \"…\"", new: "return path",
	},
	{
		name: "a server refuses before its load balancer knows", file: "internal/httpapi/serve.go", pkg: "./internal/httpapi", run: "WhileItLeaves",
		old: "if s.DrainDelay <= 0 {", new: "if true {",
	},
	{
		name: "a kept connection brings requests to a server that leaves", file: "internal/httpapi/serve.go", pkg: "./internal/httpapi", run: "WhileItLeaves",
		old: "if ctx.Err() != nil {", new: "if false {",
	},
	{
		name: "a second signal waits for the drain", file: "internal/daemon/signals.go", pkg: "./internal/daemon", run: "SecondSignal",
		old: "os.Exit(exitInterrupted)", new: "_ = exitInterrupted; _ = os.Exit",
	},
	{
		name: "anybody says whose a request is", file: "internal/access/proxies.go", pkg: "./internal/access", run: "WhoAsked",
		old: "if err != nil || !p.trusts(clean(peer.Addr())) {", new: "if err != nil {",
	},
	{
		name: "a caller behind a proxy says whose its request is", file: "internal/access/proxies.go", pkg: "./internal/access", run: "NobodySpoofs",
		old: "\t\tif !p.trusts(at) {\n\t\t\treturn at", new: "\t\tif false {\n\t\t\treturn at",
	},
	{
		name: "react: the client alone finds out where a rule begins", file: "react/begin.go", pkg: "./react", run: "WhileItBegins",
		old: "if o == unknown {", new: "if o == unknown && len(topic) == 0 {",
	},
	{
		name: "who does not read the answer keeps the connection", file: "internal/httpapi/serve.go", pkg: "./internal/httpapi", run: "DoesNotRead",
		old: "s.WriteTimeout,\n", new: "0 * s.WriteTimeout,\n",
	},
	{
		name: "the client takes the answer to a redirect for that to a change", file: "client/client.go", pkg: "./client", run: "ARedirect",
		old: "		case req.Method != via[0].Method:\n			return http.ErrUseLastResponse\n", new: "",
	},
	{
		name: "the row of a message covers what a server says whose clock is behind", file: "schedule/store.go", pkg: "./test/sim/later", run: "Seeds",
		old: "const writtenBefore = time.Hour", new: "const writtenBefore = time.Second",
	},
	{
		name: "a repeated message goes the way of its new time", file: "messages/service.go", pkg: "./messages", run: "RepeatedAfterItsTime",
		old: "later := at.After(id.createdAt)", new: "later := at.After(s.cfg.Now())",
	},
	{
		name: "memory has room for all that waits", file: "schedule/scheduler.go", pkg: "./schedule", run: "LittleMemory",
		old: "room: make(chan struct{}, cfg.MaxPending)", new: "room: make(chan struct{}, 1<<20)",
	},
	{
		name: "a page of the list forgets those of the same time", file: "schedule/slots.go", pkg: "./schedule", run: "ListsByTime",
		old: "	if after.ID != (gocql.UUID{}) {\n		if err", new: "	if after.ID != (gocql.UUID{}) && limit < 0 {\n		if err",
	},
	{
		name: "a retried batch has ids of its own", file: "messages/service.go", pkg: "./messages", run: "Batch",
		old: "one.id = outbox.NameID(id.id, strconv.Itoa(i))", new: "one.id = outbox.NameID(outbox.NewID(), strconv.Itoa(i))",
	},
	{
		name: "a message that was taken back comes back with its Idempotency-Key", file: "messages/service.go", pkg: "./messages", run: "SameKey",
		old: "		if found && state != Scheduled {", new: "		if found && state == Queued {",
	},
	{
		name: "a write that timed out counts as not made", file: "messages/service.go", pkg: "./messages", run: "AnswersAreTrue",
		old: "		case fate == cqlcode.Unknown:\n			unknown = true", new: "		case fate == cqlcode.Unknown:\n			unknown = false",
	},
	{
		name: "an open breaker asks the database", file: "internal/guard/breaker.go", pkg: "./messages", run: "Breaker",
		old: "c.ConsecutiveFailures >= uint32(cfg.Failures) ||", new: "c.ConsecutiveFailures >= 100*uint32(cfg.Failures) ||",
	},
	{
		name: "any topic may be written to", file: "messages/message.go", pkg: "./messages", run: "NamesEveryBadField",
		old: "	case !c.allowed(n.Topic):", new: "	case false && !c.allowed(n.Topic):",
	},
	{
		name: "a message's topic follows the relay's template", file: "relay/topics.go", pkg: "./relay", run: "TestConfig_TopicOf",
		old: "	if e.AggregateType == outbox.MessageAggregate {", new: "	if e.AggregateType == outbox.MessageAggregate+\"s\" {",
	},
	{
		name: "a watcher that is slow stays", file: "watch/hub.go", pkg: "./watch", run: "SlowOne",
		old: "		close(sub.dropped)\n", new: "",
	},
	{
		name: "who comes back misses what came while it caught up", file: "watch/subscription.go", pkg: "./watch", run: "ResumesWithout",
		old: "			if at, _ := s.at.at(name, partition); at < until {", new: "			if at, _ := s.at.at(name, partition); at < min(until, 0) {",
	},
	{
		name: "the end of a transaction is waited for as an event", file: "watch/subscription.go", pkg: "./watch", run: "BehindATransaction",
		old: "kgo.KeepControlRecords(), ", new: "",
	},
	{
		name: "a topic that is made anew is not read", file: "watch/hub.go", pkg: "./watch", run: "MadeAnew",
		old: "	h.client.PurgeTopicsFromConsuming(name)\n", new: "",
	},
	{
		name: "who comes back sees again what it saw", file: "watch/subscription.go", pkg: "./watch", run: "Resumes",
		old: "			at, ok := from.at(name, partition)\n			if ok {", new: "			at, ok := from.at(name, partition)\n			at = max(0, at-1)\n			if ok {",
	},
	{
		name: "a topic that comes later is followed from when it is noticed", file: "watch/follow.go", pkg: "./watch", run: "Follow_TopicsThatComeLater",
		old: "		s.at[name] = map[int32]int64{}\n", new: "		_ = name\n",
	},
	{
		name: "a topic that came while a follower was away is followed from now on", file: "watch/position.go", pkg: "./watch", run: "Follow_Resumes",
		old: "			out[name] = make(map[int32]int64)\n", new: "",
	},
	{
		name: "a page elsewhere may watch", file: "watch/socket.go", pkg: "./watch", run: "Foreign",
		old: "Subprotocols: []string{protocol}}", new: "Subprotocols: []string{protocol}, InsecureSkipVerify: true}",
	},
	{
		name: "partitions that come later are not watched", file: "watch/hub.go", pkg: "./watch", run: "ComesLater",
		old: "		if _, known := t.next[partition]; !known && o.Err == nil {", new: "		if _, known := t.next[partition]; !known && o.Err == nil && t.refs == 0 {",
	},
	{
		name: "dlq: an hour is taken off a list that is relied on", file: "dlq/tidy.go", pkg: "./dlq", run: "TestTidy_",
		old: "before := s.now().Add(-announceKept)\n",
		new: "before := s.now()\n",
	},
	{
		name: "dlq: a job acts on a letter again", file: "dlq/job_act.go", pkg: "./dlq", run: "ActsOnceBesideAnother",
		old: "	return version > 0, err", new: "	return version < 0, err",
	},
	{
		name: "dlq: a runner that goes on acts again", file: "dlq/job_act.go", pkg: "./dlq", run: "CrashesAtEveryWrite|TwoNeverActTwice",
		old: "		return job != none && l.job == job, nil", new: "		return false, nil",
	},
	{
		name: "dlq: a batch is counted when it begins, too", file: "dlq/worker.go", pkg: "./dlq", run: "CrashesAtEveryWrite|ReplaysFollows",
		old: "		j.batch = w.complete() + 1", new: "		j.batch = w.complete() + 1\n		j.cursor.Acted.Changed += len(ids)",
	},
	{
		name: "dlq: a paused job goes on to the end of its batch", file: "dlq/worker.go", pkg: "./dlq", run: "PauseResumeCancel",
		old: "					stop(errStopActing)", new: "					_ = errStopActing",
	},
	{
		name: "dlq: the canary does not stop a job", file: "dlq/worker.go", pkg: "./dlq", run: "Canary",
		old: "		if same != \"\" && j.Canary", new: "		if same == \"none\" && j.Canary",
	},
	{
		name: "dlq: a letter names an edit that is not kept", file: "dlq/edit.go", pkg: "./dlq", run: "TestEdit_",
		old: "		if err = s.keepEdit(ctx, event, &edited); err == nil {", new: "		if edited.ID != (gocql.UUID{}) {",
	},
	{
		name: "dlq: an edit passes over what somebody changed since", file: "dlq/edit.go", pkg: "./dlq", run: "TestEdit_Refuses",
		old: "	by.Version = expect", new: "	by.Version = 0",
	},
	unit("TestDeadLetters_AnEditedEventTakesTheOriginalsPlace", mutant{
		name: "an edited event does not say which it stands for", file: "relay/replay.go",
		old: "		e.EditOf = e.IDString()\n", new: "",
	}),
	unit("TestDeadLetters_AnEditedEventTakesTheOriginalsPlace", mutant{
		name: "read-back takes an edited event for another", file: "relay/readback_scan.go",
		old: "	if len(original) > 0 {", new: "	if len(original) > 1000 {",
	}),
	{
		name: "dlq: what is parked is replayed when it is edited", file: "dlq/edit.go", pkg: "./dlq", run: "TestEdit_KeepsTheOriginal|Walk",
		old: "		if l.Status == Parked {", new: "		if l.Status == Archived {",
	},
	unit("TestBackfill_TailLeavesToTheScanWhatIsItsOwn", mutant{
		name: "the tail hands on what a scan answers for while a stream is not opened", file: "relay/streams.go",
		old: "	return s.unread(), true",
		new: "	return s.unread(), false",
	}),
	{
		name: "api: what the audit cannot have is done all the same", file: "dlq/api/audit.go", pkg: "./dlq/api", run: "TestAudit_NothingIsDone",
		old: "		log.Warn(\"not done: the audit cannot be written\", \"err\", err)\n		return why\n",
		new: "		log.Warn(\"not done: the audit cannot be written\", \"err\", err, \"why\", why)\n",
	},
	{
		name: "api: a job that discards is an operator's", file: "dlq/api/jobs.go", pkg: "./dlq/api", run: "TestAccess_",
		old: "		if a.action == action {\n			return a.role", new: "		if a.action == action {\n			return access.Operator",
	},
	{
		name: "api: a job that purges is an operator's", file: "dlq/api/jobs.go", pkg: "./dlq/api", run: "TestAccess_",
		old: "	return access.Admin // what takes", new: "	return access.Operator // what takes",
	},
	{
		name: "api: a dry run of a job makes it", file: "dlq/api/jobs.go", pkg: "./dlq/api", run: "TestArchives_PurgeListAndRestore",
		old: "	if b.DryRun {\n", new: "	if b.DryRun && b.Rate > 0 {\n",
	},
	{
		name: "api: If-Match goes no further than the header", file: "dlq/api/actions.go", pkg: "./dlq/api", run: "TestAct_OneOfMany|TestAct_Refused",
		old: "		by.Version = version\n", new: "",
	},
	{
		name: "api: letters are purged to nowhere where there is no archive", file: "dlq/api/preview.go", pkg: "./dlq/api", run: "TestArchives_Refused",
		old: "b.Action == dlq.ActionPurge && !b.NoArchive) {", new: "false) {",
	},
	{
		name: "access: a role may do what the next one may", file: "internal/access/role.go", pkg: "./internal/access", run: ".",
		old: "have >= need", new: "have+1 >= need",
	},
	{
		name: "access: wrong tokens from an address have no end", file: "internal/access/gate.go", pkg: "./internal/access", run: ".",
		old: "	if wait, ok := g.failures.take(from); !ok {", new: "	if wait, ok := g.failures.take(secret); !ok {",
	},
	{
		name: "access: an operation that names no role is everybody's", file: "internal/access/huma.go", pkg: "./internal/access", run: ".",
		old: "			needed = Admin\n", new: "			needed = Viewer\n",
	},
	{
		name: "dlq: a purge leaves what edits would have published", file: "dlq/purge.go", pkg: "./dlq/archive", run: "TestKeeper_",
		old: "	return s.removeEdits(ctx, event)\n", new: "	return nil\n",
	},
	{
		name: "dlq: a letter is purged though it changed since it was copied", file: "dlq/archive/move.go", pkg: "./dlq/archive", run: "TestKeeper_",
		old: "		by.Version = r.Version\n", new: "",
	},
	unit("TestPartitioner_KeepsALaneInOneBatch", mutant{
		name: "an aggregate's records are under way in two batches", file: "relay/lane.go",
		old: "			l.turned.Store(true)\n", new: "",
	}),
}
