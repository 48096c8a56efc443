package main

// brokerMutants break what the relay does when single topics or partitions fail.
var brokerMutants = []mutant{
	unit("TestTopics_ARefusedOneStopsNoOther", mutant{
		name: "a denied topic ends the relay", file: "relay/failure/failure.go",
		old: "kerr.InvalidTopicException, kerr.TopicAuthorizationFailed, kerr.InvalidConfig",
		new: "kerr.InvalidTopicException, kerr.InvalidConfig",
	}),
	unit("TestTopics_ARefusedOneStopsNoOther", mutant{
		name: "a denied topic keeps the others from being read back", file: "relay/internal/readback/fetch.go",
		old: "	if !isDenied(err) {\n		return err",
		new: "	if true {\n		return err",
	}),
	unit("TestTopics_WaitsForBrokersThatHoldTheReplicas", mutant{
		name: "a topic that cannot be created opens the breaker", file: "relay/internal/calls/calls.go",
		old: "case err == nil, answer, failure.Classify",
		new: "case err == nil, answer && false, failure.Classify",
	}),
	unit("TestFlow_APartitionWithoutALeaderStopsNoOther", mutant{
		name: "the producer takes the whole budget for one partition", file: "relay/internal/publish/flow.go",
		old: "pf == nil || !pf.stalled && !f.hasShare(pf)",
		new: "pf == nil || !pf.stalled",
	}),
	unit("TestFlow_AKillKeepsTheOrderBehindAStalledRecord", mutant{
		name: "events that wait for a silent partition fill the memory", file: "relay/internal/publish/supervise.go",
		old: "(filling || usedUp) && p.spillLocked", new: "usedUp && p.spillLocked",
	}),
	unit("TestFlow_OneSilentPartitionAloneOpensNoBreaker", mutant{
		name: "one silent partition opens the breaker", file: "relay/internal/calls/calls.go",
		old: "		case c.answersOthersLocked(call, now, busy):\n			c.dropLocked(call)\n",
		new: "",
	}),
	unit("TestReplay_WaitsForTheEventBeforeTheChain", mutant{
		name: "a chain is replayed before the events that its head follows", file: "relay/internal/publish/replay.go",
		old: " || unread || ",
		new: " || unread && false || ",
	}),
	unit("TestReadback_WaitsForLeadersHoweverLong", mutant{
		name: "read-back gives up partitions when none has a leader", file: "relay/internal/readback/readback.go",
		old: "case len(pending) == 0 || read == 0:",
		new: "case len(pending) == 0:",
	}),
	unit("TestReadback_PublishesNothingToAnUnreadPartition", mutant{
		name: "events are published to a partition that was not read back", file: "relay/internal/topics/partitions.go",
		old: "	g.parts[part] = struct{}{}",
		new: "	_ = g",
	}),
	unit("TestReadback_PublishesNothingToAnUnreadPartition", mutant{
		name: "a partition that was not read back is not read back later", file: "relay/run.go",
		old: "add(\"unread partitions\", x.awaitUnread)",
		new: "_ = x.awaitUnread",
	}),
	unit("TestPartitionCounts_Gates", mutant{
		name: "a gate is passed when its topic gets more partitions", file: "relay/internal/topics/partitions.go",
		old: "[...]int{g.n, c.of[topic]}",
		new: "[...]int{c.of[topic]}",
	}),
	unit("TestPartitionCounts_Gates", mutant{
		name: "the producer sends to a gated partition that the relay does not know of", file: "relay/internal/producer/flight.go",
		old: "if t.counts.Shut(t.topic, p) {",
		new: "if false {",
	}),
	unit("TestReadback_AGatedEventIsNoDeadLetter", mutant{
		name: "an open breaker makes dead letters of events that may be in an unread partition", file: "relay/internal/publish/send.go",
		old: "		if p.isGated(it) {\n",
		new: "		if !p.staysLocked(l, it) && p.isGated(it) {\n",
	}),
	unit("TestReadback_AGatedEventIsNoDeadLetter", mutant{
		name: "dead letters are replayed while a partition is unread", file: "relay/run.go",
		old: "if x.p.WritesDeadLetters() && !gated {",
		new: "if x.p.WritesDeadLetters() {",
	}),
	unit("TestReadback_PublishesNoMoreThanAStartRemembers", mutant{
		name: "more events are published while a partition is unread than a start reads back", file: "relay/internal/publish/gates.go",
		old: "return left >= 0, left == -1",
		new: "return true, left == -1",
	}),
	unit("TestSet_AChainIsInTheOrderOfNumbers", mutant{
		name: "a chain of dead letters is in the order in which they were written", file: "relay/internal/chains/chains.go",
		old: "if ref.Seq > 0 && i > 0 && c.DeadLetters[i-1].Seq > ref.Seq {",
		new: "if false {",
	}),
	unit("TestStatus_ReportsRecordsThatTheBrokerLost", mutant{
		name: "lost records do not affect readiness", file: "relay/internal/publish/data_loss.go",
		old: "	l.last.Store(&DataLoss{Topic: topic, Partition: partition, At: time.Now()})\n",
		new: "",
	}),
	{
		name: "doctor accepts records that one broker alone has", file: "internal/doctor/topics.go", pkg: "./internal/doctor", run: "TestDoctor_ChecksThatTopicsKeep",
		old: "replicas >= 3 && n < 2", new: "replicas >= 3 && n < 1",
	},
	{
		name: "doctor accepts unclean leader elections", file: "internal/doctor/topics.go", pkg: "./internal/doctor", run: "TestDoctor_ChecksThatTopicsKeep",
		old: `== "true" && replicas >= 2`, new: `== "yes" && replicas >= 2`,
	},
	unit("TestReadback_ReadsBeyondTheHighWatermark", mutant{
		name: "read-back ends at the high watermark", file: "relay/internal/readback/fetch.go",
		old: "p.end = max(p.end, e.EndOffset)", new: "_ = e.EndOffset",
	}),
	unit("TestStreams_SavesDoNotOvertakeEachOther", mutant{
		name: "checkpoint saves overtake each other", file: "relay/internal/checkpoint/streams.go",
		old: "saving: make(chan struct{}, 1)", new: "saving: make(chan struct{}, 2)",
	}),
	unit("TestPublisher_ReportsRecordsThatTheBrokerLost", mutant{
		name: "lost records are not reported", file: "relay/internal/producer/search.go",
		old: "	if s.checks && s.lost {\n",
		new: "	if false {\n",
	}),
	unit("TestPublisher_ReportsNoLossThatDidNotHappen", mutant{
		name: "a loss is reported without a look at the topic", file: "relay/internal/producer/search.go",
		old: "	if s.checks && s.lost {\n",
		new: "	if s.checks {\n",
	}),
	unit("TestPublisher_FindsRecordsWhoseAnswerWasLost", mutant{
		name: "a record whose answer was lost is sent again", file: "relay/internal/producer/producer.go",
		old: "!Rejected(r) && c.mayHaveWritten(n, err) {", new: "!Rejected(r) && false {",
	}),
	unit("TestReadback_AfterTheShardIsGranted", mutant{
		name: "read-back begins at the ends of the topics", file: "relay/internal/readback/fetch.go",
		old: "max(since.UnixMilli(), 0)", new: "time.Now().UnixMilli()",
	}),
}
