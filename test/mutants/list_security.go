package main

// securityMutants weaken what protects the APIs.
var securityMutants = []mutant{
	{
		name: "access: a server without tokens answers to any host", file: "internal/access/browsers.go", pkg: "./internal/access", run: "Browsers",
		old: "b.Hosts != nil && !b.Hosts.Allow(r.Host)", new: "false",
	},
	{
		name: "orders: the host list is not checked without tokens", file: "orders/server.go", pkg: "./messages", run: "NoPageElsewhere",
		old: "	if cfg.Gate == nil {\n		browsers.Hosts", new: "	if cfg.Gate != nil {\n		browsers.Hosts",
	},
	{
		name: "access: the names of the host list are prefixes", file: "internal/access/hosts.go", pkg: "./internal/access", run: "NewHosts",
		old: `host == "localhost" ||`, new: `strings.HasPrefix(host, "localhost") ||`,
	},
	{
		name: "messages: a pattern allows the topics of the relay", file: "messages/message.go", pkg: "./messages", run: "Config_Topics",
		old: "slices.ContainsFunc(c.Topics, matches) && !slices.ContainsFunc(c.Reserved, matches)", new: "slices.ContainsFunc(c.Topics, matches)",
	},
	{
		name: "messages: the order API reserves no topics", file: "cmd/outbox/messages.go", pkg: "./cmd/outbox", run: "ReservedTopics",
		old: "	out := []string{share.ControlTopic(\"*\")}", new: "	out := []string{\"none\"}",
	},
}
