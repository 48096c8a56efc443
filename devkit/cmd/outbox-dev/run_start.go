package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/daemon"
	"github.com/scylla-outbox/scylla-outbox/internal/verify"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	client "github.com/scylla-outbox/scylla-outbox/outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/relay"
)

// startRelay starts the relay and the verification beside it.
func (d *dev) startRelay(ctx context.Context, teardown *daemon.Teardown, reg prometheus.Registerer) error {
	confs, err := d.relayConfigs()
	if err != nil {
		return err
	}
	if err := d.divide(ctx); err != nil {
		return err
	}
	if d.relays, err = app.NewSharing(d.conf, confs, d.session, d.log, reg, d.hints); err != nil {
		return err
	}
	scheduler, err := app.NewScheduler(d.conf, d.session, d.relays, reg, d.log)
	if err != nil {
		return err
	}
	// The relay ends by stopRelay, not with ctx: orders loaded before a signal must
	// still be relayed.
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan error, 1)
	go func() { done <- app.WithScheduler(running, scheduler, d.relays.Run) }()
	d.stopRelay = func() error {
		cancel()
		err, ok := <-done
		if ok {
			close(done)
		}
		return err
	}
	teardown.Add("relay", d.stopRelay)

	client, err := d.conf.Kafka.Client(verify.FollowFromStart(d.topics...)...)
	if err != nil {
		return err
	}
	d.ledger = verify.NewLedger()
	d.consumer = verify.NewConsumer(client, d.ledger, d.topics...)
	auditing, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() { d.consumer.Run(auditing); close(ended) }()
	teardown.Add("audit", func() error {
		stop()
		<-ended
		client.Close()
		if err := d.consumer.Err(); err != nil && !errors.Is(err, context.Canceled) {
			return err
		}
		return nil
	})
	return nil
}

// relayConfigs returns the configurations of the relays, one per table.
func (d *dev) relayConfigs() ([]relay.Config, error) {
	d.conf.Relay.ConfidenceWindow, d.conf.Relay.TailMaxInterval = d.window, d.poll
	confs, err := d.conf.RelayConfigs()
	if err != nil {
		return nil, err
	}
	orders, err := d.conf.Publication()
	if err != nil {
		return nil, err
	}
	for _, e := range app.OrderEvents {
		if topic := orders.Topics[e]; !slices.Contains(d.topics, topic) {
			d.topics = append(d.topics, topic)
		}
	}
	for i := range confs {
		confs[i].BusyDelay, confs[i].IdleDelay = devPoll, devPoll
		confs[i].RetryMax = devPatience // a person waits for a table that a service has created
		d.tables = append(d.tables, app.TableName(&confs[i]))
		if d.tables[i] == d.conf.Scylla.Keyspace+"."+outbox.DefaultTableName {
			confs[i].Topics = orders.Topics
			d.topicOf = app.NewTopics(confs[i])
			continue
		}
		d.ownTopics = append(d.ownTopics, app.NamedTopics(&confs[i])...)
	}
	return confs, nil
}

// divide sets the number of shards. No other process uses these engines, so nothing
// needs to be stopped first.
func (d *dev) divide(ctx context.Context) error {
	client, err := d.conf.Kafka.Client()
	if err != nil {
		return err
	}
	defer client.Close()
	r := app.NewResharding(d.conf, d.session, client, d.conf.Relay.Shards)
	if r.Agreed, err = r.Agreement.Shards(ctx); err != nil {
		return err
	}
	return r.Run(ctx, "outbox-dev run")
}

// listenForHints opens a port on loopback where the relay receives a hint for each
// order stored, signed with a key of this process.
func (d *dev) listenForHints(ctx context.Context) (net.PacketConn, error) {
	if d.noHints {
		return nil, nil
	}
	conn, err := new(net.ListenConfig).ListenPacket(ctx, "udp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for hints: %w", err)
	}
	key := rand.Text()
	d.conf.Hints.RelayAddrs, d.conf.Hints.Key = []string{conn.LocalAddr().String()}, key
	return conn, nil
}

// startAdmin starts the admin API with a token of this run.
func (d *dev) startAdmin(ctx context.Context, teardown *daemon.Teardown, beside *app.Services, reg prometheus.Registerer) error {
	secret, hash := access.NewToken()
	d.apiToken = secret
	d.conf.Admin.Addr = d.apiAddr
	d.conf.Admin.Tokens = []string{access.Token{Name: "dev", Role: access.Admin, Hash: hash}.String()}
	gate, err := d.conf.AdminGate(d.log)
	if err != nil {
		return err
	}
	a, err := app.StartAdmin(context.WithoutCancel(ctx), d.conf, gate, d.session, beside, reg, d.log, d.conf.ListenAdmin)
	if err != nil {
		return err
	}
	d.apiAddr = a.Addr
	teardown.Add("admin API", a.Shutdown)
	return nil
}

// startMessages starts the messages API and the event streams.
func (d *dev) startMessages(ctx context.Context, teardown *daemon.Teardown, beside *app.Services, reg prometheus.Registerer) error {
	d.conf.Messages.Addr = d.msgAddr
	a, err := app.StartMessages(context.WithoutCancel(ctx), d.conf, d.session, beside, reg, d.log, d.conf.ListenMessages)
	if err != nil {
		return err
	}
	d.msgAddr = a.Addr
	teardown.Add("messages API", a.Shutdown)
	return nil
}

// startSubscriptions starts the subscriptions and their API.
func (d *dev) startSubscriptions(ctx context.Context, teardown *daemon.Teardown, reg prometheus.Registerer) error {
	d.conf.Subscriptions.Addr = d.subsAddr
	a, err := app.StartSubscriptions(context.WithoutCancel(ctx), d.conf, d.session, reg, d.log, d.conf.ListenSubscriptions)
	if err != nil {
		return err
	}
	d.subsAddr = a.Addr
	teardown.Add("subscriptions API", a.Shutdown)
	_, err = (&client.Client{URL: "http://" + a.Addr}).Put(ctx, example)
	return err
}

// example is the subscription that dev runs.
var example = client.Subscription{
	Name: "orders-in-eur", Topics: []string{"OrderCreated"}, Filter: `data.currency == "EUR" && double(data.total) > 0.0`,
	Push: &client.Push{
		To: app.LogTarget, Severity: "warning",
		Title: "subscription {{subscription}} has order {{aggregate_id}}, {{data.total}} {{data.currency}}",
		Text:  "outbox subscriptions status orders-in-eur",
	},
}

func (d *dev) dirName() string {
	if d.Dir == "" {
		return "memory"
	}
	return d.Dir
}

func (d *dev) kept() string {
	if d.Dir == "" {
		return "in memory, lost when the process ends"
	}
	return d.Dir + ", kept between runs"
}

// allTopics returns the topics of orders and the topics that the configuration names for other tables.
func (d *dev) allTopics() []string {
	all := slices.Clone(d.ownTopics)
	for _, t := range d.topics {
		if !slices.Contains(all, t) {
			all = append(all, t)
		}
	}
	return all
}

func (d *dev) printWhere() {
	fmt.Fprintf(d.out, `scylla-outbox %[1]s, all in one process on loopback; never a production database.

  order API     http://%[2]s      OpenAPI at /openapi.json, as a page at /docs; each API has them
  messages API  http://%[16]s      also the event streams
  admin API     http://%[3]s      its token, of this run alone, is
                %[4]s
  subscriptions http://%[14]s
  console       http://%[3]s/console/#token=%[4]s
  metrics       %[13]s      metrics at /metrics, readiness of the relay at /readyz
  ScyllaDB      %[5]s             scyllafake, keyspace %[6]s
  Kafka         %[7]s             kfake, topics %[8]s
  tables        %[15]s
  relay         reads the CDC log immediately after a hint of an API, and every
                %[9]s otherwise; the sweep reader reads missed rows after %[10]s, on a cluster %[11]s
  data          %[12]s

`, cli.Version, d.httpAddr, d.apiAddr, d.apiToken, d.CQLAddr, d.conf.Scylla.Keyspace, d.KafkaAddr, strings.Join(d.allTopics(), ", "),
		d.poll, d.window, relay.Defaults().ConfidenceWindow, d.kept(), d.adminURL, d.subsAddr, strings.Join(d.tables, ", "), d.msgAddr)
}

func (d *dev) printTour() {
	fmt.Fprintf(d.out, `Try it, in another terminal:

  watch events arrive
    bin/outbox tail --kafka-seeds %[2]s %[3]s
    kcat -b %[2]s -t OrderCreated -C -o end -f '%%T %%k %%s\n'

  create an order
    curl -s http://%[1]s/v1/orders -H 'Content-Type: application/json' -H 'Idempotency-Key: first' \
      -d '{"country":"Finland","currency":"EUR","lines":[{"sku":"71053","description":"Lantern","quantity":2,"unit_price":"3.39"}]}'

  read it, cancel it (ID is in the answer)
    curl -s http://%[1]s/v1/orders/ID
    curl -s -X POST http://%[1]s/v1/orders/ID/cancel -H 'Content-Type: application/json' -d '{"reason":"changed my mind"}'

  watch them over HTTP, as server-sent events; /v1/events/ws is the same as a WebSocket
    curl -sN 'http://%[7]s/v1/events/stream?topics=OrderCreated,OrderCancelled'

  send a message, immediately or later (messages.topics lists the topics, reminders by default); list the scheduled ones
    curl -s http://%[7]s/v1/messages -H 'Content-Type: application/json' -d '{"topic":"reminders","key":"customer-42","payload":{"text":"hello"},"delay":"10s"}'
    curl -s 'http://%[7]s/v1/messages?state=scheduled'

  consume orders in any language: create a subscription, receive from it, acknowledge by the receipts
    curl -s -X PUT http://%[6]s/v1/subscriptions/mail -H 'Content-Type: application/json' -d '{"topics":["OrderCreated"],"start":"earliest"}'
    curl -s http://%[6]s/v1/subscriptions/mail/receive -H 'Content-Type: application/json' -d '{"max":1,"wait":"20s"}'
    bin/outbox consume mail --limit 3 --api-subscriptions-url http://%[6]s

  see the example subscription, which pushes orders in EUR to the log, and deliver them again
    bin/outbox subscriptions status orders-in-eur --api-subscriptions-url http://%[6]s
    bin/outbox subscriptions seek orders-in-eur --to earliest --yes --reason 'try again' --api-subscriptions-url http://%[6]s

  list dead letters
    bin/outbox dlq list --scylla-hosts %[4]s

  see metrics
    curl -s %[5]s/metrics | grep ^outbox_

Ctrl-C stops it.
`, d.httpAddr, d.KafkaAddr, strings.Join(d.allTopics(), " "), d.CQLAddr, d.adminURL, d.subsAddr, d.msgAddr)
}
