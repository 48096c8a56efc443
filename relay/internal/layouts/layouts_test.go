package layouts

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/checkpoint"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/fence"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// world is a database in which relays of several layouts have progress.
type world struct {
	t          *testing.T
	db         *scyllafake.Server
	session    *gocql.Session
	now        time.Time // whole milliseconds
	generation *cdclog.Generation
}

func newWorld(t *testing.T) *world {
	t.Helper()
	db, err := scyllafake.Start(scyllafake.Config{Tokens: 4})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	relaytest.Migrate(t, db)
	w := &world{t: t, db: db, session: relaytest.Connect(t, db, "outbox", true), now: time.Now().UTC().Truncate(time.Millisecond)}
	t.Cleanup(w.session.Close)
	source := cdclog.NewGenerations(w.session, "outbox", outbox.DefaultTableName, nil)
	starts, err := source.Times(t.Context())
	if err != nil || len(starts) == 0 {
		t.Fatalf("Times() = %v, %v", starts, err)
	}
	if w.generation, err = source.Generation(t.Context(), starts[0]); err != nil {
		t.Fatal(err)
	}
	return w
}

// ago returns a time in the past.
func (w *world) ago(minutes int) time.Time { return w.now.Add(-time.Duration(minutes) * time.Minute) }

// config is that of shard index of so many.
func (w *world) config(index, count int) *Config {
	return &Config{
		Session: w.session, Keyspace: "outbox", Relay: "r", TableKeyspace: "outbox", Table: outbox.DefaultTableName, Columns: outbox.DefaultTable,
		Shard: cdclog.Shard{Index: index, Count: count}, Window: time.Second, Logger: relaytest.Logger(w.t),
	}
}

func (w *world) readProgress(index, count int) *progress {
	w.t.Helper()
	p, err := w.config(index, count).readProgress(w.t.Context(), cdclog.Shard{Index: index, Count: count})
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

// ran lets a shard have begun first minutes ago, and have positions in all streams some minutes
// ago.
func (w *world) ran(index, count, first, positions int) {
	w.t.Helper()
	store := w.readProgress(index, count).store
	err := errors.Join(store.SaveFirst(w.t.Context(), w.ago(first)), store.SaveGeneration(w.t.Context(), w.generation.Start))
	for _, stream := range w.generation.Streams {
		err = errors.Join(err, store.SavePosition(w.t.Context(), w.generation.Start, stream, gocql.MinTimeUUID(w.ago(positions))))
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// takeOver takes over for a shard and returns since.
func (w *world) takeOver(index, count int) time.Time {
	w.t.Helper()
	since, err := TakeOver(w.t.Context(), w.config(index, count))
	if err != nil {
		w.t.Fatalf("TakeOver() error = %v", err)
	}
	return since
}

// remember records layouts that ran.
func (w *world) remember(counts ...int) {
	w.t.Helper()
	for _, count := range counts {
		layouts := &known{session: w.session, relay: "r", table: "outbox." + outbox.DefaultTableName, name: "outbox.relay_layouts"}
		if err := layouts.save(w.t.Context(), count); err != nil {
			w.t.Fatal(err)
		}
	}
}

// counts returns how many streams of a shard have a position some minutes ago.
func (w *world) counts(index, count int) map[int]int {
	w.t.Helper()
	positions, err := w.readProgress(index, count).store.Positions(w.t.Context(), w.generation.Start)
	if err != nil {
		w.t.Fatal(err)
	}
	out := make(map[int]int)
	for _, pos := range positions {
		out[int(w.now.Sub(pos.Time().Truncate(time.Millisecond)).Round(time.Minute)/time.Minute)]++
	}
	return out
}

// countStreams returns how many streams have rows of a range of tokens but not of another one.
func (w *world) countStreams(with cdclog.TokenRange, without ...cdclog.TokenRange) int {
	streams := make(map[int]bool)
	w.generation.EachRange(func(rg cdclog.StreamRange, has func(cdclog.TokenRange) bool) {
		if has(with) && !slices.ContainsFunc(without, has) {
			for _, s := range rg.Streams {
				streams[s] = true
			}
		}
	})
	return len(streams)
}

func part(index, count int) cdclog.TokenRange { return cdclog.Ring.Part(index, count) }

// A shard continues in each stream at the earliest position of the shards that had a part of it.
func TestTakeOver_ContinuesAtTheEarliestPosition(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.remember(3)
	w.ran(0, 3, 100, 10)
	w.ran(1, 3, 90, 20)
	w.ran(2, 3, 200, 5) // has no part of shard 0 of 2
	if since := w.takeOver(0, 2); !since.IsZero() {
		t.Errorf("TakeOver() = %s, want zero: the positions define it", since)
	}
	own := w.readProgress(0, 2)
	if !own.generation.Equal(w.generation.Start) || !own.first.Equal(w.ago(100)) {
		t.Errorf("the shard begins at %s in generation %s, want %s and %s", own.first, own.generation, w.ago(100), w.generation.Start)
	}
	second := part(1, 3)
	want := map[int]int{10: w.countStreams(part(0, 2), second), 20: w.countStreams(part(0, 2)) - w.countStreams(part(0, 2), second)}
	if got := w.counts(0, 2); got[10] != want[10] || got[20] != want[20] || len(got) != 2 || want[10] == 0 || want[20] == 0 {
		t.Errorf("streams by minutes = %v, want %v", got, want)
	}
	// A repetition, and another layout that is behind, change nothing.
	w.remember(4)
	for i := range 4 {
		w.ran(i, 4, 300, 60)
	}
	w.takeOver(0, 2)
	if got := w.counts(0, 2); got[10] != want[10] || got[20] != want[20] || len(got) != 2 {
		t.Errorf("streams by minutes = %v after a layout that was behind, want %v", got, want)
	}
	// One that is ahead moves all.
	w.ran(0, 1, 300, 3)
	w.remember(1)
	w.takeOver(0, 2)
	if got := w.counts(0, 2); got[3] != want[10]+want[20] || len(got) != 1 {
		t.Errorf("streams by minutes = %v after a layout that was ahead, want all at 3", got)
	}
}

// The whole table without shards counts without a row in relay_layouts, and shards count for it.
func TestTakeOver_WholeTable(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if since := w.takeOver(0, 0); !since.IsZero() || len(w.counts(0, 0)) != 0 {
		t.Errorf("TakeOver() = %s without layouts, want zero", since)
	}
	w.ran(0, 0, 100, 10)
	w.takeOver(1, 2)
	if got := w.counts(1, 2); got[10] != w.countStreams(part(1, 2)) || len(got) != 1 {
		t.Errorf("streams by minutes = %v, want %d at 10", got, w.countStreams(part(1, 2)))
	}
	w.ran(0, 2, 50, 7)
	w.ran(1, 2, 50, 7)
	w.takeOver(0, 0)
	if got := w.counts(0, 0); got[7] != len(w.generation.Streams) {
		t.Errorf("streams by minutes = %v, want %d at 7", got, len(w.generation.Streams))
	}
	counts, err := (&known{session: w.session, relay: "r", table: "outbox." + outbox.DefaultTableName, name: "outbox.relay_layouts"}).load(t.Context())
	if err != nil || !slices.Equal(counts, []int{2}) {
		t.Errorf("layouts = %v, %v, want 2", counts, err)
	}
}

// If one of the shards never began, nothing is taken over, and the topics are read from the
// time at which the first one began.
func TestTakeOver_OneShardNeverBegan(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.remember(3)
	w.ran(1, 3, 90, 20)
	began := checkpoint.Earliest(w.ago(90), w.generation.Start)
	if since := w.takeOver(0, 2); !since.Equal(began) {
		t.Errorf("TakeOver() = %s, want %s", since, began)
	}
	if got := w.counts(0, 2); len(got) != 0 {
		t.Errorf("streams by minutes = %v, want none", got)
	}
	if own := w.readProgress(0, 2); !own.first.IsZero() || !own.generation.IsZero() {
		t.Errorf("the shard begins at %s in generation %s, want nothing saved", own.first, own.generation)
	}
}

// A stream in which one of the shards has no position is read from its beginning.
func TestTakeOver_StreamWithoutAPosition(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.ran(0, 0, 90, 20)
	name, table := w.config(0, 0).Shard.Name("r"), "outbox."+outbox.DefaultTableName
	if err := w.session.Query("DELETE FROM outbox.relay_checkpoints WHERE relay = ? AND table_name = ? AND generation = ? AND stream_id = ?",
		name, table, w.generation.Start, w.generation.Streams[0]).Exec(); err != nil {
		t.Fatal(err)
	}
	w.takeOver(0, 1)
	if got := w.counts(0, 1); got[20] != len(w.generation.Streams)-1 || len(got) != 1 {
		t.Errorf("streams by minutes = %v, want all %d but one", got, len(w.generation.Streams))
	}
}

// Shards are in the generation of the one that is furthest behind. One that the database does not
// know is not taken over.
func TestTakeOver_Generations(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.remember(2)
	w.ran(0, 2, 90, 20)
	w.ran(1, 2, 90, 20)
	former := w.generation.Start.Add(-time.Hour)
	if err := w.readProgress(1, 2).store.SaveGeneration(t.Context(), former); err != nil {
		t.Fatal(err)
	}
	w.takeOver(0, 1)
	if own := w.readProgress(0, 1); len(w.counts(0, 1)) != 0 || !own.first.Equal(w.ago(90)) {
		t.Errorf("%v positions of a generation that the database does not know, first %s; want the first alone", w.counts(0, 1), own.first)
	}
}

var errLost = errors.New("the shard is lost")

type closedFence struct{}

func (closedFence) Check() error { return errLost }

// Each failure ends the start, which is retried: a part of the progress would skip rows.
func TestTakeOver_Fails(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.remember(2)
	w.ran(0, 2, 90, 20)
	w.ran(1, 2, 90, 20)
	for _, tt := range []struct {
		table string
		kind  engine.OpKind
	}{
		{"relay_layouts", engine.OpRead},
		{"relay_layouts", engine.OpWrite},
		{"relay_checkpoints", engine.OpRead},
		{"relay_checkpoints", engine.OpWrite},
		{"relay_backfills", engine.OpRead},
		{"cdc_timestamps", engine.OpRead},
		{"cdc_streams", engine.OpRead},
	} {
		id := w.db.Faults().MustAdd(faults.Rule{
			Name: "no " + tt.table, Match: faults.Match{Table: tt.table, Kinds: []engine.OpKind{tt.kind}}, Effect: faults.Effect{Failure: faults.Unavailable(2, 1)},
		})
		if _, err := TakeOver(t.Context(), w.config(0, 1)); err == nil {
			t.Errorf("TakeOver() error = nil without operations of kind %d of %s", tt.kind, tt.table)
		}
		if err := w.db.Faults().Remove(id); err != nil {
			t.Fatal(err)
		}
	}
	fenced := w.config(0, 1)
	fenced.Fence = closedFence{}
	if _, err := TakeOver(t.Context(), fenced); !errors.Is(err, errLost) || !errors.Is(err, fence.ErrWrite) {
		t.Errorf("TakeOver() error = %v behind the fence, want %v", err, errLost)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := TakeOver(ended, w.config(0, 1)); !errors.Is(err, context.Canceled) {
		t.Errorf("TakeOver() error = %v, want canceled", err)
	}
}
