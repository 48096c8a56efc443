package main

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/outbox/messages"
	client "github.com/scylla-outbox/scylla-outbox/outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// startMessages serves the messages API with the settings of a file until the test ends.
func (b *verifyFixture) startMessages(yaml string) (*app.Config, *app.API) {
	b.t.Helper()
	c, err := parseConfig(b.t, yaml, nil, "--scylla-hosts", b.e.CQLAddr, "--kafka-seeds", b.e.KafkaAddr, "--messages-addr", "127.0.0.1:0")
	if err != nil {
		b.t.Fatal(err)
	}
	intake, err := app.StartMessages(b.t.Context(), c, b.session, nil, app.NewRegistry(""), slog.New(slog.DiscardHandler), c.ListenMessages)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		if err := intake.Shutdown(); err != nil {
			b.t.Error(err)
		}
	})
	return c, intake
}

// A tombstone that is sent over HTTP, also one of a later time, is a record without a value for
// consumers over HTTP, and a message without a payload an empty one.
func TestTombstones_ByHTTP(t *testing.T) {
	t.Parallel()
	b := setupVerify(t)
	c, intake := b.startMessages("messages: {topics: [things]}\nrelay: {confidence_window: 3s}\n")
	log := slog.New(slog.DiscardHandler)
	sender := &messages.Client{URL: "http://" + intake.Addr}
	empty := ""
	sent := map[string]messages.NewMessage{
		"tombstone": {Tombstone: true}, "later tombstone": {Tombstone: true, Delay: time.Millisecond},
		"no payload": {}, "later, no payload": {Delay: time.Millisecond}, "empty text": {PayloadText: &empty}, "JSON null": {Payload: []byte("null")},
	}
	want := map[string]string{"no payload": "", "later, no payload": "", "empty text": "", "JSON null": "null"}
	for key, m := range sent {
		m.Topic, m.Key = "things", key
		accepted, err := sender.Post(t.Context(), m)
		if err != nil {
			t.Fatalf("%s: %v", key, err)
		}
		content, err := sender.Content(t.Context(), accepted.ID)
		text, valued := want[key]
		if err != nil || (content.Payload() != nil) != valued || string(content.Payload()) != text {
			t.Errorf("%s: content %+v, %v", key, content, err)
		}
	}

	confs, err := c.RelayConfigs()
	if err != nil {
		t.Fatal(err)
	}
	relays, err := app.NewSharing(c, confs, b.session, log, app.NewRegistry(""), nil)
	if err != nil {
		t.Fatal(err)
	}
	scheduler, err := app.NewScheduler(c, b.session, relays, app.NewRegistry(""), log)
	if err != nil {
		t.Fatal(err)
	}
	defer world.Run(t, func(ctx context.Context) error { return app.WithScheduler(ctx, scheduler, relays.Run) })()

	url, _ := b.startSubscriptions(t)
	consumer := &client.Client{URL: url}
	if _, err := consumer.Put(t.Context(), client.Subscription{Name: "s", Topics: []string{"things"}, Start: "earliest"}); err != nil {
		t.Fatal(err)
	}
	for got := map[string]bool{}; len(got) < len(sent); {
		deliveries, err := consumer.Receive(t.Context(), "s", client.ReceiveOptions{Max: len(sent), Wait: 20 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range deliveries {
			text, valued := want[d.Key]
			if (d.Payload() != nil) != valued || string(d.Payload()) != text {
				t.Errorf("%s: received %+v", d.Key, d)
			}
			got[d.Key] = true
		}
	}
}
