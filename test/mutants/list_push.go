package main

// pushMutants break what push delivery promises.
var pushMutants = []mutant{
	inPush("Hang", mutant{
		name: "push: the lease of a call that hangs expires", old: "			q.Extend(l.Offset, l.Lease, now, now.Add(2*timeout))\n", new: "			_ = q\n			_ = now\n",
	}),
	inPush("Rebalance", mutant{
		name: "push: partitions are released during calls", file: "subscriptions/engine/partition.go",
		old: "p.mu.q.Counts().Leased == 0)", new: "true)",
	}),
	inPush("Retries", mutant{
		name: "push: a permanent error is retried", old: "			action = queue.Reject\n", new: "			action = queue.Nack\n",
	}),
	inPush("InOrderOfKeys", mutant{
		name: "push: the place of a call is not free again", old: "		<-u.slots\n		done <- err\n", new: "		done <- err\n",
	}),
	inPush("Destinations", mutant{
		name: "push: a changed destination is not used", old: "	return a == b || a != nil", new: "	return true || a != nil",
	}),
	{
		name: "push: an imported rule does not continue where it was", file: "internal/app/reactions.go", pkg: "./cmd/outbox", run: "ImportReactions",
		old: "		if o.At >= 0 {\n", new: "		if o.At > 1000 {\n",
	},
}

func inPush(run string, m mutant) mutant {
	m.pkg, m.run = "./subscriptions/engine", "TestPush_.*("+run+")"
	if m.file == "" {
		m.file = "subscriptions/engine/push.go"
	}
	return m
}
