package main

// releases runs the test that continues with the data of earlier versions.
func releases(m mutant) mutant {
	m.pkg, m.run = "./test/releases", "^TestReleases_Continue$"
	return m
}

// releaseMutants change what programs of earlier versions wrote: names, words and encodings.
var releaseMutants = []mutant{
	releases(mutant{
		name: "a status of dead letters has another word", file: "dlq/status.go",
		old: `Blocked Status = "blocked"`, new: `Blocked Status = "parked"`,
	}),
	releases(mutant{
		name: "the history of dead letters has another field", file: "dlq/history.go",
		old: "`json:\"why,omitempty\"`", new: "`json:\"reason,omitempty\"`",
	}),
	releases(mutant{
		name: "the checkpoints of a shard have another name", file: "relay/internal/cdclog/shard_id.go",
		old: `"%02d-of-%02d"`, new: `"%d-of-%d"`,
	}),
	releases(mutant{
		name: "the id of an event is in another header", file: "outbox/headers.go",
		old: `= "ce_id"`, new: `= "ce_eventid"`,
	}),
	releases(mutant{
		name: "a repeated order has another hash", file: "orders/idempotency.go",
		old: `append([]byte(op+"\n"), b...)`, new: `append([]byte(op+" "), b...)`,
	}),
	releases(mutant{
		name: "an archived dead letter has another name for its headers", file: "dlq/archive/record.go",
		old: "Headers        map[string]string `json:\"headers", new: "Headers        map[string]string `json:\"event_headers",
	}),
	{
		name: "a service gets the tables of the relay", file: "schema/component.go", pkg: "./schema", run: "TestMigrate_Components",
		old: "	Outbox: nil, Core:", new: "	Outbox: {Core}, Core:",
	},
}
