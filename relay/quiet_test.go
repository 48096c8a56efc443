package relay

import (
	"bytes"
	"context"
	"slices"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
	scyllacdc "github.com/scylladb/scylla-cdc-go"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/checkpoint"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/publish"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// anHourOld writes an event and waits for an hour. It returns what a quiet is made of,
// the event's stream, and when it was written.
func (w *world) anHourOld() (cfg Config, table outbox.Table, stream []byte, written time.Time) {
	w.t.Helper()
	cfg = w.cfg
	cfg.Session = w.session
	table, _, err := readTable(w.t.Context(), &cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	time.Sleep(time.Hour)
	w.write(relaytest.Event(1, 1, "OrderUpdated"))
	written = time.Now()
	time.Sleep(time.Hour)
	if err := w.session.Query(`SELECT "cdc$stream_id" FROM outbox.outbox_messages_scylla_cdc_log LIMIT 1`).Scan(&stream); err != nil {
		w.t.Fatal(err)
	}
	return cfg, table, stream, written
}

// A stream is moved only where the log says that it has nothing.
func TestQuiet_MovesOnlyStreamsWithoutRows(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 1}, nil)
		defer w.close()
		cfg, table, withRow, written := w.anHourOld()
		without := make([]byte, 16)
		for _, tt := range []struct {
			name   string
			stream []byte
			from   time.Time
			unread bool // something that was read waits to be settled
			ttl    time.Duration
			moves  bool
		}{
			{name: "no rows", stream: without, from: written, ttl: 24 * time.Hour, moves: true},
			{name: "no rows, which never expire", stream: without, from: written, moves: true},
			{name: "a row behind the position", stream: withRow, from: written.Add(-time.Minute), ttl: 24 * time.Hour},
			{name: "a row before the position", stream: withRow, from: written.Add(time.Minute), ttl: 24 * time.Hour, moves: true},
			{name: "something waits", stream: without, from: written, unread: true, ttl: 24 * time.Hour},
			{name: "rows may have expired", stream: without, from: written, ttl: time.Hour},
			{name: "not far behind", stream: without, from: time.Now().Add(-w.cfg.ConfidenceWindow - w.cfg.IdleCheckpoint/2)},
		} {
			s := checkpoint.NewStreams(relaytest.NewCheckpoints(), 100, w.cfg.Logger, prometheus.NewRegistry())
			from := gocql.MinTimeUUID(tt.from)
			s.Starts(time.Now().Add(-24*time.Hour), tt.stream, from)
			p := s.Begin(tt.stream)
			if tt.unread {
				p.Begin(gocql.MinTimeUUID(tt.from.Add(time.Second)), 1)
			}
			q := newQuiet(&cfg, &table, s)
			q.facts = func(context.Context) (cdclog.TableInfo, error) { return cdclog.TableInfo{CDCTTL: tt.ttl}, nil }
			if err := q.look(t.Context()); err != nil {
				t.Fatalf("%s: look() error = %v", tt.name, err)
			}
			pos, _, moved := p.Unsaved()
			if moved != tt.moves {
				t.Errorf("%s: moved = %v, want %v", tt.name, moved, tt.moves)
			}
			if at := time.Now().Add(-w.cfg.ConfidenceWindow); moved && pos.Time().After(at) {
				t.Errorf("%s: the position is %s, within the confidence window", tt.name, pos.Time())
			}
			if _, _, upTo := s.HandedAll(); moved && upTo != cdclog.WriteTime(pos)-1 {
				t.Errorf("%s: handed up to %d, want up to the position, %d", tt.name, upTo, cdclog.WriteTime(pos)-1)
			}
		}
	})
}

// What says nothing of rows is no reason to move: a page that ended among rows that are
// expired, or an error. Streams behind one that cannot be read move nevertheless.
func TestQuiet_APageWithoutRowsIsNotTheEnd(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 1}, nil)
		defer w.close()
		cfg, table, withRow, written := w.anHourOld()
		from := written.Add(-time.Minute)
		first, last := make([]byte, 16), slices.Repeat([]byte{0x7f}, 16) // by token
		first[0] = 0x80
		s := checkpoint.NewStreams(relaytest.NewCheckpoints(), 100, w.cfg.Logger, prometheus.NewRegistry())
		for _, stream := range [][]byte{first, withRow, last} {
			s.Starts(from.Add(-time.Hour), stream, gocql.MinTimeUUID(from))
			s.Begin(stream)
		}
		q := newQuiet(&cfg, &table, s)
		q.facts = func(context.Context) (cdclog.TableInfo, error) { return cdclog.TableInfo{}, nil }
		var reads int
		w.db.Faults().MustAdd(faults.Rule{
			Match: faults.Match{Table: "outbox_messages_scylla_cdc_log"},
			Effect: faults.Effect{Decide: func(engine.Op) (engine.Verdict, bool) {
				if reads++; reads == 1 {
					return engine.Verdict{Err: cqlerr.New(cqlerr.Server, "no")}, true
				}
				return engine.Verdict{DeadPage: true}, true
			}},
		})
		if err := q.look(t.Context()); err == nil {
			t.Error("look() error = nil, want that of the first stream")
		}
		for i, want := range []bool{false, false, true} {
			stream := scyllacdc.StreamID([][]byte{first, withRow, last}[i])
			all := s.All()
			p := all[slices.IndexFunc(all, func(p *checkpoint.Stream) bool { return bytes.Equal(p.ID, stream) })]
			if _, _, moved := p.Unsaved(); moved != want {
				t.Errorf("stream %d: moved = %v, want %v", i, moved, want)
			}
		}
	})
}

// The library reads the streams of a vnode together, and says that there was nothing
// only where there was nothing in any of them. A stream beside a busy one moves on all
// the same.
func TestRelay_AQuietStreamBesideABusyOneMovesOn(t *testing.T) {
	t.Parallel()
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
func TestRelay_TheTailBeginsBesideABusyStream(t *testing.T) {
	t.Parallel()
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
