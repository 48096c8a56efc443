package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/audit"
	"github.com/scylla-outbox/scylla-outbox/internal/daemon"
	"github.com/scylla-outbox/scylla-outbox/react"
	"github.com/scylla-outbox/scylla-outbox/relay"
)

// startRelay starts the relay and the audit beside it.
func (d *dev) startRelay(ctx context.Context, teardown *daemon.Teardown, reg prometheus.Registerer) error {
	conf, err := d.conf.relayConfig()
	if err != nil {
		return err
	}
	conf.ConfidenceWindow, conf.BusyDelay, conf.IdleDelay = d.window, devPoll, devPoll
	conf.TailMaxInterval, conf.TailMinInterval = d.poll, min(d.poll, conf.TailMinInterval)
	conf.Topics = make(map[string]string, len(orderEvents))
	for _, e := range orderEvents {
		conf.Topics[e] = e
	}
	if err := d.divide(ctx); err != nil {
		return err
	}
	confs := []relay.Config{conf}
	if d.carriers, err = d.conf.newCarriers(confs, d.session, d.log, reg, d.hints); err != nil {
		return err
	}
	scheduler, err := d.conf.newScheduler(d.session, confs, d.carriers.commits(), reg, d.log)
	if err != nil {
		return err
	}
	// The relay ends by stopRelay, not with ctx: what is loaded when a signal
	// comes is still to be relayed.
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan error, 1)
	go func() { done <- withScheduler(running, scheduler, d.carriers.run) }()
	d.stopRelay = func() error {
		cancel()
		err, ok := <-done
		if ok {
			close(done)
		}
		return err
	}
	teardown.Add("relay", d.stopRelay)

	client, err := d.conf.Kafka.client(audit.FollowFromStart(orderEvents...)...)
	if err != nil {
		return err
	}
	d.ledger = audit.NewLedger()
	d.consumer = audit.NewConsumer(client, d.ledger, orderEvents...)
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

// divide makes the shards as many as they are to be. Nobody else uses the engines of
// this process, so nobody needs to be stopped first.
func (d *dev) divide(ctx context.Context) error {
	if err := d.conf.Relay.checkSharing(); err != nil {
		return usageError{err}
	}
	if d.conf.Relay.Shards == 0 {
		return nil
	}
	client, err := d.conf.Kafka.client()
	if err != nil {
		return err
	}
	defer client.Close()
	r := d.conf.resharding(d.session, client, d.conf.Relay.Shards)
	if r.agreed, err = r.agreement.Shards(ctx); err != nil {
		return err
	}
	return r.run(ctx, "outbox dev")
}

// listenForHints opens a port on loopback where the order API tells the relay of
// each order stored, with a key that nobody else has.
func (d *dev) listenForHints(ctx context.Context) (net.PacketConn, error) {
	if d.noHints {
		return nil, nil
	}
	conn, err := new(net.ListenConfig).ListenPacket(ctx, "udp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for hints: %w", err)
	}
	key := rand.Text()
	d.conf.HTTP.HintAddrs, d.conf.HTTP.HintKey, d.conf.Relay.HintKey = []string{conn.LocalAddr().String()}, key, key
	return conn, nil
}

// startAdmin starts the admin API with a token that this run alone knows.
func (d *dev) startAdmin(ctx context.Context, teardown *daemon.Teardown, beside *services, reg prometheus.Registerer) error {
	secret, hash := access.NewToken()
	d.apiToken = secret
	d.conf.Admin.APIAddr = d.apiAddr
	d.conf.Admin.Tokens = []string{access.Token{Name: "dev", Role: access.Admin, Hash: hash}.String()}
	gate, err := d.conf.Admin.gate(d.log)
	if err != nil {
		return err
	}
	a, err := startAdmin(context.WithoutCancel(ctx), d.conf, gate, d.session, beside, reg, d.log, d.conf.Admin.listen)
	if err != nil {
		return err
	}
	d.apiAddr = a.addr
	teardown.Add("admin API", a.shutdown)
	return nil
}

// exampleRule is what dev reacts to unless --rules says.
var exampleRule = react.Rule{
	Name: "orders-in-eur", Topics: []string{"OrderCreated"}, When: `data.currency == "EUR" && double(data.total) > 0.0`, To: logTarget, Severity: "warning",
	Title: "the rule {{.rule}} tells of order {{.aggregate_id}}, {{.data.total}} {{.data.currency}}",
	Text:  "outbox deliveries list --event {{.event_id}}",
}

// reactConfig is what dev reacts to.
func (d *dev) reactConfig(flags *pflag.FlagSet) (reactConfig, error) {
	if d.rules == "" {
		c, err := loadConfigFrom("", noEnv, flags)
		if err != nil {
			return reactConfig{}, err
		}
		c.React.Rules = []react.Rule{exampleRule}
		return c.React, nil
	}
	c, err := loadConfigFrom(d.rules, noEnv, flags)
	if err != nil {
		return reactConfig{}, err
	}
	return c.React, nil
}

// startReact runs the rules beside the rest.
func (d *dev) startReact(ctx context.Context, teardown *daemon.Teardown, reg prometheus.Registerer) error {
	store, err := d.conf.deliveries(d.session)
	if err != nil {
		return err
	}
	reactor, err := d.conf.reactor(store, reg, d.log)
	if err != nil {
		return usageError{err}
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan error, 1)
	go func() { done <- reactor.Run(running) }()
	teardown.Add("rules", func() error {
		stop()
		return <-done
	})
	return nil
}

func (d *dev) dirName() string {
	if d.dir == "" {
		return "memory"
	}
	return d.dir
}

func (d *dev) kept() string {
	if d.dir == "" {
		return "in memory, gone with the process"
	}
	return d.dir + ", kept between runs"
}

func (d *dev) printWhere() {
	fmt.Fprintf(d.out, `scylla-outbox %[1]s, all in one process on loopback; never a production database.

  order API     http://%[2]s      OpenAPI at /openapi.json, as a page at /docs
  admin API     http://%[3]s      OpenAPI at /openapi.json and /docs; its token, of this run alone, is
                %[4]s
  console       http://%[3]s/console/#token=%[4]s
  admin         %[13]s      metrics at /metrics, readiness of the relay at /readyz
  ScyllaDB      %[5]s             scyllafake, keyspace %[6]s
  Kafka         %[7]s             kfake, topics %[8]s
  relay         reads the CDC log at once where the order API says that it wrote, and every
                %[9]s elsewhere; what that missed it reads when it is %[10]s old, on a cluster %[11]s
  data          %[12]s

`, version, d.httpAddr, d.apiAddr, d.apiToken, d.cqlAddr, d.conf.Scylla.Keyspace, d.kafkaAddr, strings.Join(orderEvents, ", "),
		d.poll, d.window, relay.DefaultConfidenceWindow, d.kept(), d.adminURL)
}

func (d *dev) printTour() {
	fmt.Fprintf(d.out, `Try it, in another terminal:

  watch events arrive
    go run ./cmd/outbox tail --kafka-seeds %[2]s %[3]s
    kcat -b %[2]s -t OrderCreated -C -o end -f '%%T %%k %%s\n'

  create an order
    curl -s http://%[1]s/v1/orders -H 'Content-Type: application/json' -H 'Idempotency-Key: first' \
      -d '{"country":"Finland","currency":"EUR","lines":[{"sku":"71053","description":"Lantern","quantity":2,"unit_price":"3.39"}]}'

  read it, cancel it (ID is in the answer)
    curl -s http://%[1]s/v1/orders/ID
    curl -s -X POST http://%[1]s/v1/orders/ID/cancel -H 'Content-Type: application/json' -d '{"reason":"changed my mind"}'

  watch them over HTTP, as server-sent events; /v1/ws is the same as a WebSocket
    curl -sN 'http://%[1]s/v1/events/stream?topics=OrderCreated,OrderCancelled'

  hand in a message, at once or for later (messages.topics lists the topics, reminders by default); list what waits
    curl -s http://%[1]s/v1/messages -H 'Content-Type: application/json' -d '{"topic":"reminders","key":"customer-42","payload":{"text":"hello"},"delay":"10s"}'
    curl -s 'http://%[1]s/v1/messages?state=scheduled'

  see what the example rule told of the order above (in EUR; --rules FILE runs your own), and tell it again
    go run ./cmd/outbox deliveries list --scylla-hosts %[4]s
    go run ./cmd/outbox deliveries repeat --scylla-hosts %[4]s --rule orders-in-eur --state delivered --yes

  see metrics
    curl -s %[5]s/metrics | grep -E '^(relay|orders|messages|schedule|react)_'

Ctrl-C stops it.
`, d.httpAddr, d.kafkaAddr, strings.Join(orderEvents, " "), d.cqlAddr, d.adminURL)
}
