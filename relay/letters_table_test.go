package relay

import (
	"strings"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// Two tables that number their events from 1 have the same ids. The dead letter of one is
// not taken for that of the other: the event waits, readiness names it, and nothing is lost.
func TestDeadLetters_OfTwoTablesWithTheSameIDs(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 1}, nil)
		defer w.close()
		w.exec("CREATE KEYSPACE shop WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1}")
		for _, table := range []string{"a", "b"} {
			w.exec("CREATE TABLE shop." + table + " (agg text, id int, kind text, body text, PRIMARY KEY (agg, id)) WITH cdc = {'enabled': true}")
			w.exec("INSERT INTO shop." + table + " (agg, id, kind, body) VALUES ('x', 1, 'no topic', '" + table + "')")
		}
		w.cfg.TableKeyspace, w.cfg.Mapping = "shop", outbox.Mapping{AggregateType: "thing", Columns: map[string]string{
			"aggregate_id": "agg", "seq": outbox.NoColumn, "event_id": "id", "event_type": "kind", "payload": "body",
		}}
		w.cfg.Table = "a"
		r, stop := w.run()
		time.Sleep(10 * time.Second)
		if n := r.Status().DeadLetters; n != 1 {
			t.Errorf("%d dead letters of shop.a, want 1", n)
		}
		if err := stop(); err != nil {
			t.Errorf("Run() error = %v", err)
		}
		w.cfg.Table = "b"
		for range 2 { // its checkpoint has not passed the event
			r, stop := w.run()
			time.Sleep(10 * time.Second)
			problems := strings.Join(r.Status().Problems, "\n")
			for _, want := range []string{`event id "1"`, "shop.b", "shop.a", "scylla.keyspace"} {
				if !strings.Contains(problems, want) {
					t.Errorf("Problems = %q, want %q in it", problems, want)
				}
			}
			if err := stop(); err != nil {
				t.Errorf("Run() error = %v", err)
			}
		}
		if n := w.count("SELECT count(*) FROM dead_letter_queue"); n != 1 {
			t.Errorf("%d dead letters in all, want that of shop.a", n)
		}
	})
}
