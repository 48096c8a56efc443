package main

// serviceMutants break orders, messages, their schedule and the client.
var serviceMutants = []mutant{
	{
		name: "topics: records of transactions that are not committed are listed", file: "internal/admin/topics/topics.go", pkg: "./internal/admin/topics", run: "CommittedOnly",
		old: "	kgo.FetchIsolationLevel(kgo.ReadCommitted()), ", new: "	",
	},
	{
		name: "topics: internal topics can be read", file: "internal/admin/topics/topics.go", pkg: "./internal/admin/topics", run: "AllowedTopics|OtherTopics",
		old: "		return internal\n", new: "		return internal && false\n",
	},
	{
		name: "topics: any number of reads run at a time", file: "internal/admin/topics/topics.go", pkg: "./internal/admin/topics", run: "ConcurrentReads",
		old: "access.NewPlaces(maxReads)", new: "access.NewPlaces(1000 * maxReads)",
	},
	{
		name: "topics: a live tail omits what it skips", file: "internal/admin/topics/records.go", pkg: "./internal/admin/topics", run: "Records_Follow",
		old: "		out.Skipped = left\n", new: "",
	},
	{
		name: "a migration adds the components that a keyspace does not have", file: "schema/migrate.go", pkg: "./schema", run: "Migrate_Components",
		old: "case !ok && !slices.Contains(wanted, mig.component):", new: "case !ok && false:",
	},
	{
		name: "the core component is recorded before the others", file: "schema/migrate.go", pkg: "./schema", run: "InterruptedChoice",
		old: "range slices.Backward(wanted) {", new: "range slices.All(wanted) {",
	},
	{
		name: "a command does not check the components of its keyspace", file: "internal/app/components.go", pkg: "./cmd/outbox", run: "Components_EachCommand/(dlq_list|scheduled_list)",
		old: "	if len(missing) == 0 {", new: "	if len(missing) >= 0 {",
	},
	{
		name: "a relay runs the scheduler without its tables", file: "internal/app/relay.go", pkg: "./cmd/outbox", run: "Components_RelayWithCore",
		old: "	if c.Scylla.Has(schema.Schedule) {", new: "	if true {",
	},
	{
		name: "doctor: another number of shards than the database has passes", file: "internal/doctor/sharing.go", pkg: "./cmd/outbox", run: "AnotherNumberOfShards",
		old: "case n != c.Relay.Shards:", new: "case n < 0:",
	},
	{
		name: "/readyz of the admin API names no silent node", file: "internal/admin/server.go", pkg: "./internal/admin", run: "ReadinessNamesNodes",
		old: "ready.NodesDown = s.cfg.Nodes.Down()", new: "_ = s.cfg.Nodes.Down()",
	},
	{
		name: "each outbox admin verifies", file: "internal/app/verify_always.go", pkg: "./cmd/outbox", run: "Verifier_OneOfSeveral",
		old: "if conf.Duty, err =", new: "if _, err =",
	},
	{
		name: "a range with events that are not confirmed counts as verified", file: "internal/verify/verifier_state.go", pkg: "./internal/verify", run: "ContinuesAfterARestart",
		old: "len(p.suspects) > 0 || ", new: "",
	},
	{
		name: "the base latency is never measured again", file: "internal/guard/limit.go", pkg: "./internal/guard", run: "FollowsASlowDatabase",
		old: "		p.active, w.began = true, time.Time{}", new: "		_ = p",
	},
	{
		name: "a persistent queue has the limit of a burst", file: "internal/guard/limiter.go", pkg: "./internal/guard", run: "KeepsNoStandingQueue",
		old: "	if l.mu.standing {", new: "	if false {",
	},
	{
		name: "refusals are not delayed while processors are busy", file: "internal/guard/shed.go", pkg: "./internal/guard", run: "WhileProcessorsAreBusy",
		old: "			time.Sleep(d)", new: "			_ = d",
	},
	{
		name: "a request without a place is read", file: "internal/guard/shed.go", pkg: "./internal/guard", run: "WithoutReadingTheBody",
		old: "l.Full() == nil {", new: "true {",
	},
	{
		name: "a waiting message is listed for each attempt to release it early", file: "schedule/list.go", pkg: "./messages", run: "AgainAfterAnOutage",
		old: " && !x.at.Before(m.DeliverAt)", new: "",
	},
	{
		name: "of many messages the first does not wait for the rate", file: "messages/many.go", pkg: "./messages", run: "TheFirstWaits",
		old: "		pace.Allow() //", new: "		//",
	},
	{
		name: "messages are skipped when the time is up", file: "messages/many.go", pkg: "./messages", run: "TheFirstWaits",
		old: "if late && ctx.Err() == nil {", new: "if late && false {",
	},
	seeds(mutant{
		name: "an order that is retried keeps its old time", file: "orders/create.go",
		old: "	if began {\n		eventTime",
		new: "	if !began {\n		eventTime",
	}),
	{
		name: "an Idempotency-Key does not decide the ids", file: "orders/create.go", pkg: "./orders", run: ".",
		old: "		if id, err = s.claim(ctx, opts, opCreate, n, id); err != nil {",
		new: "		if _, err = s.claim(ctx, opts, opCreate, n, id); err != nil {",
	},
	{
		name: "a cancellation does not check whether the message is released", file: "schedule/store.go", pkg: "./schedule", run: "Cancellations",
		old: "payload = null, headers = null, content_type = null WHERE id = ? IF state = 'scheduled'\"",
		new: "payload = null, headers = null, content_type = null WHERE id = ? IF state != 'nothing'\"",
	},
	{
		name: "a release does not check whether the message is cancelled", file: "schedule/store.go", pkg: "./schedule", run: "Cancellations",
		old: "release_at = ? WHERE id = ? IF state = 'scheduled' AND", new: "release_at = ? WHERE id = ? IF state != 'nothing' AND",
	},
	{
		name: "an early release does not check whether the message is cancelled", file: "schedule/store.go", pkg: "./schedule", run: "Hasten",
		old: "changed_at = ? WHERE id = ? IF state = 'scheduled' AND deliver_at = ?\"", new: "changed_at = ? WHERE id = ? IF deliver_at = ?\"",
	},
	{
		name: "a message released ahead of time has no slot before its old one", file: "schedule/hasten.go", pkg: "./test/sim/later", run: "DiesWhileItReleases",
		old: "if err := s.putSlot(ctx, early); err != nil {", new: "if err := ctx.Err(); err != nil {",
	},
	{
		name: "a rewritten scheduled message overwrites a decision", file: "schedule/store.go", pkg: "./schedule", run: "RevivesNothing",
		old: "b.Query(putRow, m.CreatedAt.Add(-writtenBefore).UnixMicro()", new: "b.Query(putRow, now.Add(writtenBefore).UnixMicro()",
	},
	{
		name: "a resumed release has another write time", file: "schedule/release.go", pkg: "./schedule", run: "Cancellations|CutOff",
		old: "		won, err := s.store.release(ctx, m, now)", new: "		defer func() { m.releaseAt++ }()\n		won, err := true, error(nil)",
	},
	{
		name: "a change does not check the version of the order", file: "orders/change.go", pkg: "./orders", run: "StaleVersion",
		old: "!slices.Contains(opts.IfVersion, head.Version) {", new: "!slices.Contains(opts.IfVersion, head.Version) && head.Version < 0 {",
	},
	{
		name: "a change that lost the race counts as made", file: "orders/change.go", pkg: "./orders", run: ".",
		old: "		case err == nil:\n			return s.applyOwn", new: "		case err == nil || isConflict:\n			return s.applyOwn",
	},
	{
		name: "a change is refused because of a row that lags", file: "orders/change.go", pkg: "./orders", run: "WritesALateEventAgain",
		old: "case refused != nil && last:", new: "case refused != nil:",
	},
	{
		name: "sweep: an event that was found is not settled", file: "outbox/sweep.go", pkg: "./test/sim/appending", run: "Sweep_AppliesAnEvent",
		old: "if err := a.Settle(ctx, events[len(events)-1]); err != nil {", new: "if err := ctx.Err(); err != nil {",
	},
	{
		name: "sweep: a part with an aggregate that failed counts as swept", file: "outbox/sweep.go", pkg: "./test/sim/appending", run: "Sweep_OneAggregateFails",
		old: "		if err == nil {\n			err = a.noteSweep(ctx, r.AggregateType, part, now)", new: "		if noted := a.noteSweep(ctx, r.AggregateType, part, now); err == nil {\n			err = noted",
	},
	{
		name: "sweep: the last aggregate of a part is left out", file: "outbox/sweep.go", pkg: "./test/sim/appending", run: "Sweep_SeveralAtOnce",
		old: "	if last.Sequence > 0 {\n		compare(last)", new: "	if last.Sequence < 0 {\n		compare(last)",
	},
	{
		name: "the AsyncAPI document ignores the relay's topics", file: "orders/asyncapi.go", pkg: "./orders", run: "TestAsyncAPI",
		old: "	if t := p.Topics[eventType]; t != \"\" {", new: "	if t := p.Topics[\"\"]; t != \"\" {",
	},
	{
		name: "the AsyncAPI document requires a header that records lack", file: "orders/asyncapi.go", pkg: "./orders", run: "TestAsyncAPI_FitsTheRecords",
		old: "		outbox.HeaderContentType:   fixed(", new: "		outbox.HeaderBreaker:       fixed(",
	},
	{
		name: "payload: the digest is not compared", file: "outbox/payload/reference.go", pkg: "./outbox/payload", run: "TestResolve_",
		old: " || sha256.Sum256(content) != r.SHA256", new: "",
	},
	{
		name: "archive: a payload that was renewed during a sweep is removed", file: "dlq/archive/payloads.go", pkg: "./dlq/archive", run: "MovesMeanwhile",
		old: "	if old, err = s.conf.Archive.oldPayloads(ctx, before); err != nil {", new: "	if _, err = s.conf.Archive.oldPayloads(ctx, before); err != nil {",
	},
	{
		name: "payload: a payload that was written again expires with its day", file: "outbox/payload/folder.go", pkg: "./outbox/payload", run: "TestFolder_Expires",
		old: "info.ModTime().After(before)", new: "info == nil",
	},
	{
		name: "messages: a silent store of payloads holds the request", file: "messages/payloads.go", pkg: "./messages", run: "ARetryCompletesALargeMessage",
		old: "	e, err := outbox.LoadPayload(reading, ", new: "	_ = reading\n	e, err := outbox.LoadPayload(ctx, ",
	},
	{
		name: "doctor: an archive that refuses writes passes", file: "internal/doctor/doctor.go", pkg: "./internal/doctor", run: "Doctor_Archive",
		old: "errors.Join(a.Check(ctx), a.Close())", new: "errors.Join(a.Close())",
	},
	{
		name: "archive: an error of opening contains the query", file: "dlq/archive/archive.go", pkg: "./dlq/archive", run: "Open_",
		old: "query != \"\" && strings.Contains(text, query)", new: "query == \"\" && strings.Contains(text, query)",
	},
	{
		name: "payload: the lifetime of a scheduled event begins when it is written", file: "outbox/payload.go", pkg: "./outbox", run: "TestMovePayload_",
		old: "		day = e.DeliverAt\n", new: "",
	},
	{
		name: "payload: the event exists although its payload was not stored", file: "outbox/payload.go", pkg: "./outbox", run: "TestMovePayload_",
		old: "s.Put(ctx, key, e.Payload); err != nil", new: "s.Put(ctx, key, e.Payload); err != nil && false",
	},
	{
		name: "payload: a large message is stored although its payload is not", file: "messages/service.go", pkg: "./messages", run: "TestHTTP_ARetryCompletesALargeMessage",
		old: "	case err != nil:\n	case later:", new: "	case later:",
	},
	{
		name: "payload: a payload expires before the dead letter that refers to it", file: "dlq/archive/payloads.go", pkg: "./dlq/archive", run: "TestSweeper_ExpiresPayloads",
		old: "		if used[key] {\n			continue\n		}\n", new: "",
	},
	{
		name: "payload: a payload expires before the rows", file: "dlq/archive/payloads.go", pkg: "./dlq/archive", run: "TestSweeper_PayloadsOutlive",
		old: "max(s.conf.Keep, ttl)", new: "s.conf.Keep",
	},
	{
		name: "payload: an archived dead letter loses its payload", file: "dlq/archive/mover.go", pkg: "./dlq/archive", run: "TestSweeper_ExpiresPayloads",
		old: "m.s.conf.Archive.renew(ctx, &l)", new: "error(nil)",
	},
	{
		name: "payload: a dead letter of a subscription hides its reference", file: "subscriptions/internal/deadletter/convert.go", pkg: "./subscriptions/internal/deadletter", run: "TestNew_KeepsTheReference",
		old: "if rows.EventHeader(name) {", new: "if rows.EventHeader(name) && name != outbox.HeaderDataRef {",
	},
	{
		name: "a batch with a transient problem is not retried", file: "outbox/messages/client.go", pkg: "./outbox/messages", run: "RepeatsABatch",
		old: "if p := r.Results[i].Problem; p != nil && rest.Retryable(p) {", new: "if p := r.Results[i].Problem; p != nil && rest.Retryable(p) && p.Status == 0 {",
	},
	{
		name: "the client does not wait for Retry-After", file: "outbox/internal/rest/rest.go", pkg: "./outbox/internal/rest", run: "RepeatsWithTheSameKey",
		old: "wait = max(wait, p.RetryAfter)", new: "wait = max(wait, p.RetryAfter/10)",
	},
	{
		name: "each attempt of the client has another key", file: "outbox/internal/rest/rest.go", pkg: "./outbox/internal/rest", run: "RepeatsWithTheSameKey",
		old: "	req.Header = r.header.Clone()\n", new: "	req.Header = r.header.Clone()\n	req.Header.Set(\"Idempotency-Key\", rand.Text())\n",
	},
	{
		name: "a release resumed late keeps its write time", file: "schedule/release.go", pkg: "./test/sim/later", run: "Scheduler_DiesAtEachMessage",
		old: "const handFresh = time.Second", new: "const handFresh = 30 * time.Hour",
	},
	{
		name: "a successor's row waits for the sweep", file: "schedule/release.go", pkg: "./test/sim/later", run: "SuccessorWrites",
		old: "const handFresh = time.Second", new: "const handFresh = 30 * time.Second",
	},
	{
		name: "a slow hand-over keeps its write time", file: "schedule/release.go", pkg: "./test/sim/later", run: "SlowStatements",
		old: "if n < handAttempts && s", new: "if n == 1 && s",
	},
	{
		name: "messages that became due without a scheduler are not released", file: "schedule/scheduler.go", pkg: "./test/sim/later", run: "Scheduler_DiesAtEachMessage",
		old: "w.from = began.Add(-MaxAhead - 30*24*time.Hour)", new: "w.from = began.Add(-time.Minute)",
	},
	{
		name: "a slot is dropped before its message is in the outbox", file: "schedule/release.go", pkg: "./test/sim/later", run: "Scheduler_DiesAtEachMessage",
		old: "	ds = together(ds, ended, func(ds []*dueMessage) error { return s.handAll", new: "	_ = s.store.dropSlots(ctx, slotsTo(ds)...)\n	ds = together(ds, ended, func(ds []*dueMessage) error { return s.handAll",
	},
	{
		name: "messages whose common statement failed count as released", file: "schedule/release.go", pkg: "./schedule", run: "ReleasesTogether",
		old: "	if len(ds) > 1 && all(ds) == nil {", new: "	if err := all(ds); len(ds) > 1 && (err == nil || err != errApart) {",
	},
	{
		name: "a resumed release has the write time of others", file: "schedule/release.go", pkg: "./schedule", run: "WriteTimesDoNotMix",
		old: "if d.releaseAt != ds[0].releaseAt || s.aged(&d.Message) {", new: "if false && s.aged(&d.Message) {",
	},
	{
		name: "a server with a fast clock keeps a released message", file: "schedule/store.go", pkg: "./schedule", run: "Clocks_Released",
		old: "now.Add(removedAfter)", new: "now.Add(0)",
	},
	{
		name: "a message that another scheduler resumes is forgotten", file: "schedule/release.go", pkg: "./schedule", run: "AgainWhileItIsTakenUp",
		old: "		return true, false, err\n	}\n	m.releaseAt", new: "		return true, err == nil, err\n	}\n	m.releaseAt",
	},
	{
		name: "a disconnected client is an internal error", file: "orders/http.go", pkg: "./orders", run: "HungUp",
		old: "	if httpapi.HungUp(ctx, err) {", new: "	if httpapi.HungUp(ctx, nil) {",
	},
	{
		name: "a repeated creation returns the current order", file: "orders/create.go", pkg: "./orders", run: "OrderLifecycle",
		old: "if err != nil || o.Version == 1 {", new: "if err != nil || o.Version > 0 {",
	},
	{
		name: "a bulk change ignores the client of its filter", file: "schedule/list.go", pkg: "./messages", run: "Many",
		old: "(f.Client == \"\" || m.Client == f.Client)", new: "(f.Client == \"\" || m.Client != \"\")",
	},
	{
		name: "a dry run releases", file: "messages/http_many.go", pkg: "./messages", run: "Many",
		old: "out.Body.DryRun = in.Body.DryRun; out.Body.DryRun {", new: "out.Body.DryRun = in.Body.DryRun; false {",
	},
	{
		name: "a page of scheduled messages reads all minutes", file: "schedule/list.go", pkg: "./schedule", run: "SoManyMinutes",
		old: "if minutes == maxMinutes {", new: "if minutes < 0 {",
	},
	{
		name: "the audit trail lacks the request of a bulk change", file: "internal/admin/routes.go", pkg: "./cmd/outbox", run: "Admin_OrdersAndMessages",
		old: "e.Detail = string(seen.asked)", new: "e.Detail = \"\"",
	},
	{
		name: "reshard: the change ends with its client", file: "internal/admin/reshard.go", pkg: "./internal/admin", run: "Reshard_ContinuesWithoutItsClient",
		old: "context.WithoutCancel(ctx)", new: "ctx",
	},
	{
		name: "reshard: another change after the preview is overwritten", file: "internal/admin/reshard.go", pkg: "./internal/admin", run: "Reshard_Errors",
		old: "if b.From != nil && *b.From != plan.From {", new: "if b.From != nil && *b.From < 0 {",
	},
	{
		name: "reshard: a running instance does not stop the change", file: "internal/admin/reshard.go", pkg: "./internal/admin", run: "Reshard_Errors",
		old: "if err := change.Refuse(); err != nil {", new: "if err := change.Refuse(); err != nil && b.To < 0 {",
	},
	{
		name: "reshard: a failed change counts as refused", file: "internal/admin/reshard.go", pkg: "./internal/admin", run: "Reshard_Errors",
		old: "errors.AsType[*ReshardError](err); ok && e.Refused {", new: "errors.AsType[*ReshardError](err); ok && (e.Refused || true) {",
	},
	{
		name: "reshard: the command does not send the number of its preview", file: "cmd/outbox/reshard.go", pkg: "./cmd/outbox", run: "Reshard_PreviewIsBinding",
		old: ", From: &plan.From", new: "",
	},
	{
		name: "the audit trail lacks what a failed bulk change made", file: "internal/admin/routes.go", pkg: "./internal/admin", run: "Routes_ChangesAreAudited",
		old: "		if whole { // of", new: "		if whole && seen.outcome() == nil { // of",
	},
	{
		name: "a bulk change that fails does not return what it made", file: "messages/http_many.go", pkg: "./messages", run: "Many_AgainAfterAnOutage",
		old: "p.OutcomeUnknown, p.Result = true, &done", new: "p.OutcomeUnknown = true",
	},
	{
		name: "scheduled: the report lacks what a failed request made", file: "cmd/outbox/scheduled.go", pkg: "./cmd/outbox", run: "Scheduled_RepeatsAfterAnOutage",
		old: "add(&messages.ManyResultBody{Result: &p.Result})", new: "add(&messages.ManyResultBody{})",
	},
	{
		name: "scheduled: a command with an API uses the database", file: "cmd/outbox/api.go", pkg: "./cmd/outbox", run: "Scheduled_ServerDecidesByRole|DLQ_ServerNeedsNoDatabase",
		old: "if c.API.AdminURL != \"\" {", new: "if c.API.AdminURL != \"\" && c.API.Token == \"\" {",
	},
	{
		name: "apiserver: an error repeats the sent value", file: "internal/httpapi/config.go", pkg: "./orders", run: "RepeatNothing",
		old: "\tDiscreet(&c)\n", new: "",
	},
	{
		name: "apiserver: streams end before the last request", file: "internal/apiserver/apiserver.go", pkg: "./cmd/outbox", run: "Messages_LeavesBehind",
		old: "func (s *Server) Drain() { s.draining.Store(true) }", new: "func (s *Server) Drain() { s.draining.Store(true); s.stop() }",
	},
	{
		name: "schema: a new keyspace has the tables of the example", file: "schema/component.go", pkg: "./schema", run: "OrdersByNameAlone",
		old: "func(c Component) bool { return c == Orders }", new: "func(c Component) bool { return false }",
	},
	{
		name: "the client uses the response of a redirect as that of a change", file: "outbox/internal/rest/rest.go", pkg: "./outbox/internal/rest", run: "ARedirect",
		old: "		case req.Method != via[0].Method:\n			return http.ErrUseLastResponse\n", new: "",
	},
	{
		name: "the row of a message overwrites a decision of a server with a slow clock", file: "schedule/store.go", pkg: "./test/sim/later", run: "Seeds",
		old: "const writtenBefore = time.Hour", new: "const writtenBefore = time.Second",
	},
	{
		name: "a repeated message takes the path of its new time", file: "messages/service.go", pkg: "./messages", run: "RepeatedAfterItsTime",
		old: "later := at.After(id.createdAt)", new: "later := at.After(s.cfg.Clock.Now())",
	},
	{
		name: "memory has room for all waiting messages", file: "schedule/scheduler.go", pkg: "./schedule", run: "LittleMemory",
		old: "room: make(chan struct{}, cfg.MaxPending)", new: "room: make(chan struct{}, 1<<20)",
	},
	{
		name: "a page of the list omits messages of the same time", file: "schedule/slots.go", pkg: "./schedule", run: "ListsByTime",
		old: "	if after.ID != (gocql.UUID{}) {\n		if err", new: "	if after.ID != (gocql.UUID{}) && limit < 0 {\n		if err",
	},
	{
		name: "a retried batch has other ids", file: "messages/service.go", pkg: "./messages", run: "Batch",
		old: "one.id = outbox.NameID(id.id, strconv.Itoa(i))", new: "one.id = outbox.NameID(outbox.NewID(), strconv.Itoa(i))",
	},
	{
		name: "a message in the outbox is stored again with its Idempotency-Key", file: "messages/service.go", pkg: "./messages", run: "TestHTTP_SameKeyIsTheSameBatch",
		old: "		if found && state != Scheduled {", new: "		if found && state == Cancelled {",
	},
	{
		name: "a write that timed out counts as not made", file: "messages/service.go", pkg: "./messages", run: "AnswersAreTrue",
		old: "		case fate == cqlcode.Unknown:\n			unknown = true", new: "		case fate == cqlcode.Unknown:\n			unknown = false",
	},
	{
		name: "any topic may be written to", file: "messages/message.go", pkg: "./messages", run: "NamesEveryBadField",
		old: "	case !c.allowed(n.Topic):", new: "	case false && !c.allowed(n.Topic):",
	},
	{
		name: "the build of a process has another command", file: "internal/app/session.go", pkg: "./cmd/outbox", run: "AdminListener_MetricsAre",
		old: "NewRegistry(command)", new: "NewRegistry(command + \"?\")",
	},
}
