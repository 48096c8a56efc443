package main

// subscribingMutants break promises of subscriptions that only show when processes, database,
// broker and consumers fail together: test/sim/subscribing finds them by its seeds.
var subscribingMutants = []mutant{
	inSubscribing(mutant{
		name: "subscribing: the next message of a key does not wait for the former one", file: "subscriptions/internal/queue/queue.go",
		old: "	if len(l.run)+l.alone > 0 || q.held {", new: "	if q.held {",
	}),
	inSubscribing(mutant{
		name: "subscribing: a commit without an answer confirms acknowledgements", file: "subscriptions/engine/commit.go",
		old: "		case err == nil:\n", new: "		case err == nil || !errors.Is(err, errFenced):\n",
	}),
	inSubscribing(mutant{
		name: "subscribing: the settled offsets behind the position are forgotten", file: "subscriptions/engine/beginning.go",
		old: "b.ours = err == nil", new: "b.ours, b.settled = err == nil, position.Set{}",
	}),
	inSubscribing(mutant{
		name: "subscribing: the row of an acknowledged message stays", file: "subscriptions/internal/queue/settle.go",
		old: "	case m.row:\n		q.remove", new: "	case false:\n		q.remove",
	}),
	inSubscribing(mutant{
		name: "subscribing: a dead letter is settled before it is stored", file: "subscriptions/internal/queue/settle.go",
		old: "	if err != nil {\n		q.dead = append(q.dead, m)\n		return\n	}\n", new: "",
	}),
	inSubscribing(mutant{
		name: "subscribing: the signature of receipts is not compared", file: "subscriptions/internal/receipt/receipt.go",
		old: "!hmac.Equal(sent, m.sign(body))", new: "!hmac.Equal(sent, sent)",
	}),
	inSubscribing(mutant{
		name: "subscribing: a failed call of a plugin settles its message", file: "subscriptions/engine/push.go",
		old: "		action, delay = queue.Nack, ", new: "		action, delay = queue.Ack, ",
	}),
	inSubscribing(mutant{
		name: "subscribing: each attempt has its own delivery id", file: "subscriptions/plugin/plugin.go",
		old: "subscription, \"event\", e.ID)", new: "subscription, \"event\", e.ID, strconv.Itoa(attempt))",
	}),
	inSubscribing(mutant{
		name: "subscribing: the message of a call that hangs is delivered again", file: "subscriptions/engine/push.go",
		old: "			q.Extend(l.Offset, l.Lease, now, now.Add(2*timeout))\n", new: "			_ = q\n			_ = now\n",
	}),
}

func inSubscribing(m mutant) mutant {
	m.pkg, m.run = "./test/sim/subscribing", "TestSeeds"
	return m
}
