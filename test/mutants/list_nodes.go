package main

// nodeMutants break what happens while nodes of the database are away or silent.
var nodeMutants = []mutant{
	{
		name: "contact points: a host without a port has none", file: "cmd/outbox/clients.go", pkg: "./cmd/outbox", run: "BareHostAndLateDatabase",
		old: "return hosts, cmp.Or(port, defaultPort), nil", new: "return hosts, cmp.Or(port, 0), nil",
	},
}
