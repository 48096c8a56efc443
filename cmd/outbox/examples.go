package main

// examples are printed by --help, by the path of the command.
var examples = map[string]string{
	"admin": `outbox admin --config /etc/outbox/outbox.yaml --admin-addr 127.0.0.1:8090`,
	"audit list": `outbox audit list --since 24h
outbox audit list --actor ann --action create-job,cancel-job --wide`,
	"config check": `outbox config check --config /etc/outbox/outbox.yaml`,
	"config print": `outbox config print --config /etc/outbox/outbox.yaml
OUTBOX_RELAY_SHARDS=4 outbox config print`,
	"consume":             `outbox consume mail --limit 10`,
	"dlq archive list":    `outbox dlq archive list --since 2026-01-01`,
	"dlq archive restore": `outbox dlq archive restore 01a2005c-395d-72e3-8401-994110828553 --reason 'INC-7, needed again'`,
	"dlq archive run":     `outbox dlq archive run --reason 'free space now'`,
	"dlq archive get": `outbox dlq archive get 01a2005c-395d-72e3-8401-994110828553
outbox dlq archive get 2026/01/02/120000.jsonl.zst`,
	"dlq discard": `outbox dlq discard 01a2005c-395d-72e3-8401-994110828553 --reason 'test order'
outbox dlq discard --error-class undecodable --until 2026-01-31 --dry-run`,
	"dlq edit":        `outbox dlq edit 01a2005c-395d-72e3-8401-994110828553 --payload-file fixed.json --reason 'INC-7, wrong currency'`,
	"dlq jobs cancel": `outbox dlq jobs cancel 0b2f1d90-0f5c-11f1-8a1e-7f6d2f0c9a11 --reason 'wrong filter'`,
	"dlq jobs list":   `outbox dlq jobs list --since 24h --wide`,
	"dlq jobs pause":  `outbox dlq jobs pause 0b2f1d90-0f5c-11f1-8a1e-7f6d2f0c9a11 --reason 'the broker is slow'`,
	"dlq jobs resume": `outbox dlq jobs resume 0b2f1d90-0f5c-11f1-8a1e-7f6d2f0c9a11 --reason 'the broker is healthy'`,
	"dlq jobs get":    `outbox dlq jobs get 0b2f1d90-0f5c-11f1-8a1e-7f6d2f0c9a11`,
	"dlq jobs watch":  `outbox dlq jobs watch 0b2f1d90-0f5c-11f1-8a1e-7f6d2f0c9a11`,
	"dlq list": `outbox dlq list --since 1h
outbox dlq list --status failed,suspended --error-class record_too_large --wide
outbox dlq list --status all --aggregate-id 7c5b2d3e -o json --with-payload`,
	"dlq suspend": `outbox dlq suspend 01a2005c-395d-72e3-8401-994110828553 --reason 'wait for the supplier'`,
	"dlq purge": `outbox dlq purge --until 2026-01-31 --dry-run
outbox dlq purge --aggregate-id 7c5b2d3e --no-archive --reason 'erasure request 12'`,
	"dlq unblock": `outbox dlq unblock 01a2005c-395d-72e3-8401-994110828553 --reason 'later events are independent'`,
	"dlq replay": `outbox dlq replay 01a2005c-395d-72e3-8401-994110828553 --reason 'limit raised'
outbox dlq replay --error-class record_too_large --dry-run
outbox dlq replay --error-class record_too_large --canary --reason 'INC-7, limit raised'`,
	"dlq redirect": `outbox dlq redirect 01a2005c-395d-72e3-8401-994110828553 --topic orders.large --reason 'INC-7'
outbox dlq redirect --error-class topic_invalid --topic orders.created --dry-run`,
	"dlq reopen":  `outbox dlq reopen --outcome discarded --since 1h --reason 'discarded by mistake'`,
	"dlq resolve": `outbox dlq resolve 01a2005c-395d-72e3-8401-994110828553 --reason 'booked by hand'`,
	"dlq set":     `outbox dlq set 01a2005c-395d-72e3-8401-994110828553 --priority 10 --add-tag vip --reason 'INC-7'`,
	"dlq get":     `outbox dlq get 01a2005c-395d-72e3-8401-994110828553`,
	"dlq stats":   `outbox dlq stats -o json`,
	"status": `outbox status
outbox status --watch
outbox status -o json`,
	"notifier":   `outbox notifier --config /etc/outbox/outbox.yaml`,
	"doctor":     `outbox doctor --scylla-hosts db-1,db-2 --kafka-seeds kafka-1:9092`,
	"events":     `outbox events 7c5b2d3e`,
	"events get": `outbox events get 01a2005c-395d-72e3-8401-994110828553`,
	"events list": `outbox events list --state waiting
outbox events list --since 10m -o json`,
	"health": `outbox health relay
outbox health subscriptions`,
	"orders": `outbox orders --config /etc/outbox/outbox.yaml
outbox orders --scylla-hosts db-1,db-2 --hints-relay-addrs relay:7070`,
	"relay": `outbox relay --config /etc/outbox/outbox.yaml
outbox relay --backfill-from 2026-01-02T15:04:05Z --reason 'CDC was off'`,
	"relay reshard":        `outbox relay reshard --shards 4 --dry-run`,
	"messages cancel":      `outbox messages cancel --client mailer --created-since 1h --dry-run`,
	"messages get":         `outbox messages get 01a20109-115f-773c-90e3-075874bcb49a`,
	"messages list":        `outbox messages list --topic reminders --until 24h`,
	"messages deliver-now": `outbox messages deliver-now --topic reminders --until 2026-01-31 --reason 'campaign moved'`,
	"schema asyncapi":      `outbox schema asyncapi --kafka-seeds kafka-1:9092 --relay-topics OrderCreated=orders.created`,
	"schema migrate": `outbox schema migrate --dry-run
outbox schema migrate --scylla-hosts db-1 --scylla-replication dc1:3
outbox schema migrate --scylla-keyspace shop --components core,dead-letters`,
	"schema new-epoch": `outbox schema new-epoch --dry-run
outbox schema new-epoch --relay-table shop.events --yes --reason INC-7`,
	"schema print":  `outbox schema print --components core`,
	"schema status": `outbox schema status --scylla-hosts db-1`,
	"subscriptions apply": `outbox subscriptions apply -f mail.yaml
outbox subscriptions apply -f mail.yaml --reason 'larger limit'`,
	"subscriptions delete":            `outbox subscriptions delete mail --yes --reason 'replaced by letters'`,
	"subscriptions get":               `outbox subscriptions get mail`,
	"subscriptions leases":            `outbox subscriptions leases mail --wide`,
	"subscriptions list":              `outbox subscriptions list`,
	"subscriptions pause":             `outbox subscriptions pause mail --reason 'the mail server is down'`,
	"subscriptions acknowledge-skips": `outbox subscriptions acknowledge-skips mail --reason 'recovered from the archive, INC-7'`,
	"subscriptions purge": `outbox subscriptions purge mail --until 24h
outbox subscriptions purge mail --until 24h --yes --reason 'too late to send'`,
	"subscriptions reject":    `outbox subscriptions reject mail OrderCreated:0:17:3 --reason 'no consumer gets over it'`,
	"subscriptions end-lease": `outbox subscriptions end-lease mail OrderCreated:0:17:3 --reason 'the consumer hangs'`,
	"subscriptions redeliver": `outbox subscriptions redeliver mail --key customer-42 --since 24h --dry-run
outbox subscriptions redeliver mail --filter 'data.total > 100' --since 2026-01-02 --reason 'mail 2.3 lost them'`,
	"subscriptions resume": `outbox subscriptions resume mail --reason 'the mail server is up'`,
	"subscriptions seek": `outbox subscriptions seek mail --to latest --dry-run
outbox subscriptions seek mail --to 2026-01-02T15:04:05Z --reason 'mails were lost'`,
	"subscriptions":        `outbox subscriptions --config /etc/outbox/outbox.yaml`,
	"subscriptions status": `outbox subscriptions status mail -o json`,
	"tail": `outbox tail OrderCreated OrderCancelled
outbox tail OrderCreated --since 10m -o json`,
	"token": `outbox token ann --role operator
outbox token mailer --role 'consumer(mail)'`,
	"verify": `outbox verify --since 24h
outbox verify --wait-old --repair --reason 'INC-7'`,
	"version": `outbox version -o json`,
}
