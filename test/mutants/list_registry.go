package main

// registryMutants break what the schema registry promises: contracts of messages, decoded
// payloads, and the secrecy of its credentials.
var registryMutants = []mutant{
	{
		name: "registry: Avro is accepted outside of the wire format", file: "internal/registry/registry.go", pkg: "./messages", run: "RefusesWhatBreaksTheSchema",
		old: "	case s.kind != sr.TypeJSON:", new: "	case false:",
	},
	{
		name: "registry: a schema of another subject is accepted", file: "internal/registry/registry.go", pkg: "./internal/registry", run: "ChecksContracts",
		old: "if err == nil && !slices.ContainsFunc(versions,", new: "if false && !slices.ContainsFunc(versions,",
	},
	{
		name: "registry: JSON is not validated", file: "internal/registry/registry.go", pkg: "./messages", run: "RefusesWhatBreaksTheSchema",
		old: "		err = s.fit(body)", new: "		_ = body",
	},
	{
		name: "registry: a schema that cannot be used refuses messages", file: "internal/registry/registry.go", pkg: "./internal/registry", run: "SchemasThatCannotBeUsed",
		old: "	return \"\", nil // a limit of this program,", new: "	return \"\", err // a limit of this program,",
	},
	{
		name: "registry: a newest schema that cannot be used hides older ones", file: "internal/registry/registry.go", pkg: "./internal/registry", run: "SchemasThatCannotBeUsed",
		old: "	case ok && framed != newest.id:", new: "	case ok && framed != newest.id && newest.err == nil:",
	},
	{
		name: "registry: the size of Protobuf is not bounded before it is decoded", file: "internal/registry/protobuf.go", pkg: "./internal/registry", run: "BoundedProtobuf",
		old: "!z.message(d, b, 0) {", new: "!z.message(d, nil, 0) {",
	},
	{
		name: "registry: names of enums have no size", file: "internal/registry/protobuf.go", pkg: "./internal/registry", run: "BoundedProtobuf",
		old: "		n = max(n, len(e.Values().Get(i).Name())+8)", new: "		n = max(n, 8+0*i)",
	},
	{
		name: "registry: Any is expanded", file: "internal/registry/protobuf.go", pkg: "./internal/registry", run: "BoundedProtobuf",
		old: "EmitDefaultValues: true, Resolver: types}", new: "EmitDefaultValues: true, Resolver: types.Types}",
	},
	{
		name: "registry: a reference replaces the schema", file: "internal/registry/protobuf.go", pkg: "./internal/registry", run: "ProtobufSchemas",
		old: "const mainFile = \"(schema)\"", new: "const mainFile = \"registry.proto\"",
	},
	{
		name: "registry: Avro accepts a long as int", file: "internal/registry/avro.go", pkg: "./internal/registry", run: "Registry_Avro",
		old: "if t.kind == \"int\" && ", new: "if false && ",
	},
	{
		name: "registry: bytes after a value are accepted", file: "internal/registry/avro.go", pkg: "./internal/registry", run: "DecodesEachFormat",
		old: "		if len(d.in) > 0 {", new: "		if false {",
	},
	{
		name: "registry: the last known schema is forgotten in an outage", file: "internal/registry/registry.go", pkg: "./internal/registry", run: "Away",
		old: "	if err != nil && stale {", new: "	if false {",
	},
	{
		name: "registry: a known schema is never renewed", file: "internal/registry/registry.go", pkg: "./internal/registry", run: "NewVersion",
		old: "	case subject:\n		e.till = r.now().Add(lifetime)", new: "	case subject:",
	},
	{
		name: "registry: its cache has no limit", file: "internal/registry/registry.go", pkg: "./internal/registry", run: "BoundedCache",
		old: "!there && len(r.mu.cache) >= maxEntries", new: "false && !there",
	},
	{
		name: "registry: unknown ids replace schemas in its cache", file: "internal/registry/registry.go", pkg: "./internal/registry", run: "BoundedCache",
		old: "victim = k; other.err != nil {", new: "victim = k; other.err == nil {",
	},
	{
		name: "registry: an unknown id stays unknown", file: "internal/registry/registry.go", pkg: "./internal/registry", run: "BoundedCache",
		old: "		e.till = r.now().Add(unknownTime)", new: "		e.till = r.now().Add(lifetime)",
	},
	{
		name: "registry: a proxy's 404 is the registry's", file: "internal/registry/registry.go", pkg: "./internal/registry", run: "AnswersOfProxies",
		old: "status == http.StatusNotFound && code >= sr.ErrSubjectNotFound.Code &&", new: "status == http.StatusNotFound &&",
	},
	{
		name: "registry: a proxy's refusal is the registry's", file: "internal/registry/registry.go", pkg: "./internal/registry", run: "AnswersOfProxies",
		old: "	case own && (", new: "	case (own || true) && (",
	},
	{
		name: "registry: a wrong answer to one lookup pauses all", file: "internal/registry/registry.go", pkg: "./internal/registry", run: "AnswersOfProxies",
		old: "	if network && ctx.Err() == nil || ", new: "	if network || true || ",
	},
	{
		name: "registry: an error replaces the last known schema", file: "internal/registry/registry.go", pkg: "./internal/registry", run: "AnswersOfProxies",
		old: "		e.value, e.err = old.value, nil\n", new: "",
	},
	{
		name: "registry: one request that always fails pauses all", file: "internal/registry/registry.go", pkg: "./internal/registry", run: "OneFailure",
		old: "		if r.now().After(r.mu.downTill.Add(RetryAfter)) {", new: "		if true {",
	},
	{
		name: "registry: the registry's own error for one request pauses all", file: "internal/registry/registry.go", pkg: "./internal/registry", run: "OneFailure",
		old: ">= http.StatusInternalServerError && !own {", new: ">= http.StatusInternalServerError {",
	},
	{
		name: "registry: a refusal is an outage", file: "internal/registry/registry.go", pkg: "./internal/registry", run: "Refusals",
		old: "		return out, fmt.Errorf(\"%w: %s\", errRefused, ", new: "		return out, fmt.Errorf(\"%w: %s\", ErrUnavailable, ",
	},
	{
		name: "registry: a caller that leaves ends the request of others", file: "internal/registry/registry.go", pkg: "./internal/registry", run: "CallerLeaves",
		old: "context.WithTimeout(context.WithoutCancel(ctx), lookupTime)", new: "context.WithTimeout(ctx, lookupTime)",
	},
	{
		name: "registry: references are read again by each attempt", file: "internal/registry/registry.go", pkg: "./internal/registry", run: "References",
		old: "lookup(ctx, r, fmt.Sprintf(\"version %d of %s\", ref.Version, ref.Subject),", new: "lookup(ctx, r, fmt.Sprintf(\"version %d of %s\", ref.Version, r.now()),",
	},
	{
		name: "registry: all callers wait for a registry that hangs", file: "internal/registry/registry.go", pkg: "./internal/registry", run: "Hangs",
		old: "		e.till = r.now().Add(lookupTime)\n", new: "",
	},
	{
		name: "registry: credentials are in the URLs of schemas", file: "internal/registry/registry.go", pkg: "./messages", run: "StoresWhatFitsTheSchema",
		old: "		u.User = nil\n", new: "",
	},
	{
		name: "registry: a redirect receives the credentials", file: "internal/registry/registry.go", pkg: "./internal/app", run: "SchemaRegistry",
		old: "return http.ErrUseLastResponse", new: "return nil",
	},
	{
		name: "registry: https does not use kafka.tls_ca", file: "internal/registry/registry.go", pkg: "./internal/app", run: "SchemaRegistry",
		old: "t.TLSClientConfig = conf.Clone()", new: "_ = conf",
	},
	{
		name: "registry: an error repeats text of the payload", file: "internal/jsonform/fit.go", pkg: "./messages", run: "RefusesWhatBreaksTheSchema",
		old: "	case *kind.Pattern:\n		return \"does not match the pattern \" + strconv.Quote(k.Want)\n", new: "",
	},
	{
		name: "messages: one that breaks its contract is stored", file: "messages/service.go", pkg: "./messages", run: "RefusesWhatBreaksTheSchema",
		old: "	if good -= s.checkSchemas(ctx, items, results); good == 0 {", new: "	if good == 0 {",
	},
	{
		name: "messages: a check is not charged to the quota", file: "messages/service.go", pkg: "./messages", run: "ChecksSchemasAfterTheQuota",
		old: "	if err := s.quotas.take(opts.Client, good, now); err != nil {", new: "	if err := s.quotas.take(opts.Client, good-s.checkSchemas(ctx, items, results), now); err != nil {",
	},
	{
		name: "messages: all violations of a payload are reported", file: "internal/jsonform/fit.go", pkg: "./messages", run: "ChecksSchemasAfterTheQuota",
		old: "	if len(out) == maxProblems {", new: "	if false {",
	},
	{
		name: "messages: one is stored while its contract is unknown", file: "messages/schemas.go", pkg: "./messages", run: "RegistryAway",
		old: "		return \"\", &UnavailableError{", new: "		_ = &UnavailableError{",
	},
	{
		name: "messages: the header of the schema is missing", file: "messages/service.go", pkg: "./messages", run: "StoresWhatFitsTheSchema",
		old: "registry.WithSchema(one.headers, items[i].schema)", new: "registry.WithSchema(one.headers, \"\")",
	},
	{
		name: "a replay loses the schema of its payload", file: "outbox/headers.go", pkg: "./relay", run: "BlockBehindARefusedEvent/replay",
		old: " || key == HeaderDataSchema", new: "",
	},
	{
		name: "a transformed payload keeps the schema of the other one", file: "internal/filter/transform.go", pkg: "./internal/filter", run: "Transform_StoredPayload",
		old: "outbox.HeaderDataRef, outbox.HeaderDataSchema} {", new: "outbox.HeaderDataRef} {",
	},
	{
		name: "tail prints payloads without decoding", file: "cmd/outbox/internal/tail/tail.go", pkg: "./cmd/outbox/internal/tail", run: "DecodesBySchemas",
		old: "					r.Value = data\n", new: "",
	},
	{
		name: "admin: an edit may break the contract of its topic", file: "internal/admin/edit.go", pkg: "./internal/admin", run: "MustFitTheContract",
		old: "	if !e.Equal(l.Content()) {", new: "	if e.Equal(l.Content()) {",
	},
	{
		name: "admin: an edited event has the schema of the original", file: "internal/registry/registry.go", pkg: "./internal/admin", run: "MustFitTheContract",
		old: "ok && !strings.HasPrefix(old, r.url+\"/\")", new: "ok && old != \"\"",
	},
	{
		name: "audit: an edit is recorded with its contents", file: "internal/admin/edit.go", pkg: "./internal/admin", run: "Erasure",
		old: "map[string]any{\"changed\": out.Body.Diff.Changed()}", new: "out.Body.Diff",
	},
	{
		name: "an edit that a purge preceded leaves its content", file: "dlq/store_operate.go", pkg: "./dlq", run: "LeavesNothingInAPurged",
		old: "readErr == nil && !l.PurgedAt.IsZero()", new: "readErr == nil && l.PurgedAt.IsZero()",
	},
	{
		name: "a purge leaves edits without a dead letter", file: "dlq/store_purge.go", pkg: "./internal/admin", run: "Erasure",
		old: "	return s.removeEdits(ctx, event)\n}\n\n// removeEdits", new: "	return nil\n}\n\n// removeEdits",
	},
	{
		name: "event stream: payloads are not decoded", file: "internal/stream/event.go", pkg: "./internal/stream", run: "DecodesBySchemas",
		old: "		d.decode(&e)\n", new: "",
	},
	{
		name: "event stream: each event waits for an unreachable registry", file: "internal/stream/event.go", pkg: "./internal/stream", run: "ShortWaitForSchemas",
		old: "timeout = hurriedTimeout", new: "timeout = schemaTimeout",
	},
	{
		name: "topics: decoded payloads have no limit", file: "internal/admin/topics/records.go", pkg: "./internal/admin/topics", run: "DecodedBySchemas",
		old: " || len(e.Data) > maxPayload {", new: " {",
	},
	{
		name: "doctor: a registry that refuses the credentials passes", file: "internal/registry/registry.go", pkg: "./internal/doctor", run: "SchemaRegistry",
		old: "r.client.SupportedTypes(ctx); err != nil {", new: "r.client.SupportedTypes(ctx); false {",
	},
	{
		name: "subscriptions: a filter skips what the registry cannot decode now", file: "subscriptions/engine/read.go", pkg: "./subscriptions/engine", run: "FilterWaitsForSchemas",
		old: "holds = errors.Is(err, registry.ErrUnavailable);", new: "holds = false && errors.Is(err, registry.ErrUnavailable);",
	},
	{
		name: "subscriptions: all partitions wait for the schema registry", file: "subscriptions/engine/read.go", pkg: "./subscriptions/engine", run: "OthersDoNotWaitForSchemas",
		old: "g.selects(cachedSchemas, records[i])", new: "g.selects(g.work, records[i])",
	},
	{
		name: "subscriptions: a load that waits for the schema registry delays the other work", file: "subscriptions/engine/work.go", pkg: "./subscriptions/engine", run: "OthersDoNotWaitForSchemas",
		old: "p.g.selects(cachedSchemas, rec)\n			}\n", new: "p.selects(rec)\n			}\n",
	},
	{
		name: "subscriptions: a plugin chooses among payloads that the registry cannot decode now", file: "subscriptions/engine/group.go", pkg: "./subscriptions/engine", run: "PluginWaitsForSchemas",
		old: "g.transform != nil || g.pusher.chooses()", new: "g.transform != nil",
	},
	{
		name: "subscriptions: a schema that the cache lost makes a dead letter", file: "subscriptions/engine/receive.go", pkg: "./subscriptions/engine", run: "TransformWaitsForLostSchemas",
		old: "case errors.Is(err, registry.ErrUnavailable):", new: "case false && errors.Is(err, registry.ErrUnavailable):",
	},
	{
		name: "subscriptions: decoded payloads of a request have no limit", file: "subscriptions/engine/receive.go", pkg: "./subscriptions/engine", run: "BoundedSchemas",
		old: "case len(out) > 0 && size+len(e.Data) > maxBytes:", new: "case false && size+len(e.Data) > maxBytes:",
	},
	{
		name: "subscriptions: a filter skips a message whose schema a replica does not have yet", file: "subscriptions/engine/group.go", pkg: "./subscriptions/engine", run: "FilterWaitsForNewSchemas",
		old: "age >= 0 && age < newMessage {", new: "age < 0 {",
	},
	{
		name: "subscriptions: a message with an unknown schema waits forever", file: "subscriptions/engine/group.go", pkg: "./subscriptions/engine", run: "FilterWaitsForNewSchemas",
		old: "age >= 0 && age < newMessage {", new: "age >= 0 {",
	},
	{
		name: "subscriptions: a wait for the schema registry uses up an attempt", file: "subscriptions/engine/receive.go", pkg: "./subscriptions/engine", run: "TransformWaitsForLostSchemas",
		old: "queue.Release, time.Now(), 0, \"\"", new: "queue.Nack, time.Now(), 0, \"\"",
	},
	{
		name: "subscriptions: a schema that the cache lost makes a dead letter of push", file: "subscriptions/engine/push.go", pkg: "./subscriptions/engine", run: "TransformWaitsForLostSchemas",
		old: "	if errors.Is(err, registry.ErrUnavailable) {\n		u.g", new: "	if false && errors.Is(err, registry.ErrUnavailable) {\n		u.g",
	},
	{
		name: "the state of a message is that of a filter without its schema", file: "subscriptions/trace/trace.go", pkg: "./subscriptions/trace", run: "Of_DecodedPayload",
		old: "	if !decidable || ", new: "	if ",
	},
	{
		name: "subscriptions: a payload that is decoded replaces its bytes", file: "internal/kafkarecord/record.go", pkg: "./internal/registry", run: "DecodesEachFormat",
		old: "	case e.Base64 != nil:\n		return e.Base64\n	case", new: "	case",
	},
	{
		name: "registry: events of orders are not checked", file: "orders/create.go", pkg: "./orders", run: "Contract_OfEvents",
		old: "	schema, err := s.schemaOf(ctx, &e, false)", new: "	schema, err := \"\", error(nil)",
	},
	{
		name: "registry: events of changed orders are not checked", file: "orders/change.go", pkg: "./orders", run: "Contract_OfEvents",
		old: "	schema, err := s.schemaOf(ctx, &e, me.retried)", new: "	schema, err := \"\", error(nil)",
	},
	{
		name: "registry: an event of an order has no schema", file: "orders/change.go", pkg: "./orders", run: "Contract_OfEvents",
		old: "	e.Headers = registry.WithSchema(e.Headers, schema)", new: "	_ = registry.WithSchema(e.Headers, schema)",
	},
	{
		name: "registry: a change of an order waits for the registry with a place at the database", file: "orders/change.go", pkg: "./orders", run: "Contract_RegistryHangs",
		old: "	if err := s.loadSchema(ctx, c.kind.eventType()); err != nil {", new: "	if err := error(nil); err != nil {",
	},
	{
		name: "registry: a new order waits for the registry with a place at the database", file: "orders/create.go", pkg: "./orders", run: "Contract_RegistryHangs",
		old: "	if err := s.loadSchema(ctx, EventCreated); err != nil {", new: "	if err := error(nil); err != nil {",
	},
	{
		name: "registry: a completed event of an order has no schema", file: "orders/repair.go", pkg: "./orders", run: "Contract_OfARepair",
		old: "		e.Headers = registry.WithSchema(nil, schema)", new: "		_ = registry.WithSchema(nil, schema)",
	},
	{
		name: "the JSON of a dead letter is not bounded", file: "internal/admin/dead_letter.go", pkg: "./internal/admin", run: "DeadLetter_DecodedBySchema",
		old: " || len(data) > maxDecoded {", new: " {",
	},
}
