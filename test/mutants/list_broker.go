package main

// brokerMutants break what the relay does when single topics or partitions fail.
var brokerMutants = []mutant{
	unit("TestTopics_ARefusedOneStopsNoOther", mutant{
		name: "a denied topic ends the relay", file: "relay/errors.go",
		old: "kerr.InvalidTopicException, kerr.TopicAuthorizationFailed, kerr.PolicyViolation",
		new: "kerr.InvalidTopicException, kerr.PolicyViolation",
	}),
	unit("TestTopics_ARefusedOneStopsNoOther", mutant{
		name: "a denied topic keeps the others from being read back", file: "relay/readback_fetch.go",
		old: "	if !isDenied(err) {\n		return err",
		new: "	if true {\n		return err",
	}),
	unit("TestTopics_WaitsForBrokersThatHoldTheReplicas", mutant{
		name: "a topic that cannot be created opens the breaker", file: "relay/open.go",
		old: "case err == nil, answer, Classify",
		new: "case err == nil, answer && false, Classify",
	}),
	unit("TestFlow_APartitionWithoutALeaderStopsNoOther", mutant{
		name: "the producer takes the whole budget for one partition", file: "relay/flow.go",
		old: "f == nil || !f.stalled && !p.hasShare(f)",
		new: "f == nil || !f.stalled",
	}),
	unit("TestFlow_AKillKeepsTheOrderBehindAStalledRecord", mutant{
		name: "what waits for a silent partition fills the memory", file: "relay/flow.go",
		old: "pressed || silent >=",
		new: "pressed && false || silent >=",
	}),
	unit("TestFlow_APartitionWithoutALeaderStopsNoOther", mutant{
		name: "one silent partition opens the breaker", file: "relay/calls.go",
		old: "		case p.answersOthers(c, now):\n			p.excuse(c)\n",
		new: "",
	}),
	unit("TestFlow_AKillKeepsTheOrderBehindAStalledRecord", mutant{
		name: "a chain is replayed before the events that its head follows", file: "relay/replay.go",
		old: "|| c.head().after > p.letters.passed",
		new: "",
	}),
	unit("TestReadback_WaitsForLeadersHoweverLong", mutant{
		name: "read-back gives up partitions when none has a leader", file: "relay/readback.go",
		old: "case len(pending) == 0 || read == 0:",
		new: "case len(pending) == 0:",
	}),
	unit("TestLetters_AChainIsInTheOrderOfNumbers", mutant{
		name: "a chain of dead letters is in the order in which they were written", file: "relay/letters.go",
		old: "if ref.seq > 0 && i > 0 && c.letters[i-1].seq > ref.seq {",
		new: "if false {",
	}),
	unit("TestStatus_ReportsRecordsThatTheBrokerLost", mutant{
		name: "lost records are no problem of readiness", file: "relay/data_loss.go",
		old: "	p.loss.Store(&DataLoss{Topic: topic, Partition: partition, At: time.Now()})\n",
		new: "",
	}),
	{
		name: "doctor accepts records that one broker alone has", file: "cmd/outbox/doctor_topics.go", pkg: "./cmd/outbox", run: "TestDoctor_ChecksThatTopicsKeep",
		old: "replicas >= 3 && n < 2", new: "replicas >= 3 && n < 1",
	},
	{
		name: "doctor accepts unclean leader elections", file: "cmd/outbox/doctor_topics.go", pkg: "./cmd/outbox", run: "TestDoctor_ChecksThatTopicsKeep",
		old: `== "true" && replicas >= 2`, new: `== "yes" && replicas >= 2`,
	},
	unit("TestReadback_ReadsBeyondTheHighWatermark", mutant{
		name: "read-back ends at the high watermark", file: "relay/readback_fetch.go",
		old: "p.end = max(p.end, e.EndOffset)", new: "_ = e.EndOffset",
	}),
	unit("TestStreams_SavesDoNotOvertakeEachOther", mutant{
		name: "checkpoint saves overtake each other", file: "relay/streams.go",
		old: "saving: make(chan struct{}, 1)", new: "saving: make(chan struct{}, 2)",
	}),
	unit("TestPublisher_ReportsRecordsThatTheBrokerLost", mutant{
		name: "lost records are not reported", file: "relay/publisher.go",
		old: "		kgo.ProducerOnDataLossDetected(p.lost),\n",
		new: "",
	}),
}
