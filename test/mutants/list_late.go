package main

// lateMutants break what the relay does about rows that become visible late, and about
// numbers that are missing.
var lateMutants = []mutant{
	unit("TestLate_FirstEvent", mutant{
		name: "a row that became visible late counts as published", file: "relay/predecessors.go",
		old: "case f.written > max(began, min(p.memory.horizon, remembered)):",
		new: "case false:",
	}),
	unit("TestLate_FirstEvent", mutant{
		name: "a new generation makes the rows before it count as published", file: "relay/streams.go",
		old: "	var latest int64\n",
		new: "	latest := gen.UnixMicro()\n",
	}),
	unit("TestTailGap_Begin", mutant{
		name: "an id that is forgotten proves that its event is not published", file: "relay/predecessors.go",
		old: "max(began, min(p.memory.horizon, remembered))",
		new: "began",
	}),
}
