package relay

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/internal/heartbeat"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// beating runs the relay of w, with heartbeats, until stop.
func (w *world) beating() (stop func()) {
	r, end := w.run()
	ctx, cancel := context.WithCancel(w.t.Context())
	ended := make(chan struct{})
	go func() { r.Heartbeat(ctx, "test", 0); close(ended) }()
	return func() {
		cancel()
		<-ended
		if err := end(); err != nil {
			w.t.Error(err)
		}
	}
}

// A table is reported that a relay once published, or that an instance without shards lists, and that
// no instance publishes: the others were started without it. One that another relay publishes, or
// that has no CDC log any more, is not.
func TestUnattended(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, nil)
		defer w.close()
		orders := w.cfg
		w.ownTable("aggregateid, id", " WITH cdc = {'enabled': true}")
		debezium(&w.cfg)
		events := w.cfg
		check := func(when string, listed []string, want ...string) {
			t.Helper()
			time.Sleep(2 * time.Minute)
			got, err := Unattended(t.Context(), w.session, "outbox", Defaults().Name, listed)
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("%s: Unattended() = %q, %v, want %q", when, got, err, want)
			}
		}
		stop := w.beating()
		check("published", nil)
		stop()
		check("no instance runs", nil)
		w.cfg = orders
		stopOrders := w.beating()
		w.write(relaytest.Event(1, 1, "OrderCreated"))
		check("not listed any more", nil, "shop.events")

		w.exec("CREATE TABLE shop.more (aggregateid text, id timeuuid, aggregatetype text, type text, payload text, PRIMARY KEY (aggregateid, id)) WITH cdc = {'enabled': true}")
		standby := Membership{Session: w.session, Keyspace: "outbox", Name: Defaults().Name, Tables: []string{"shop.more"}, Status: func() (heartbeat.RelaySharing, []string) { return heartbeat.RelaySharing{Joined: true}, nil }}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { standby.Beat(ctx); close(ended) }()
		check("listed by a standby", []string{"shop.more"}, "shop.events", "shop.more")
		cancel()
		<-ended

		w.cfg = events
		stop = w.beating()
		check("listed again", nil)
		stop()
		w.cfg.Name, w.cfg.BackfillFrom = "another", time.Now().Add(-time.Minute)
		stop = w.beating()
		check("published by another relay", nil)
		stop()
		check("not by it any more", nil, "shop.events")
		w.exec("DROP TABLE shop.events")
		check("dropped", nil)
		stopOrders()
	})
}
