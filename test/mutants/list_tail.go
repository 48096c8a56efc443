package main

// tailMutants break the tail reader and its order.
var tailMutants = []mutant{
	unit("TestTail_FindsLateRowsInSlices", mutant{
		name: "a wide reading in slices does not reach back to the one before", file: "relay/internal/capture/tail_group.go",
		old: "newWideReading(g.wide-t.cfg.TailOverlap.Microseconds(), after", new: "newWideReading(g.wide, after",
	}),
	unit("TestTail_FindsLateRowsInSlices", mutant{
		name: "every other slice of a wide reading is skipped", file: "relay/internal/capture/tail_slices.go",
		old: "	if w.from = until; ", new: "	if w.from = until + w.step; ",
	}),
	unit("TestTail_ReadsFarBackInSlices", mutant{
		name: "hints wait for a wide reading of many rows", file: "relay/internal/capture/tail_group.go",
		old: "g.wideRows > tailSliceRows {", new: "g.wideRows > 1<<30 {",
	}),
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
		old: "		if l.First > 0 {", new: "		if l.First < 0 {",
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
	unit("TestShare_IsAnEqualPart", mutant{
		name: "a shard has the room of its whole process", file: "relay/internal/dedup/share.go",
		old: "max(whole/max(p.Shards(), 1), least)",
		new: "max(whole, least)",
	}),
	unit("TestShare_IsAnEqualPart", mutant{
		name: "a shard has less room than it needs", file: "relay/internal/dedup/share.go",
		old: "max(whole/max(p.Shards(), 1), least)",
		new: "max(whole/max(p.Shards(), 1), 1)",
	}),
	unit("TestProcess_DividesItsLimitsAmongThoseThatRun", mutant{
		name: "a shard that ends keeps its share", file: "relay/relay.go",
		old: "	defer r.cfg.place().leave()\n",
		new: "",
	}),
	unit("TestProcess_DividesItsLimitsAmongThoseThatRun", mutant{
		name: "a shard that begins takes no share", file: "relay/relay.go",
		old: "	r.cfg.place().join()\n",
		new: "",
	}),
	unit("TestProcess_DividesItsLimitsAmongThoseThatRun", mutant{
		name: "a shard without a part of the table takes a share", file: "relay/relay.go",
		old: "	r.cfg.place().leave()\n	r.log.Info(\"shard idle",
		new: "	r.log.Info(\"shard idle",
	}),
	unit("TestShare_ReadBack", mutant{
		name: "a shard that has left holds room in its process", file: "relay/internal/dedup/share.go",
		old: "	if s.in { // a status",
		new: "	if true { // a status",
	}),
	unit("TestShare_ReadBack", mutant{
		name: "a read-back repeats what exceeds the share although the process has room", file: "relay/internal/dedup/share.go",
		old: "max(s.Events()/4*3, min(s.events/4*3, readBackRoom*s.events-others))",
		new: "max(s.Events()/4*3, -others)",
	}),
	unit("TestReadBacks_BoundedByTheProcess", mutant{
		name: "a read-back remembers events whatever the other shards of the process hold", file: "relay/internal/dedup/share.go",
		old: "readBackRoom*s.events-others))",
		new: "s.events-0*others))",
	}),
	unit("TestReadBacks_BoundedByTheProcess", mutant{
		name: "what a read-back remembers is not counted for the process", file: "relay/internal/readback/readback.go",
		old: "r.cfg.Share.Hold(int(min(total, most)))",
		new: "_ = most",
	}),
	unit("TestReadBacks_BoundedByTheProcess", mutant{
		name: "what shards read back together is not counted for the process", file: "relay/internal/readback/group.go",
		old: "	w.r.cfg.Share.Hold(n)\n",
		new: "",
	}),
	unit("TestPublisher_ItsShareBecomesSmaller", mutant{
		name: "the sweep reader gives no room back to the process", file: "relay/internal/publish/offer.go",
		old: "	p.hold()\n",
		new: "",
	}),
	unit("TestPublisher_ItsShareBecomesSmaller", mutant{
		name: "the tail reader fills more than the share of its shard", file: "relay/internal/publish/lookup.go",
		old: "	return events >= limit\n",
		new: "	return events >= 2*limit\n",
	}),
	unit("TestProcess_LimitsTheQueriesOfItsTailReaders", mutant{
		name: "many shards have fewer queries of the tail reader than they need", file: "relay/shard.go",
		old: "max(x.queries, float64(leastQueries*x.process.pool.Shards()))",
		new: "x.queries",
	}),
	unit("TestConfig_LeavesAShardItsShare", mutant{
		name: "a process divides limits that are divided by the number of shards", file: "relay/shard.go",
		old: "	if c.Process != nil {\n		return\n	}\n	part",
		new: "	part",
	}),
	{
		name: "each shard of an instance has the limits of the whole instance", file: "internal/app/sharing.go", pkg: "./cmd/outbox", run: "^TestSharing_InstancesShareATable$",
		old: "confs[i].Fence, confs[i].Process = h, &s.tables[i]",
		new: "confs[i].Fence, confs[i].Process = h, new(relay.Process)",
	},
}
