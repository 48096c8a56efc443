package main

// tailMutants break how the tail reads, and what it keeps the order by.
var tailMutants = []mutant{
	unit("TestTailOrder_WritesThatTakeLong", mutant{
		name: "a held row goes after any reading", file: "relay/tail_group.go",
		old: "			after = g.order.back(only, after, c)\n",
		new: "",
	}),
	unit("TestTailOrder_WritesThatTakeLong", mutant{
		name: "readings of streams with few rows do not reach back by the window", file: "relay/tail_order.go",
		old: "	return max(window, least).Microseconds()",
		new: "	return least.Microseconds()",
	}),
	unit("TestPublisher_CountsLateEventsAcrossARestart", mutant{
		name: "an event that is late after a restart is not counted", file: "relay/unnumbered.go",
		old: "	if l.next > 0 {\n		p.late(o, o.written-l.next)",
		new: "	if l.next < 0 {\n		p.late(o, o.written-l.next)",
	}),
	{
		name: "rows that a page reads and discards are not counted", file: "internal/scyllafake/engine/readcost.go", pkg: "./internal/scyllafake/engine", run: "ReadCosts",
		old: "		c.read.Add(n)", new: "		c.read.Add(0 * n)",
	},
}
