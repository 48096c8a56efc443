package main

// nodeMutants break what happens while nodes of the database are away or silent.
var nodeMutants = []mutant{
	{
		name: "contact points: a host without a port has none", file: "internal/app/clients.go", pkg: "./cmd/outbox", run: "BareHostAndLateDatabase",
		old: "return hosts, cmp.Or(port, defaultPort), nil", new: "return hosts, cmp.Or(port, 0), nil",
	},
	{
		name: "full disk: a store that failed is closed in order", file: "devkit/scyllafake/store/store.go", pkg: "./devkit/scyllafake/store", run: "FullDisk",
		old: "err := s.guarded(s.db.Close)", new: "err := s.db.Close()",
	},
	{
		name: "full disk: nobody is notified", file: "devkit/scyllafake/store/failure.go", pkg: "./devkit/scyllafake", run: "FullDisk",
		old: "			go s.failure.notify(s.failure.err)", new: "			_ = s.failure.notify",
	},
	{
		name: "full disk: a refused write is a panic", file: "devkit/scyllafake/store/failure.go", pkg: "./devkit/scyllafake/store", run: "Guarded_Panic",
		old: "p != nil && s.Err() == nil {", new: "p != nil {",
	},
	{
		name: "full disk: a write waits for a lock that nobody releases", file: "devkit/scyllafake/store/failure.go", pkg: "./devkit/scyllafake/store", run: "FullDisk",
		old: "	case <-s.failure.failed:\n		return s.failure.err\n	}\n}\n", new: "	case <-chan struct{}(nil):\n		return s.failure.err\n	}\n}\n",
	},
	{
		name: "nodes: a node that left the cluster is reported as down", file: "internal/sessions/conn.go", pkg: "./internal/sessions", run: "TestPolicy_NodeLeaves",
		old: "	p.nodes.of(h).leave(true)\n", new: "",
	},
	{
		name: "nodes: a silent node is kept", file: "internal/sessions/nodes.go", pkg: "./test/cluster", run: "OneNodeAway/frozen$",
		old: "		n.cutOff(err)\n		return\n", new: "		wait = reprobe\n",
	},
	{
		name: "nodes: a lost connection is a failure of the database", file: "internal/guard/breaker.go", pkg: "./internal/guard", run: "LostConnections",
		old: " || cqlcode.Lost(err)) {", new: ") {",
	},
	{
		name: "nodes: commands observe none", file: "internal/app/clients.go", pkg: "./cmd/outbox", run: "SessionsAreObserved",
		old: "	nodes.Watch(cluster)\n", new: "	_ = nodes\n",
	},
	{
		name: "nodes: doctor reports no node", file: "internal/doctor/doctor.go", pkg: "./cmd/outbox", run: "NamesTheNodeThatIsAway",
		old: "	if down := c.Scylla.Nodes.Probe(ctx); len(down) > 0 {", new: "	if down := c.Scylla.Nodes.Probe(ctx); false {",
	},
}
