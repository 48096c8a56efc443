package main

// subscriptionMutants break what the queue and the engine of subscriptions promise.
var subscriptionMutants = []mutant{
	inQueue(mutant{
		name: "queue: an acknowledgement is confirmed by any commit", file: "subscriptions/internal/queue/settle.go",
		old: "	for ; n < len(q.unconfirmed) && q.unconfirmed[n].mark <= p.mark; n++ {", new: "	for ; n < len(q.unconfirmed); n++ {",
		pkg: "./subscriptions/internal/queue", run: "ConfirmedByItsCommit",
	}),
	inQueue(mutant{
		name: "queue: two messages of a key are active", file: "subscriptions/internal/queue/queue.go",
		old: "	if len(l.run)+l.alone > 0 || q.held {", new: "	if q.held {",
	}),
	inQueue(mutant{
		name: "queue: a run is acknowledged in any order", file: "subscriptions/internal/queue/lease.go",
		old: "		if l.run[l.first] != m {", new: "		if false {", run: "InOrder",
	}),
	inQueue(mutant{
		name: "queue: two partitions have a key", file: "subscriptions/internal/queue/keys.go",
		old: "	wait := s.queue != nil && s.queue != q", new: "	wait := false", run: "TestKeys",
	}),
	inEngine("KeyIsOneGroup", mutant{
		name: "engine: a key has two owners", file: "subscriptions/engine/group.go",
		old: "kgo.Balancers(newKeyBalancer(g.log), kgo.CooperativeStickyBalancer())", new: "kgo.Balancers(kgo.CooperativeStickyBalancer())",
	}),
	inQueue(mutant{
		name: "queue: the row of an acknowledged message stays", file: "subscriptions/internal/queue/settle.go",
		old: "	case m.row:\n		q.remove", new: "	case false:\n		q.remove",
	}),
	inQueue(mutant{
		name: "queue: the position passes a message before it is stored", file: "subscriptions/internal/queue/settle.go",
		old: "		m.saving = true\n", new: "		m.saving = true\n		q.settleOffset(m)\n",
	}),
	inQueue(mutant{
		name: "queue: an expired lease can be acknowledged", file: "subscriptions/internal/queue/lease.go",
		old: "	q.Expire(now)\n	if q.closed {", new: "	if q.closed {",
	}),
	inQueue(mutant{
		name: "queue: a message has one delivery too many", file: "subscriptions/internal/queue/lease.go",
		old: "m.attempts >= q.maxReceive(m)", new: "m.attempts > q.maxReceive(m)",
	}),
	inQueue(mutant{
		name: "queue: messages after the window are delivered", file: "subscriptions/internal/queue/lease.go",
		old: "return m != nil && !q.closed && m.offset < q.offset()+position.Window", new: "return m != nil && !q.closed", run: "OutsideOfTheWindow",
	}),
	inQueue(mutant{
		name: "queue: a delivery that fails during a failed save is not stored", file: "subscriptions/internal/queue/settle.go",
		old: "		m.want = false // requested", new: "		_ = 0 // requested", run: "StoresWhatFails",
	}),
	{
		name: "receipt: the signature is not compared", file: "subscriptions/internal/receipt/receipt.go", pkg: "./subscriptions/internal/receipt", run: "Forgeries",
		old: "!hmac.Equal(sent, m.sign(body))", new: "!hmac.Equal(sent, sent)",
	},
	{
		name: "receipt: a name that is a part of another's names its owner", file: "subscriptions/internal/receipt/receipt.go", pkg: "./subscriptions/internal/receipt", run: "Names_OfAnother",
		old: "bytes.HasPrefix(got[:n], begin)", new: "bytes.Contains(got[:n], begin[2:])",
	},
	inEngine("TransformsPulled", mutant{
		name: "engine: a message whose transform fails is delivered as it is", file: "subscriptions/engine/receive.go",
		old: "		case err != nil:\n			l.p", new: "		case err == nil && e.ID == \"\":\n			l.p",
	}),
	inEngine("TransformsPulled", mutant{
		name: "engine: a message whose transform fails is retried", file: "subscriptions/engine/receive.go",
		old: "q.Settle(l.Offset, l.Lease, queue.Reject,", new: "q.Settle(l.Offset, l.Lease, queue.Nack,",
	}),
	inEngine("TransformsPulled", mutant{
		name: "engine: a failed transform ends the request", file: "subscriptions/engine/receive.go",
		old: "len(messages) == 0; r.Wait", new: "messages == nil; r.Wait",
	}),
	inEngine("TransformsPulled", mutant{
		name: "engine: a changed transform is not used", file: "subscriptions/engine/group.go",
		old: "r.Transform != old.Transform", new: "false",
	}),
	inEngine("TransformsPushed", mutant{
		name: "engine: a failed transform keeps the place of its call", file: "subscriptions/engine/push.go",
		old: "		<-u.slots\n		u.settle(", new: "		u.settle(",
	}),
	inEngine("TransformsPushed", mutant{
		name: "engine: a plugin decides without the transform", file: "subscriptions/engine/push.go",
		old: "	e, err := u.g.event(ctx, rec)\n", new: "	e, err := (&group{}).event(ctx, rec)\n",
	}),
	inEngine("RefusesExpressions", mutant{
		name: "engine: a wrong transform is stored", file: "subscriptions/engine/service.go",
		old: "filter.Check(s.Filter, s.Transform)", new: "filter.Check(s.Filter, \"\")",
	}),
	inTransform("StoredPayload|PayloadAndHeaders", mutant{
		name: "transform: the headers of the record change", old: "	merged := maps.Clone(e.Headers)", new: "	merged := e.Headers",
	}),
	inTransform("ErrorsSayWhere", mutant{
		name: "transform: the id of an event can be changed", old: "case identifies(string(name)) &&", new: "case false &&",
	}),
	inTransform("ErrorsSayWhere", mutant{
		name: "transform: an unknown key is ignored", old: "key != types.String(keyPayload) && key", new: "false && key",
	}),
	inTransform("Bounded", mutant{
		name: "transform: a result is not bounded while it is encoded", old: "	if len(b) > limit {", new: "	if len(b) > 10*limit {",
	}),
	{
		name: "filter: a long integer becomes a double", file: "internal/filter/data.go", pkg: "./internal/filter", run: "Exact",
		old: "ParseInt(text, 10, 64)", new: "ParseInt(text, 10, 32)",
	},
	inTransform("PayloadAndHeaders", mutant{
		name: "transform: null does not remove a header", old: "			delete(merged, string(name))", new: "			merged[string(name)] = \"\"",
	}),
	inEngine("ContinuesBesideIdle", mutant{
		name: "engine: a partition that continues waits for idle ones", file: "subscriptions/engine/config.go",
		old: "fetchWait = 100 * time.Millisecond", new: "fetchWait = 5 * time.Second",
	}),
	inEngine("RefusesReceipts", mutant{
		name: "engine: leases of a former epoch are valid", file: "subscriptions/engine/settle.go",
		old: "!hasLease(p.mu.epochs, s.Epoch, s.Lease)", new: "false",
	}),
	inEngine("FrozenInstance", mutant{
		name: "engine: an instance without a session leases", file: "subscriptions/engine/session.go",
		old: "	return now.Sub(s.mu.proven) < sessionTimeout", new: "	return true",
	}),
	inEngine("Histories", mutant{
		name: "engine: a commit without an answer is a confirmation", file: "subscriptions/engine/commit.go",
		old: "		case err == nil:\n", new: "		case err == nil || !errors.Is(err, errFenced):\n",
	}),
	inEngine("Seek", mutant{
		name: "engine: a seek is applied again after a restart", file: "subscriptions/internal/queue/settle.go",
		old: "q.settled.Encode(at, q.origin)", new: "q.settled.Encode(at, position.Origin{TopicID: q.origin.TopicID, Generation: q.origin.Generation})",
	}),
	inEngine("SeekWhile", mutant{
		name: "engine: a seek passes a partition that is loading", file: "subscriptions/engine/handover.go",
		old: "	p.g.refresh(p) //", new: "	//",
	}),
	inEngine("HandOverNotAfterAKill", mutant{
		name: "engine: what was handed over stays valid", file: "subscriptions/engine/handover.go",
		old: "for n := 1; inherited; n++ {", new: "for n := 1; inherited && n < 1; n++ {",
	}),
	inEngine("HandOverJoinLeave", mutant{
		name: "engine: the leases of an epoch end with it", file: "subscriptions/engine/handover.go",
		old: "	for i := len(epochs) - 1; i >= 0; i-- {", new: "	for i := len(epochs) - 1; i == len(epochs)-1; i-- {",
	}),
	inEngine("HandOverActions", mutant{
		name: "queue: a stored message that was handed over is not stored again", file: "subscriptions/internal/queue/settle.go",
		old: "m.record == nil && !m.row {", new: "m.record == nil {",
	}),
	inEngine("SeekWhile", mutant{
		name: "engine: a position is set before the client begins to read", file: "subscriptions/engine/read.go",
		old: "p.mu.reset && !ok {", new: "false && !ok {",
	}),
	inEngine("PastTheEnd", mutant{
		name: "engine: records before the position are ignored", file: "subscriptions/engine/read.go",
		old: "if lost = len(records) > 0 && records[0].Offset < q.Counts().Next; lost {", new: "if false {",
	}),
	inEngine("Recreated", mutant{
		name: "engine: rows of a former topic hide new records", file: "subscriptions/engine/beginning.go",
		old: "		if m.Offset < from {\n", new: "		if true {\n",
	}),
	inEngineIdentity(mutant{
		name: "engine: the position of a former topic is used", file: "subscriptions/engine/beginning.go",
		old: "b.ours && b.origin.TopicID != b.topicID\n", new: "false\n",
	}),
	inEngineIdentity(mutant{
		name: "engine: a generation continues after a lost position", file: "subscriptions/engine/beginning.go",
		old: "max(b.epoch, s.Origin.Generation+1)", new: "s.Origin.Generation",
	}),
	inEngineIdentity(mutant{
		name: "deadletter: a dead letter of a deleted subscription is delivered", file: "subscriptions/internal/deadletter/replay.go",
		old: "at.Incarnation != r.Owner", new: "false",
	}),
	inEngine("Metrics", mutant{
		name: "engine: the time to the acknowledgement begins at the end of the lease", file: "subscriptions/internal/queue/lease.go",
		old: "m.since, m.until, m.consumer = true, q.leases, now,", new: "m.since, m.until, m.consumer = true, q.leases, until,",
	}),
	inEngine("Stall|LongLease", mutant{
		name: "engine: a full window is never stored", file: "subscriptions/internal/queue/settle.go",
		old: "		if !m.bit && !m.want && !m.saving && q.blocks(m, now) {", new: "		if false {",
	}),
	inEngine("CrashAfterTheDeadLetter", mutant{
		name: "queue: a message that becomes a dead letter is delivered by the next owner", file: "subscriptions/internal/queue/queue.go",
		old: "	case m.rejected || m.deadLettering:", new: "	case m.rejected:",
	}),
	inEngine("CrashAfterTheDeadLetter", mutant{
		name: "queue: a dead letter is written before the row of its message", file: "subscriptions/internal/queue/lease.go",
		old: "	if m.attempts > 0 && !m.deadLettering {", new: "	if m.attempts > 0 && !m.deadLettering && false {",
	}),
	inEngine("CrashAfterTheDeadLetter", mutant{
		name: "engine: a rejected message is dead-lettered as max_receive after a crash", file: "subscriptions/engine/assign.go",
		old: "Rejected: m.State == store.StateRejected,", new: "Rejected: false,",
	}),
	inQueue(mutant{
		name: "queue: a forgotten message is shown to have ended before its end", file: "subscriptions/internal/queue/progress.go",
		old: "at.After(p.before) {", new: "false {", run: "ForgetsHonestly",
	}),
	inEngine("ProgressAfterSeek", mutant{
		name: "engine: a message that a seek skipped is shown as completed", file: "subscriptions/engine/status.go",
		old: "	case sought && skips(&seek, at):", new: "	case sought && skips(&seek, at) && false:",
	}),
	inEngine("ProgressAfterSeek", mutant{
		name: "engine: a purged message is shown as completed", file: "subscriptions/engine/status.go",
		old: "	case at.At.Before(r.Purge.Before):", new: "	case false:",
	}),
	inEngine("LeasesOfOperators", mutant{
		name: "engine: a lease that has ended is reported as released", file: "subscriptions/engine/leases.go",
		old: "if q.LeasedAt(lease.Offset, lease.Number).IsZero() {", new: "if false {",
	}),
	inEngine("ProgressOf", mutant{
		name: "engine: a dead letter is shown as completed", file: "subscriptions/engine/status.go",
		old: "err != nil || found {", new: "err != nil || found && false {",
	}),
}

func inQueue(m mutant) mutant {
	if m.run == "" {
		m.run = "KeepsItsPromises"
	}
	m.pkg = "./subscriptions/internal/queue"
	return m
}

func inEngineIdentity(m mutant) mutant {
	m.pkg, m.run = "./subscriptions/engine", "TestIdentity"
	return m
}

func inEngine(run string, m mutant) mutant {
	m.pkg, m.run = "./subscriptions/engine", "TestEngine_.*("+run+")"
	return m
}

func inTransform(run string, m mutant) mutant {
	m.file, m.pkg, m.run = "internal/filter/transform.go", "./internal/filter", "TestTransform_.*("+run+")"
	return m
}
