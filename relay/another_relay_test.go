package relay

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/failure"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
	"github.com/scylla-outbox/scylla-outbox/schema"
)

// anotherRelay returns the error of a start that is to be refused at once.
func (w *world) anotherRelay() *AnotherRelayError {
	w.t.Helper()
	_, stop := w.run()
	time.Sleep(time.Minute)
	err := stop()
	refused, ok := errors.AsType[*AnotherRelayError](err)
	if !ok {
		w.t.Fatalf("Run() error = %v, want that another relay has published the table", err)
	}
	if failure.Classify(err) != failure.Fatal {
		w.t.Errorf("Run() error = %v, want a Fatal one", err)
	}
	return refused
}

// A relay that never published a table which others have published is refused before it publishes
// anything, whatever differs and however many shards either has. With BackfillFrom it begins at
// that time: earlier events are not repeated, also when a later one of their aggregate follows.
func TestFirstStart_OfAnotherRelay(t *testing.T) {
	t.Parallel()
	for name, rename := range map[string]func(w *world) (former string){
		"name": func(w *world) string { w.cfg.Name = "renamed"; return Defaults().Name },
		"shard of a name": func(w *world) string {
			w.cfg.Name, w.cfg.Shard = "renamed", Shard{Index: 0, Count: 1}
			return Defaults().Name
		},
		"name of no process": func(w *world) string {
			w.cfg.Name, w.cfg.Topics = "renamed", map[string]string{"OrderCreated": "OrderCreated"}
			return Defaults().Name
		},
		"keyspace": func(w *world) string {
			if err := schema.Migrate(w.t.Context(), w.session, schema.Options{Keyspace: "moved"}); err != nil {
				w.t.Fatal(err)
			}
			w.cfg.TableKeyspace, w.cfg.Keyspace = "outbox", "moved"
			w.db.Faults().MustAdd(faults.Rule{ // a read that fails proves nothing
				Match: faults.Match{Keyspace: "outbox", Table: "relay_checkpoints", Kinds: []engine.OpKind{engine.OpRead}}, Count: 2,
				Effect: faults.Effect{Failure: faults.Unavailable(2, 1)},
			})
			return Defaults().Name + " in outbox"
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				w := newWorld(t, scyllafake.Config{Tokens: 4}, wideWindow)
				defer w.close()
				if name == "shard of a name" {
					w.cfg.Shard = Shard{Index: 0, Count: 1}
				}
				_, stop := w.run()
				time.Sleep(10 * time.Minute)
				before := relaytest.Events(20, 2, "OrderCreated")
				for _, e := range before {
					w.write(e)
				}
				time.Sleep(5 * time.Second)
				if err := stop(); err != nil {
					t.Error(err)
				}
				former := rename(w)
				refused := w.anotherRelay()
				if !slices.Equal(refused.Others, []string{former}) || refused.Table != "outbox.outbox_messages" || refused.Name != w.cfg.Name {
					t.Errorf("Run() error = %+v, want the one that published it, %s", refused, former)
				}
				for _, part := range []string{former, w.cfg.Name, "--backfill-from"} {
					if !strings.Contains(refused.Error(), part) {
						t.Errorf("the error does not contain %s: %v", part, refused)
					}
				}
				relaytest.CheckOrder(t, w.consume("OrderCreated"), before)

				time.Sleep(5 * time.Minute)
				w.cfg.BackfillFrom = time.Now().Add(-w.cfg.ConfidenceWindow - time.Second)
				after := make([]outbox.Event, 20)
				for i := range after {
					after[i] = relaytest.Event(i, 3, "OrderCreated")
					w.write(after[i])
				}
				for range 2 { // the setting may stay
					_, stop = w.run()
					time.Sleep(10 * time.Minute)
					if err := stop(); err != nil {
						t.Error(err)
					}
				}
				w.cfg.BackfillFrom = time.Time{} // it is one of the table's relays now
				_, stop = w.run()
				time.Sleep(10 * time.Minute)
				if err := stop(); err != nil {
					t.Error(err)
				}
				relaytest.CheckOrder(t, w.consume("OrderCreated"), append(before, after...))
			})
		})
	}
}

// A table without sequence numbers cannot be scanned: its relay begins in the CDC log.
func TestFirstStart_OfAnotherRelayWithoutNumbers(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, nil)
		defer w.close()
		debezium(&w.cfg)
		w.ownTable("aggregateid, id", " WITH cdc = {'enabled': true, 'ttl': 86400}")
		insert := func(n int) {
			w.exec(fmt.Sprintf("INSERT INTO shop.events (aggregateid, id, aggregatetype, type, payload) VALUES ('order-%d', ?, 'order', 'Placed', '{}')", n), gocql.TimeUUID())
		}
		topic := "outbox.event.order"
		_, stop := w.run()
		insert(1)
		time.Sleep(10 * time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		w.cfg.Name = "renamed"
		w.anotherRelay()
		w.cfg.BackfillFrom = time.Unix(0, 0)
		_, stop = w.run()
		time.Sleep(time.Minute)
		if err := stop(); err == nil || !strings.Contains(err.Error(), "set --backfill-from to") {
			t.Errorf("Run() from the beginning: error = %v, want a time of which the log has rows", err)
		}
		w.cfg.BackfillFrom = time.Now().Add(-10 * time.Second)
		insert(2)
		for range 2 {
			_, stop = w.run()
			time.Sleep(10 * time.Minute)
			if err := stop(); err != nil {
				t.Error(err)
			}
		}
		if got := len(w.consume(topic)); got != 2 {
			t.Errorf("%d records of 2 events", got)
		}
	})
}
