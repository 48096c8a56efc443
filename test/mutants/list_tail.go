package main

// tailMutants break the tail reader and its order.
var tailMutants = []mutant{
	unit("TestTailOrder_AWriteOutlastsItsGeneration", mutant{
		name: "rows of a new generation do not wait for late rows of the old one", file: "relay/internal/capture/tail_order.go",
		old: "at.Before(began)", new: "at.After(began)",
	}),
	unit("TestTailOrder_AWriteOutlastsItsGeneration", mutant{
		name: "readings of a generation that has ended do not reach back by the window", file: "relay/internal/capture/tail_group.go",
		old: "after = min(after, now-c.depth-", new: "after = min(after, now-0*c.depth-",
	}),
	unit("TestTailOrder_WritesThatTakeLong", mutant{
		name: "a held row goes after any reading", file: "relay/internal/capture/tail_group.go",
		old: "			after = g.order.back(only, after, c)\n",
		new: "",
	}),
	unit("TestTailOrder_WritesThatTakeLong", mutant{
		name: "readings of streams with few rows do not reach back by the window", file: "relay/internal/capture/tail_order.go",
		old: "	return max(window, least).Microseconds()",
		new: "	return least.Microseconds()",
	}),
	unit("TestPublisher_CountsLateEventsAcrossARestart", mutant{
		name: "an event that is late after a restart is not counted", file: "relay/internal/publish/unnumbered.go",
		old: "	if l.Next > 0 {\n		late = o.Written - l.Next",
		new: "	if l.Next < 0 {\n		late = o.Written - l.Next",
	}),
	unit("TestTail_ReportsItsLimitBeforeItStops", mutant{
		name: "the tail's limit is reported after the tail reader has stopped", file: "relay/internal/dedup/near.go",
		old: "nearFullPercent  = 80", new: "nearFullPercent  = 100",
	}),
	unit("TestTail_ReportsItsLimitBeforeItStops", mutant{
		name: "the tail's limit is reported forever", file: "relay/internal/dedup/near.go",
		old: "		percent = nearClearPercent\n", new: "		percent = -1\n",
	}),
	{
		name: "rows that a page reads and discards are not counted", file: "devkit/scyllafake/engine/readcost.go", pkg: "./devkit/scyllafake/engine", run: "ReadCosts",
		old: "		c.read.Add(n)", new: "		c.read.Add(0 * n)",
	},
	unit("TestTail_ReadsEveryRowWhereverAPageEnds", mutant{
		name: "streams that do not appear in a page count as read", file: "relay/internal/capture/tail_read.go",
		old: "\t\trest = slices.Concat(q.left(g.generation, part), rest)",
		new: "\t\t_ = q.left(g.generation, part)",
	}),
	unit("TestTail_ReadsEveryRowWhereverAPageEnds", mutant{
		name: "the stream that a page cuts counts as read", file: "relay/internal/capture/tail_read.go",
		old: "\t\tcase i == cut:",
		new: "\t\tcase i == cut+len(q.streams):",
	}),
	unit("TestTail_ReadsEveryRowWhereverAPageEnds", mutant{
		name: "streams that a page holds whole are read again", file: "relay/internal/capture/tail_read.go",
		old: "\t\tcase i < 0:",
		new: "\t\tcase i != cut:",
	}),
	unit("TestTail_ReadsEveryRowWhereverAPageEnds", mutant{
		name: "a query of the tail does not learn how few rows a page holds", file: "relay/internal/capture/tail_read.go",
		old: "\t\tpage = min(page, q.rows)",
		new: "\t\tpage = max(page, q.rows)",
	}),
	unit("TestTail_ReadsABacklogForLittleMoreThanItReturns", mutant{
		name: "a group reads its backlog in one query", file: "relay/internal/capture/tail_read.go",
		old: "\treturn max(1, min(k*tailWider, k*page*3/4/max(1, rows), GroupStreams))",
		new: "\treturn GroupStreams",
	}),
	unit("TestTail_ReadsABacklogForLittleMoreThanItReturns", mutant{
		name: "a group that was not read for long begins with all its streams", file: "relay/internal/capture/tail_group.go",
		old: "\tif now-last > tailBehind.Microseconds() {",
		new: "\tif now < last {",
	}),
	unit("TestTail_ReadsABacklogForLittleMoreThanItReturns", mutant{
		name: "a group without rows does not read all its streams in one query", file: "relay/internal/capture/tail_group.go",
		old: "\t\t*width = next",
		new: "\t\t_ = next",
	}),
	unit("TestTail_ReadsFarBackInNarrowQueries", mutant{
		name: "readings that go far back are as wide as the others", file: "relay/internal/capture/tail_group.go",
		old: "\t\twidth = &g.wideWidth",
		new: "\t\t_ = g.wideWidth",
	}),
	unit("TestTailOrder_TheIndexIsFull", mutant{
		name: "without numbers the tail reader leaves a row to the sweep reader and passes the next one on", file: "relay/internal/publish/offer.go",
		old: "	if e.Sequence == 0 {\n",
		new: "	if e.Sequence == 0 {\n		if o.By == ByTail && o.Written > 0 && o.Written <= p.ids.horizon(e.ID) {\n			return Left, nil\n		}\n",
	}),
}
