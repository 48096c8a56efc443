package capture

import (
	"bytes"
	"context"
	"errors"
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
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/scyllatest"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/checkpoint"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
	"github.com/scylla-outbox/scylla-outbox/test/seeds"
)

// anHourOld is a database with an event that was written an hour ago.
type anHourOld struct {
	db      *scyllafake.Server
	session *gocql.Session
	cfg     settings
	table   outbox.Table
	stream  []byte // of the event
	written time.Time
}

func newAnHourOld(t *testing.T, conf scyllafake.Config) (w anHourOld) {
	t.Helper()
	var err error
	conf.Seed = seeds.Of(t)
	if w.db, err = scyllafake.Start(conf); err != nil {
		t.Fatal(err)
	}
	relaytest.Migrate(t, w.db)
	w.session = relaytest.Connect(t, w.db, "outbox", false)
	w.cfg = newSettings(relaytest.Logger(t))
	w.cfg.Session, w.cfg.ConfidenceWindow = w.session, 2*time.Second
	columns, err := outbox.ReadColumns(t.Context(), w.session, "outbox", outbox.DefaultTableName)
	if err == nil {
		w.table, err = outbox.Mapping{}.Table("outbox", outbox.DefaultTableName, columns)
	}
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Hour)
	b := w.session.Batch(gocql.LoggedBatch)
	if err := outbox.Append(b, relaytest.Event(1, 1, "OrderUpdated")); err != nil {
		t.Fatal(err)
	}
	if err := b.Exec(); err != nil {
		t.Fatal(err)
	}
	w.written = time.Now()
	time.Sleep(time.Hour)
	if err := w.session.Query(`SELECT "cdc$stream_id" FROM outbox.outbox_messages_scylla_cdc_log LIMIT 1`).Scan(&w.stream); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *anHourOld) close(t *testing.T) {
	w.session.Close()
	if err := w.db.Close(); err != nil {
		t.Error(err)
	}
	time.Sleep(time.Minute) // timers of the clients
}

// generationsAt are the start times of generations.
type generationsAt []time.Time

func (g generationsAt) Times(context.Context) ([]time.Time, error) { return g, nil }

func (g generationsAt) Generation(context.Context, time.Time) (*cdclog.Generation, error) {
	return nil, errors.New("not needed")
}

// The rows of later generations are not read yet, so they must count as lag.
func TestQuiet_StopsAtTheEndOfTheGeneration(t *testing.T) {
	t.Parallel()
	scyllatest.Bubble(t, func(t *testing.T) {
		w := newAnHourOld(t, scyllatest.Config())
		defer w.close(t)
		first := time.Now().Add(-24 * time.Hour)
		end := w.written.Add(10 * time.Minute)
		s := checkpoint.NewStreams(relaytest.NewCheckpoints(), 100, w.cfg.Logger, prometheus.NewRegistry())
		stream := make([]byte, 16)
		s.Starts(first, stream, gocql.MinTimeUUID(w.written))
		p := s.Begin(stream)
		q := NewQuiet(&w.cfg.Config, &w.table, generationsAt{end.Add(time.Minute), first, end, time.Now().Add(time.Hour)}, s)
		q.facts = func(context.Context) (cdclog.TableInfo, error) { return cdclog.TableInfo{}, nil }
		if err := q.look(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := p.Reached(); got.Sub(end).Abs() > time.Millisecond {
			t.Errorf("the stream is at %s, want the end of its generation, %s", got, end)
		}
		if age := s.PositionAge(time.Now()); age < time.Since(end)-time.Second {
			t.Errorf("the relay reports a lag of %s, want that of the unread generations, %s", age, time.Since(end))
		}
	})
}

// A stream is moved only where the log shows that it has nothing.
func TestQuiet_MovesOnlyStreamsWithoutRows(t *testing.T) {
	t.Parallel()
	scyllatest.EachVersion(t, func(t *testing.T, conf scyllafake.Config) {
		scyllatest.Bubble(t, func(t *testing.T) { movesOnlyStreamsWithoutRows(t, conf) })
	})
}

func movesOnlyStreamsWithoutRows(t *testing.T, conf scyllafake.Config) {
	w := newAnHourOld(t, conf)
	defer w.close(t)
	without := make([]byte, 16)
	for _, tt := range []struct {
		name   string
		stream []byte
		from   time.Time
		unread bool // something that was read waits to be settled
		ttl    time.Duration
		moves  bool
	}{
		{name: "no rows", stream: without, from: w.written, ttl: 24 * time.Hour, moves: true},
		{name: "no rows, which never expire", stream: without, from: w.written, moves: true},
		{name: "a row behind the position", stream: w.stream, from: w.written.Add(-time.Minute), ttl: 24 * time.Hour},
		{name: "a row before the position", stream: w.stream, from: w.written.Add(time.Minute), ttl: 24 * time.Hour, moves: true},
		{name: "something waits", stream: without, from: w.written, unread: true, ttl: 24 * time.Hour},
		{name: "rows may have expired", stream: without, from: w.written, ttl: time.Hour},
		{name: "not far behind", stream: without, from: time.Now().Add(-w.cfg.ConfidenceWindow - w.cfg.IdleCheckpoint/2)},
	} {
		s := checkpoint.NewStreams(relaytest.NewCheckpoints(), 100, w.cfg.Logger, prometheus.NewRegistry())
		from := gocql.MinTimeUUID(tt.from)
		s.Starts(time.Now().Add(-24*time.Hour), tt.stream, from)
		p := s.Begin(tt.stream)
		if tt.unread {
			p.Begin(gocql.MinTimeUUID(tt.from.Add(time.Second)), 1)
		}
		q := NewQuiet(&w.cfg.Config, &w.table, generationsAt{}, s)
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
}

// A response that does not prove the absence of rows is no reason to move: a page that ended among
// rows that are expired, or an error. Streams behind one that cannot be read move nevertheless.
func TestQuiet_APageWithoutRowsIsNotTheEnd(t *testing.T) {
	t.Parallel()
	scyllatest.Bubble(t, func(t *testing.T) {
		w := newAnHourOld(t, scyllatest.Config())
		defer w.close(t)
		from := w.written.Add(-time.Minute)
		first, last := make([]byte, 16), slices.Repeat([]byte{0x7f}, 16) // by token
		first[0] = 0x80
		s := checkpoint.NewStreams(relaytest.NewCheckpoints(), 100, w.cfg.Logger, prometheus.NewRegistry())
		for _, stream := range [][]byte{first, w.stream, last} {
			s.Starts(from.Add(-time.Hour), stream, gocql.MinTimeUUID(from))
			s.Begin(stream)
		}
		q := NewQuiet(&w.cfg.Config, &w.table, generationsAt{}, s)
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
			stream := scyllacdc.StreamID([][]byte{first, w.stream, last}[i])
			all := s.All()
			p := all[slices.IndexFunc(all, func(p *checkpoint.Stream) bool { return bytes.Equal(p.ID, stream) })]
			if _, _, moved := p.Unsaved(); moved != want {
				t.Errorf("stream %d: moved = %v, want %v", i, moved, want)
			}
		}
	})
}
