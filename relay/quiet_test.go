package relay

import (
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/publish"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// The library reads the streams of a vnode together, and reports that there was nothing only where
// there was nothing in any of them. A stream beside a busy one moves on all the same.
func TestRelay_AQuietStreamBesideABusyOneAdvances(t *testing.T) {
	t.Parallel()
	relaytest.Long(t)
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 1, Shards: 4}, nil)
		defer w.close()
		r, stop := w.run()
		for seq := int64(1); seq <= 1200; seq++ {
			w.write(relaytest.Event(1, seq, "OrderUpdated"))
			time.Sleep(100 * time.Millisecond)
		}
		if age := r.streams.PositionAge(time.Now()); age > time.Minute {
			t.Errorf("a stream without rows is %s behind", age)
		}
		if err := stop(); err != nil {
			t.Errorf("Run() error = %v", err)
		}
	})
}

// Without numbers the tail begins where the sweep is, in all of its streams.
func TestRelay_TailBeginsBesideABusyStream(t *testing.T) {
	t.Parallel()
	relaytest.Long(t)
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 1, Shards: 4}, nil)
		defer w.close()
		w.ownTable("aggregateid, id", " WITH cdc = {'enabled': true}")
		debezium(&w.cfg)
		time.Sleep(time.Hour)
		write := func(n int) {
			for range n {
				if err := w.session.Query("INSERT INTO shop.events (aggregateid, id, aggregatetype, type, payload) VALUES ('a', ?, 'order', 'Placed', '{}')", gocql.TimeUUID()).Exec(); err != nil {
					t.Fatal(err)
				}
				time.Sleep(100 * time.Millisecond)
			}
		}
		write(600) // longer than the tail reads back
		r, stop := w.run()
		write(1500)
		before := relaytest.Count(r.metrics.Found[publish.ByTail])
		write(300)
		if early := relaytest.Count(r.metrics.Found[publish.ByTail]) - before; early < 250 {
			t.Errorf("the tail found %v of 300 events, want nearly all", early)
		}
		if err := stop(); err != nil {
			t.Errorf("Run() error = %v", err)
		}
	})
}
