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
}
