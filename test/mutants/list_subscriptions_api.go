package main

// subscriptionAPIMutants break what consumers rely on at the HTTP API, between instances
// and in the Go client.
var subscriptionAPIMutants = []mutant{
	inAPI("TestConsume_TheStatusCannotBeMistaken", mutant{
		name: "subscriptions API: an unsettled receipt is a success", file: "subscriptions/api/consume.go",
		old: "		if p := unsettled(results); p != nil {\n", new: "		if p := unsettled(results); p != nil && false {\n",
	}),
	inAPI("TestConsume_TheStatusCannotBeMistaken", mutant{
		name: "subscriptions API: an open result is reported as expired", file: "subscriptions/api/consume.go",
		old: "	case open > 0:\n", new: "	case open > len(results):\n",
	}),
	inAPI("TestConsume_ItemsHaveTheirOwnDelays", mutant{
		name: "subscriptions API: a nack without delay uses the backoff", file: "subscriptions/api/decode.go",
		old: "s.Delay = max(s.Delay, time.Millisecond)", new: "_ = s",
	}),
	inAPI("TestReceive_ReleasesForADisconnectedClient", mutant{
		name: "subscriptions API: messages stay leased to a disconnected client", file: "subscriptions/api/consume.go",
		old: "		s.release(name, messages)\n		return nil, ctx.Err()", new: "		return nil, ctx.Err()",
	}),
	inAPI("TestReceive_EndsWithTheServer", mutant{
		name: "subscriptions API: a stopping server waits for messages", file: "subscriptions/api/consume.go",
		old: "	defer context.AfterFunc(s.stopping, cancel)()\n", new: "",
	}),
	inAPI("TestAccess_EachRoleByEachOperation", mutant{
		name: "subscriptions API: a consumer consumes every subscription", file: "subscriptions/api/server.go",
		old: `access.PermitConsume(p, ctx.Param("name"))`, new: `error(nil)`,
	}),
	inAPI("TestStream_IsBoundedBySettledMessages", mutant{
		name: "subscriptions API: a stream is not bounded", file: "subscriptions/api/stream.go",
		old: "	return w.mu.max - len(w.mu.leases), next", new: "	return w.mu.max, next",
	}),
	inAPI("TestClient_ExtendsLeases", mutant{
		name: "subscriptions client: leases are not extended", file: "outbox/subscriptions/consume.go",
		old: "now.Sub(l.run.since) >= k.opts.VisibilityTimeout/3", new: "now.Sub(l.since) < 0",
	}),
	inAPI("TestClient_StopsGracefully", mutant{
		name: "subscriptions client: a stop ends the handlers", file: "outbox/subscriptions/consume.go",
		old: "context.WithCancel(context.WithoutCancel(ctx))\n	defer abort()", new: "context.WithCancel(ctx)\n	defer abort()",
	}),
	inForward("TestReceive_EndsWithItsCaller", mutant{
		name: "forward: a request outlives its caller", file: "subscriptions/forward/receive.go",
		old: " || ctx.Err() != nil {", new: " {",
	}),
	inForward("TestReceive_LateMessagesAreReleased", mutant{
		name: "forward: late messages stay leased", file: "subscriptions/forward/receive.go",
		old: "len(rest) > 0 {\n			s.release(name, rest)", new: "len(rest) > 0 {\n			_ = rest",
	}),
	inForward("TestReceive_InTurns", mutant{
		name: "forward: a backlog hides the messages of peers", file: "subscriptions/forward/receive.go",
		old: "	if first != nil {\n", new: "	if first != nil && false {\n",
	}),
	inForward("TestReceive_WaitsForPeersWithOnePoll", mutant{
		name: "forward: each request has its own long poll", file: "subscriptions/forward/receive.go",
		old: "		if !g.mu.polling[key] && ", new: "		if ",
	}),
	inForward("TestHandler_RefusesForgedRequests", mutant{
		name: "forward: a new process settles for a stopped one", file: "subscriptions/forward/peer.go",
		old: "		if instance != s.cfg.Instance {\n", new: "		if false {\n",
	}),
	inForward("TestSettle_WaitsForTheNextOwner", mutant{
		name: "forward: nothing waits for the next owner", file: "subscriptions/forward/settle.go",
		old: "time.Since(moving) >= handOverWait ||", new: "time.Since(moving) >= 0 ||",
	}),
	inForward("TestHandler_RefusesForgedRequests", mutant{
		name: "forward: the key of receipts signs requests", file: "subscriptions/forward/peer.go",
		old: "	return signer{h.Sum(nil)}\n", new: "	return signer{key}\n",
	}),
	inForward("TestHandler_RefusesForgedRequests", mutant{
		name: "forward: the signature does not contain the body", file: "subscriptions/forward/peer.go",
		old: "sha256.Sum256(body)", new: "sha256.Sum256(nil)",
	}),
}

func inAPI(run string, m mutant) mutant {
	m.pkg, m.run = "./subscriptions/api", run
	return m
}

func inForward(run string, m mutant) mutant {
	m.pkg, m.run = "./subscriptions/forward", run
	return m
}
