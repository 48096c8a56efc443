package main

// securityMutants weaken what protects the APIs.
var securityMutants = []mutant{
	{
		name: "apiserver: the API serves metrics too", file: "internal/apiserver/apiserver.go", pkg: "./cmd/outbox", run: "AdminListener_MetricsAreNowhereElse/orders",
		old: `	httpapi.Probes(mux, s.Readiness)`, new: `	httpapi.Probes(mux, s.Readiness); mux.HandleFunc("GET /metrics", func(http.ResponseWriter, *http.Request) {})`,
	},
	{
		name: "admin: the API serves metrics too", file: "internal/admin/server.go", pkg: "./cmd/outbox", run: "AdminListener_MetricsAreNowhereElse/admin",
		old: `	httpapi.Probes(mux, s.Readiness)`, new: `	httpapi.Probes(mux, s.Readiness); mux.HandleFunc("GET /metrics", func(http.ResponseWriter, *http.Request) {})`,
	},
	{
		name: "admin: requests have no spans", file: "internal/admin/server.go", pkg: "./internal/admin", run: "TestServer_RequestsHaveSpans",
		old: "httpapi.Traced(s.cfg.Tracer), ", new: "",
	},
	{
		name: "ops listener: any host is allowed", file: "internal/app/admin_server.go", pkg: "./cmd/outbox", run: "AdminListener_MetricsAreNowhereElse/relay",
		old: "access.Browsers{Hosts: hosts,", new: "access.Browsers{Hosts: map[bool]*access.Hosts{true: hosts}[false],",
	},
	{
		name: "access: a server without tokens answers to any host", file: "internal/access/browsers.go", pkg: "./internal/access", run: "Browsers",
		old: "b.Hosts != nil && !b.Hosts.Allow(r.Host)", new: "false",
	},
	{
		name: "apiserver: the host list is not checked without tokens", file: "internal/apiserver/apiserver.go", pkg: "./messages", run: "NoPageElsewhere",
		old: "	if cfg.Gate == nil {\n		browsers.Hosts", new: "	if cfg.Gate != nil {\n		browsers.Hosts",
	},
	{
		name: "api: a command sends its token unencrypted", file: "internal/app/api.go", pkg: "./cmd/outbox", run: "TestAPI_ErrorsNameTheFix",
		old: `!access.Private(s.url)`, new: `false`,
	},
	{
		name: "api: a command follows redirects with its token", file: "internal/admin/adminclient/client.go", pkg: "./internal/admin/adminclient", run: "TestClient_Errors",
		old: "return http.ErrUseLastResponse", new: "return nil",
	},
	{
		name: "api: an operator changes the number of shards", file: "internal/admin/reshard.go", pkg: "./internal/admin", run: "Access_EachRole|Reshard_RefusesRole",
		old: "ep.describeChange(access.Admin, ", new: "ep.describeChange(access.Operator, ",
	},
	{
		name: "api: the shards of another relay are changed", file: "internal/admin/reshard.go", pkg: "./internal/admin", run: "Reshard_RefusesRole",
		old: "case in.Name != ep.resharder.Relay():", new: "case in.Name == \"\":",
	},
	{
		name: "messages: callers receive the clients of others", file: "messages/http.go", pkg: "./messages", run: "Many_List",
		old: "	a.registerKept(h, false)", new: "	a.registerKept(h, true)",
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
		name: "messages: the API reserves no topics", file: "internal/app/messages.go", pkg: "./internal/app", run: "ReservedTopics",
		old: `share.ControlTopic("*")`, new: `share.ControlTopic("none")`,
	},
	{
		name: "access: one principal has all places", file: "internal/access/places.go", pkg: "./internal/access", run: "Places_OneHolder",
		old: `(holder == "" || p.mu.by[holder] < p.each)`, new: "true",
	},
	{
		name: "stream: a subscription counts for no principal", file: "internal/stream/subscription.go", pkg: "./internal/stream", run: "PrincipalHasHalf",
		old: `access.Holder(ctx, "")`, new: `access.Holder(context.Background(), "")`,
	},
	{
		name: "internal/admin: an expensive read counts for no principal", file: "internal/admin/operations.go", pkg: "./internal/admin", run: "PrincipalHasHalf",
		old: `o.heavy.Wait(ctx, access.Holder(ctx, ""))`, new: `o.heavy.Wait(ctx, "")`,
	},
	{
		name: "internal/admin: an aborted request is reported as an unavailable database", file: "internal/admin/problem.go", pkg: "./internal/admin", run: "AbortedRequest",
		old: "case httpapi.HungUp(ctx, err):", new: "case httpapi.HungUp(ctx, nil):",
	},
	{
		name: "stream: an aborted request is reported as an unavailable broker", file: "internal/stream/http.go", pkg: "./internal/stream", run: "AbortedRequest",
		old: "if httpapi.HungUp(ctx, err) {", new: "if httpapi.HungUp(ctx, nil) {",
	},
	{
		name: "apiserver: reading needs more than a viewer", file: "internal/apiserver/security.go", pkg: "./messages", run: "DeclaresItsSecurity",
		old: "if method == http.MethodGet {", new: "if method == http.MethodHead {",
	},
	{
		name: "httpapi: a refusal waits for the body", file: "internal/httpapi/deadline.go", pkg: "./internal/httpapi", run: "RefusesBefore",
		old: "		next.ServeHTTP(w, &timed)\n", new: "		*r = timed\n		next.ServeHTTP(w, r)\n",
	},
	{
		name: "access: each wrong JWT has the keys requested", file: "internal/access/oidc_keys.go", pkg: "./internal/access", run: "WrongJWTs",
		old: "k.clock.Now().Sub(at) < keysPause", new: "false",
	},
	{
		name: "access: a subject may equal an address", file: "internal/access/oidc.go", pkg: "./internal/access", run: "LetsInByJWT",
		old: `return "sub:" + subject, nil`, new: "return subject, nil",
	},
	{
		name: "access: a subject has any characters", file: "internal/access/oidc.go", pkg: "./internal/access", run: "LetsInByJWT",
		old: "return !unicode.IsPrint(r)", new: "return !unicode.IsPrint(r) && s == \"\"",
	},
}
