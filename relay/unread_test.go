package relay

import (
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// The events that were written since a time are counted up to the limit, over all streams and
// with the tombstones and other rows that are no events left out; shards count their own.
func TestUnread(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, nil)
		defer w.close()
		logs := make(map[Shard]*Log)
		logOf := func(shard Shard) *Log {
			if logs[shard] == nil {
				cfg := w.cfg
				cfg.Session, cfg.Shard = w.session, shard
				logs[shard] = NewLog(cfg)
			}
			return logs[shard]
		}
		unread := func(shard Shard, since time.Time, limit int) int {
			t.Helper()
			n, err := logOf(shard).Unread(t.Context(), since, limit)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		began := time.Now()
		if n := unread(Shard{}, began, 100); n != 0 {
			t.Errorf("Unread() = %d in an empty table", n)
		}
		w.write(relaytest.Event(1, 1, "OrderCreated"))
		time.Sleep(time.Second)
		since := time.Now()
		for i := range 20 {
			w.write(relaytest.Event(i+2, 1, "OrderCreated"))
		}
		e := relaytest.Event(1, 1, "OrderCreated")
		if err := w.session.Query("DELETE FROM outbox.outbox_messages WHERE aggregate_id = ? AND seq = ?", e.AggregateID.String(), e.Sequence).Exec(); err != nil {
			t.Fatal(err)
		}
		again := relaytest.Event(2, 1, "OrderCreated")
		time.Sleep(time.Second)
		settled := time.Now()
		time.Sleep(time.Second)
		w.write(again) // as Appender.Settle does: one event
		sum := 0
		for i := range 3 {
			n := unread(Shard{Index: i, Count: 3}, since, 100)
			if n == 0 {
				t.Errorf("shard %d has no events", i)
			}
			sum += n
		}
		if all, old, few := unread(Shard{}, since, 100), unread(Shard{}, began, 100), unread(Shard{}, began, 7); all != 20 || sum != 20 || old != 21 || few != 7 {
			t.Errorf("Unread() = %d, %d by shards, %d from the beginning, %d with a limit of 7; want 20, 20, 21, 7", all, sum, old, few)
		}
		times := 0
		if err := logOf(Shard{}).Written(t.Context(), began, 100, func(got WrittenEvent) {
			if got.AggregateID == e.AggregateID && (got.ID != e.ID || got.Type != "OrderCreated" || got.Sequence != 1 || got.At.Before(began) || !got.At.Before(since)) {
				t.Errorf("Written() has %+v, want %s", got, e.ID)
			}
			if got.ID == again.ID {
				times++
				if got.First.Before(since) || !got.First.Before(settled) || got.At.Before(settled) {
					t.Errorf("Written() has %+v, want one that was written since %s and again since %s", got, since, settled)
				}
			}
		}); err != nil {
			t.Error(err)
		}
		if times != 1 {
			t.Errorf("Written() has the event that was written again %d times, want once", times)
		}
	})
}

// A log that was read before reads new streams, from their announcement on.
func TestLog_ReadsNewStreams(t *testing.T) {
	t.Parallel()
	for _, tt := range shardEngines {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				w := newWorld(t, tt.conf, nil)
				defer w.close()
				cfg := w.cfg
				cfg.Session = w.session
				log, began := NewLog(cfg), time.Now()
				for i := range 60 {
					if i == 20 {
						if err := tt.change(w.db.Faults().Node()); err != nil {
							t.Fatal(err)
						}
					}
					w.write(relaytest.Event(i+1, 1, "OrderCreated"))
					time.Sleep(time.Second)
					if n, err := log.Unread(t.Context(), began, 100); err != nil || n != i+1 {
						t.Fatalf("Unread() after %d events = %d, %v", i+1, n, err)
					}
				}
			})
		})
	}
}
