package main

// examples are printed by --help, by the path of the command.
var examples = map[string]string{
	"audit list": `outbox audit list --since 24h
outbox audit list --actor ann --action create-job,cancel-job --wide`,
	"config check": `outbox config check --config /etc/outbox/outbox.yaml`,
	"config print": `outbox config print --config /etc/outbox/outbox.yaml
OUTBOX_RELAY_SHARDS=4 outbox config print`,
	"consume": `outbox consume mail --max 10`,
	"dlq discard": `outbox dlq discard 01a2005c-395d-72e3-8401-994110828553 --reason 'test order'
outbox dlq discard --error-type invalid_event --until 2026-01-31 --dry-run`,
	"dlq jobs list": `outbox dlq jobs list --wide`,
	"dlq list": `outbox dlq list --since 1h
outbox dlq list --status failed,manual --error-type record_too_large --wide
outbox dlq list --status all --aggregate 7c5b2d3e -o json`,
	"dlq replay": `outbox dlq replay 01a2005c-395d-72e3-8401-994110828553 --reason 'limit raised'
outbox dlq replay --error-type record_too_large --dry-run
outbox dlq replay --error-type record_too_large --canary --reason 'INC-7, limit raised'`,
	"dlq show":        `outbox dlq show 01a2005c-395d-72e3-8401-994110828553`,
	"doctor":          `outbox doctor --scylla-hosts db-1,db-2 --kafka-seeds kafka-1:9092`,
	"event":           `outbox event 01a2005c-395d-72e3-8401-994110828553`,
	"load":            `outbox load orders.jsonl.gz --api http://127.0.0.1:8080 --rate 100`,
	"relay reshard":   `outbox relay reshard --to 4 --dry-run`,
	"schema asyncapi": `outbox schema asyncapi --kafka-seeds kafka-1:9092 --relay-topics OrderCreated=orders.created`,
	"schema migrate": `outbox schema migrate --dry-run
outbox schema migrate --scylla-hosts db-1 --scylla-replication dc1:3
outbox schema migrate --scylla-keyspace shop --components core,dead-letters`,
	"scheduled cancel": `outbox scheduled cancel --client mailer --created-since 1h --dry-run`,
	"scheduled list":   `outbox scheduled list --topic reminders --until 24h`,
	"tail": `outbox tail OrderCreated OrderCancelled
outbox tail OrderCreated --since 10m -o json`,
	"verify": `outbox verify --since 24h
outbox verify --wait --repair --reason 'INC-7'`,
}
