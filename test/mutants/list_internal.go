package main

// internalMutants break shared packages.
var internalMutants = []mutant{
	{
		name: "lease: work continues when the lease may have expired", file: "internal/lease/lease.go", pkg: "./internal/lease", run: "Hold",
		old: "case err == nil || time.Since(last) > l.TTL*3/4:", new: "case err == nil || time.Since(last) > time.Hour:",
	},
	{
		name: "lease: one is taken from its owner", file: "internal/lease/lease.go", pkg: "./internal/lease", run: "OneOwner",
		old: "l.Apply(ctx, stmt+\"null\", seconds, l.Owner, l.Name)", new: "true, error(nil)",
	},
	{
		name: "back-off: a wait has no limit", file: "internal/retry/retry.go", pkg: "./internal/retry", run: "Backoff",
		old: "d = min(d, hi)", new: "d = max(d, lo)",
	},
	{
		name: "back-off: a wait has no jitter", file: "internal/retry/retry.go", pkg: "./internal/retry", run: "Backoff",
		old: "return d - rand.N(d/2+1)", new: "return d - 0*rand.N(d/2+1)",
	},
	{
		name: "settings: flags do not win over the environment", file: "internal/settings/load.go", pkg: "./internal/settings", run: "FlagOverEnvironment",
		old: "if flag == nil || !flag.Changed {", new: "if flag == nil || flag.Changed {",
	},
	{
		name: "settings: an unknown key is ignored", file: "internal/settings/file.go", pkg: "./internal/settings", run: "EveryProblem",
		old: "r.bad(key, \"unknown key %q%s\", at, r.fields.suggest(at))", new: "_ = key",
	},
	{
		name: "settings: an unknown key of an entry is ignored", file: "internal/settings/file.go", pkg: "./internal/settings", run: "EveryProblem",
		old: "\t\tcase !ok:", new: "\t\tcase !ok && key == nil:",
	},
	{
		name: "settings: errors of the relay have the names of its fields", file: "internal/app/relay_fields.go", pkg: "./internal/app", run: "RelayValues",
		old: "e.Field); ok {", new: "e.Field); !ok {",
	},
	{
		name: "settings: a secret in a file is its path", file: "internal/settings/reveal.go", pkg: "./internal/app", run: "Secrets_EachMay",
		old: "f.value.SetString(text)", new: "_ = text",
	},
	{
		name: "settings: a name before a reference is lost", file: "internal/settings/reveal.go", pkg: "./internal/app", run: "Secrets_EachMay",
		old: "out = append(out, name+text)", new: "out = append(out, text)",
	},
	{
		name: "settings: a command needs the secrets of others", file: "internal/settings/reveal.go", pkg: "./internal/app", run: "Secrets_OfOther",
		old: "(len(sections) == 0 || ", new: "(len(sections) >= 0 || ",
	},
	{
		name: "settings: an archive of another build is accepted", file: "dlq/archive/bucket.go", pkg: "./internal/app", run: "Archive_OfAnother",
		old: "if open := schemes.open[scheme]; open != nil {", new: "if open := schemes.open[scheme]; scheme != \"\" {",
	},
	{
		name: "contexts: a context precedes --config", file: "internal/app/contexts.go", pkg: "./internal/app", run: "Context_Names",
		old: "case path != \"\":\n\t\treturn path, false, nil", new: "case path != \"\" && flags == nil:\n\t\treturn path, false, nil",
	},
	{
		name: "contexts: readable secrets are not reported", file: "internal/app/contexts.go", pkg: "./internal/app", run: "Context_Warns",
		old: "info.Mode().Perm()&0o044 == 0", new: "info.Mode().Perm()&0o004 == 0",
	},
	{
		name: "audit: changes at the subscriptions API are not recorded", file: "internal/app/subscriptions.go", pkg: "./cmd/outbox", run: "Subscriptions_ChangesAreAudited",
		old: "Audit: trail.Audited,", new: "",
	},
	{
		name: "audit: a repair is not recorded", file: "cmd/outbox/verify_repair.go", pkg: "./cmd/outbox", run: "Verify_RepairIsAudited",
		old: "if len(missing) == 0 {", new: "if len(missing) >= 0 {",
	},
	{
		name: "audit: a requested scan is not recorded", file: "internal/app/backfill.go", pkg: "./cmd/outbox", run: "Relay_BackfillIsAudited",
		old: "if b.From.IsZero() {", new: "if !b.From.IsZero() {",
	},
	{
		name: "cli: NO_COLOR has no effect", file: "internal/cli/output.go", pkg: "./internal/cli", run: "Table_NoColour",
		old: "os.Getenv(\"NO_COLOR\") == \"\"", new: "os.Getenv(\"NO_COLOR\") != \"x\"",
	},
	{
		name: "cli: dlq list has closed dead letters", file: "cmd/outbox/dlq_list.go", pkg: "./cmd/outbox", run: "DLQ_ListOmitsClosed",
		old: "f.statuses = []string{statusOpen}", new: "f.statuses = nil",
	},
	{
		name: "settings: shards are given away while they are drained", file: "internal/app/sharing.go", pkg: "./internal/app", run: "RebalanceTimeout",
		old: "max(share.DefaultRebalanceTimeout, ", new: "max(0, ",
	},
	{
		name: "settings: relay.shards 0 is accepted", file: "internal/app/sharing.go", pkg: "./cmd/outbox", run: "TestConfig_Sharing",
		old: "if r.Shards < 1 ||", new: "if r.Shards < 0 ||",
	},
	{
		name: "settings: dead letters cannot be turned off", file: "internal/app/tables.go", pkg: "./internal/app", run: "RelayConfig_Off",
		old: "if !c.Relay.WriteDeadLetters {", new: "if c.Relay.Name == \"\" {",
	},
	{
		name: "settings: off is the default", file: "internal/settings/parse.go", pkg: "./internal/settings", run: "FlagOverEnvironment",
		old: "\t\tv.Set(n)\n\t\treturn nil\n\t}\n\tif err := parseScalar", new: "\t\t_ = n\n\t\treturn nil\n\t}\n\tif err := parseScalar",
	},
	{
		name: "cgroup: page cache counts as used memory", file: "internal/cgroup/cgroup.go", pkg: "./internal/cgroup", run: "IsAShare",
		old: "return used - reclaimable, err", new: "return used + 0*reclaimable, err",
	},
	{
		name: "cgroup: a limit larger than the machine is measured", file: "internal/cgroup/cgroup.go", pkg: "./internal/cgroup", run: "IsAShare",
		old: "limit > 0 && limit < most {", new: "limit > 0 {",
	},
	{
		name: "an empty parameter is one that was left out", file: "internal/params/params.go", pkg: "./internal/params", run: "Judge",
		old: "case values[0] == \"\" && !mayBeEmpty(p.Schema):", new: "case false:",
	},
	{
		name: "a parameter that is misspelt is ignored", file: "internal/params/params.go", pkg: "./internal/params", run: "Judge",
		old: "problem = unknown(known)", new: "continue",
	},
	{
		name: "of a parameter that is given twice the first is taken", file: "internal/params/params.go", pkg: "./internal/params", run: "Judge",
		old: "case len(values) > 1 && !repeats(p):", new: "case false:",
	},
	{
		name: "the failure of a server is not reported", file: "internal/daemon/admin.go", pkg: "./internal/daemon", run: "EndsBoundWork",
		old: "return errors.Join(err, s.err)", new: "return err",
	},
	{
		name: "no database receives a client certificate", file: "internal/app/clients.go", pkg: "./internal/app", run: "TestScylla_TLS",
		old: "conf.GetClientCertificate = pair.Client", new: "_ = pair",
	},
	{
		name: "a certificate is read once", file: "internal/certificates/certificates.go", pkg: "./internal/certificates", run: "Pair_Client",
		old: "if err != nil || seen == p.mu.seen {", new: "if err != nil || seen != p.mu.seen || seen == p.mu.seen {",
	},
	{
		name: "internal/admin: an error repeats the sent value", file: "internal/httpapi/discreet.go", pkg: "./internal/admin", run: "ErrorsDoNotRepeatValues",
		old: "e.Value, e.Location = nil, jsonform.Plain(e.Location)", new: "e.Location = jsonform.Plain(e.Location)",
	},
	{
		name: "an error repeats the name of a member", file: "internal/jsonform/fields.go", pkg: "./messages", run: "RepeatNothing",
		old: "return path[:end] + \"…\"", new: "return path",
	},
	{
		name: "a truncated body is an internal error", file: "internal/httpapi/body.go", pkg: "./orders", run: "BodiesThatDoNotArrive",
		old: "r.body.broken = !ok || !slow.Timeout()", new: "r.body.broken = ok && slow.Timeout()",
	},
	{
		name: "a body that is too long is read before it is rejected", file: "internal/httpapi/body.go", pkg: "./orders", run: "BodiesThatDoNotArrive",
		old: "r.ContentLength > most {", new: "r.ContentLength > 1<<40 {",
	},
	{
		name: "a server refuses connections before its load balancer notices", file: "internal/httpapi/serve.go", pkg: "./internal/httpapi", run: "WhileItLeaves",
		old: "if s.DrainDelay <= 0 {", new: "if true {",
	},
	{
		name: "a stopping server keeps idle connections open", file: "internal/httpapi/serve.go", pkg: "./internal/httpapi", run: "WhileItLeaves",
		old: "if ctx.Err() != nil {", new: "if false {",
	},
	{
		name: "a handover cuts off the clients that are connected", file: "internal/httpapi/reception.go", pkg: "./internal/httpapi", run: "Reception",
		old: "case <-time.After(receptionDrain):", new: "case <-time.After(0):",
	},
	{
		name: "a stopped server keeps its inherited listener", file: "internal/httpapi/reception.go", pkg: "./internal/httpapi", run: "Reception",
		old: "if d.last {", new: "if false {",
	},
	{
		name: "a second signal waits for the drain", file: "internal/daemon/signals.go", pkg: "./internal/daemon", run: "SecondSignal",
		old: "os.Exit(exitInterrupted)", new: "_ = exitInterrupted; _ = os.Exit",
	},
	{
		name: "any client can set the client address", file: "internal/access/proxies.go", pkg: "./internal/access", run: "ClientAddress",
		old: "if err != nil || !p.trusts(clean(peer.Addr())) {", new: "if err != nil {",
	},
	{
		name: "a client behind a proxy can set its client address", file: "internal/access/proxies.go", pkg: "./internal/access", run: "TestProxies_ClientAddress",
		old: "\t\tif !p.trusts(at) {\n\t\t\treturn at", new: "\t\tif false {\n\t\t\treturn at",
	},
	{
		name: "a client that does not read the response keeps the connection", file: "internal/httpapi/serve.go", pkg: "./internal/httpapi", run: "DoesNotRead",
		old: "s.WriteTimeout,\n", new: "0 * s.WriteTimeout,\n",
	},
	{
		name: "an open breaker sends requests to the database", file: "internal/circuit/circuit.go", pkg: "./messages", run: "Breaker",
		old: "c.ConsecutiveFailures >= uint32(cfg.Failures) ||", new: "c.ConsecutiveFailures >= 100*uint32(cfg.Failures) ||",
	},
	{
		name: "a half-open breaker refuses calls beside the probes", file: "internal/guard/breaker.go", pkg: "./internal/guard", run: "HalfOpen",
		old: "\t\td, err = b.awaitProbes(ctx)\n", new: "",
	},
	{
		name: "access: a role may do what the next one may", file: "internal/access/role.go", pkg: "./internal/access", run: ".",
		old: "have >= need", new: "have+1 >= need",
	},
	{
		name: "access: wrong tokens from an address are not limited", file: "internal/access/gate.go", pkg: "./internal/access", run: ".",
		old: "	if wait, ok := g.failures.take(from); !ok {", new: "	if wait, ok := g.failures.take(secret); !ok {",
	},
	{
		name: "access: an operation without a role is open to every principal", file: "internal/access/huma.go", pkg: "./internal/access", run: ".",
		old: "			needed = Admin\n", new: "			needed = Viewer\n",
	},
	{
		name: "a connection in memory is to any shard", file: "devkit/scyllafake/listen.go", pkg: "./devkit/scyllafake", run: "ReachesTheShard",
		old: "ok && at.Port == s.shardAwarePort {", new: "ok && at.Port == s.shardAwarePort && s.tcp != nil {",
	},
	{
		name: "dev ends with an error after Ctrl-C", file: "devkit/cmd/outbox-dev/run.go", pkg: "./test/e2e", run: "EndsWithZeroAfterCtrlC",
		old: "	fmt.Fprintln(d.errOut, \"\\nstopping; data is kept in \"+d.dirName())\n	return nil", new: "	fmt.Fprintln(d.errOut, \"\\nstopping; data is kept in \"+d.dirName())\n	return ctx.Err()",
	},
	{
		name: "dev does not end on a full disk", file: "devkit/engines/engines.go", pkg: "./test/e2e", run: "EndsOnAFullDisk",
		old: "Failed: e.failed,", new: "Failed: nil,",
	},
}
