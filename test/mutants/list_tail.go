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
	unit("TestTail_ReportsItsLimitBeforeItStops", mutant{
		name: "the tail's limit is reported when it has stopped", file: "relay/tail_near.go",
		old: "nearFullPercent  = 80", new: "nearFullPercent  = 100",
	}),
	unit("TestTail_ReportsItsLimitBeforeItStops", mutant{
		name: "the tail's limit is reported for ever", file: "relay/tail_near.go",
		old: "		percent = nearClearPercent\n", new: "		percent = -1\n",
	}),
	{
		name: "rows that a page reads and discards are not counted", file: "internal/scyllafake/engine/readcost.go", pkg: "./internal/scyllafake/engine", run: "ReadCosts",
		old: "		c.read.Add(n)", new: "		c.read.Add(0 * n)",
	},
}
