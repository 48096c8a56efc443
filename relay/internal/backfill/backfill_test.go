package backfill

import (
	"cmp"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
	scyllacdc "github.com/scylladb/scylla-cdc-go"

	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/checkpoint"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

func TestBackfill_IsDecided(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	facts := cdclog.TableInfo{CDCTTL: 72 * time.Hour, RowTTL: 168 * time.Hour, Created: ago(1000 * time.Hour), Logged: ago(1000 * time.Hour)}
	young := facts
	young.Created, young.Logged = ago(10*time.Hour), ago(10*time.Hour)
	added := young
	added.Created = ago(1000 * time.Hour)
	short := facts
	short.RowTTL = 48 * time.Hour
	forever := facts
	forever.CDCTTL = 0
	altered := facts
	altered.Altered = ago(10 * time.Minute)
	unknown := facts
	unknown.Created, unknown.Logged = time.Time{}, time.Time{}
	need := func(f cdclog.TableInfo, change func(*decision)) decision {
		n := decision{now: now, facts: f, firstAge: 72 * time.Hour, window: 2 * time.Minute, auto: true}
		if change != nil {
			change(&n)
		}
		return n
	}
	at := func(d time.Duration) func(*decision) {
		return func(n *decision) { n.ran, n.position = true, ago(d) }
	}
	noTTL := facts
	noTTL.RowTTL = 0
	logAdded := short
	logAdded.Logged = ago(500 * time.Hour)
	shortAltered := facts
	shortAltered.RowTTL, shortAltered.Altered = 5*time.Hour, ago(10*time.Hour)
	justAltered := facts
	justAltered.Altered = ago(time.Minute)
	first := func(age time.Duration) func(*decision) { return func(n *decision) { n.firstAge = age } }
	for _, tt := range []struct {
		name          string
		need          decision
		reason, state string
		from, until   time.Time
	}{
		{"first start, old table", need(facts, nil), FirstStart, checkpoint.ScanRunning, time.Time{}, ago(63 * time.Hour)},
		{"first start, young table", need(young, nil), FirstStart, checkpoint.ScanNotNeeded, time.Time{}, ago(63 * time.Hour)},
		{"first start, rows live shorter than the log", need(short, nil), FirstStart, checkpoint.ScanNotNeeded, time.Time{}, ago(63 * time.Hour)},
		{"first start, no rows", need(facts, func(n *decision) { n.empty = true }), FirstStart, checkpoint.ScanNotNeeded, time.Time{}, ago(63 * time.Hour)},
		{"first start, log younger than the table", need(added, nil), FirstStart, checkpoint.ScanRunning, time.Time{}, ago(10*time.Hour - 30*time.Second)},
		{"first start, age unknown", need(unknown, nil), FirstStart, checkpoint.ScanRunning, time.Time{}, ago(63 * time.Hour)},
		{"first start, a log for ever", need(forever, nil), FirstStart, checkpoint.ScanRunning, time.Time{}, ago(63 * time.Hour)},
		{"first start, reads the last hour alone", need(facts, func(n *decision) { n.firstAge = time.Hour }), FirstStart, checkpoint.ScanRunning, time.Time{}, ago(52*time.Minute + 30*time.Second)},
		{"first start, rows live for ever", need(noTTL, nil), FirstStart, checkpoint.ScanRunning, time.Time{}, ago(63 * time.Hour)},
		{"first start, rows live shorter than a log that was added", need(logAdded, nil), FirstStart, checkpoint.ScanRunning, time.Time{}, ago(63 * time.Hour)},
		{"first start, rows live shorter than a log that was altered", need(shortAltered, nil), FirstStart, checkpoint.ScanRunning, time.Time{}, ago(10*time.Hour - 30*time.Second)},
		{"first start, reads further back than the log", need(facts, first(100*time.Hour)), FirstStart, checkpoint.ScanRunning, time.Time{}, ago(63 * time.Hour)},
		{"first start, reads the last minute alone", need(facts, first(time.Minute)), FirstStart, checkpoint.ScanRunning, time.Time{}, ago(52500 * time.Millisecond)},
		{"first start, off, reads the last hour alone", need(facts, func(n *decision) { n.auto, n.firstAge = false, time.Hour }), FirstStart, checkpoint.ScanNotNeeded, time.Time{}, ago(72 * time.Hour)},
		{"first start, off", need(facts, func(n *decision) { n.auto = false }), FirstStart, checkpoint.ScanNotNeeded, time.Time{}, ago(72 * time.Hour)},
		{"a short while away", need(facts, at(time.Minute)), "", "", time.Time{}, time.Time{}},
		{"nearly too long away", need(facts, at(67*time.Hour)), "", "", time.Time{}, time.Time{}},
		{"too long away", need(facts, at(68*time.Hour)), Outrun, checkpoint.ScanRunning, ago(68 * time.Hour), ago(63 * time.Hour)},
		{"nearly too long away, by a clock that is ahead", need(facts, func(n *decision) { at(67 * time.Hour)(n); n.ahead = time.Hour }), Outrun, checkpoint.ScanRunning, ago(67 * time.Hour), ago(62 * time.Hour)},
		{"a clock that is far ahead", need(facts, func(n *decision) { at(time.Hour)(n); n.ahead = 100 * time.Hour }), Outrun, checkpoint.ScanRunning, ago(time.Hour), ago(2 * time.Minute)},
		{"first start, by a clock that is ahead", need(facts, func(n *decision) { n.ahead = time.Hour }), FirstStart, checkpoint.ScanRunning, time.Time{}, ago(62 * time.Hour)},
		{"too long away, a first start reads the last hour alone", need(facts, func(n *decision) { at(68 * time.Hour)(n); n.firstAge = time.Hour }), Outrun, checkpoint.ScanRunning, ago(68 * time.Hour), ago(63 * time.Hour)},
		{"altered, and rows may not be visible", need(justAltered, at(2*time.Minute)), "", "", time.Time{}, time.Time{}},
		{"forced, first start, young table", need(young, func(n *decision) { n.forced = ago(5 * time.Hour) }), FirstStart, checkpoint.ScanNotNeeded, time.Time{}, ago(63 * time.Hour)},
		{"forced, first start, old table", need(facts, func(n *decision) { n.forced = ago(5 * time.Hour) }), Forced, checkpoint.ScanRunning, time.Time{}, ago(2 * time.Minute)},
		{"forced, first start, off", need(facts, func(n *decision) { n.auto, n.forced = false, ago(5*time.Hour) }), Forced, checkpoint.ScanRunning, ago(72 * time.Hour), ago(2 * time.Minute)},
		{"too long away, off", need(facts, func(n *decision) { at(68 * time.Hour)(n); n.auto = false }), "", "", time.Time{}, time.Time{}},
		{"altered after the position", need(altered, at(11*time.Minute)), Unlogged, checkpoint.ScanRunning, ago(13 * time.Minute), ago(10*time.Minute - 30*time.Second)},
		{"altered before the position", need(altered, at(9*time.Minute)), "", "", time.Time{}, time.Time{}},
		{"long away, a log for ever", need(forever, at(9000*time.Hour)), "", "", time.Time{}, time.Time{}},
		{"forced", need(facts, func(n *decision) { at(time.Minute)(n); n.forced = ago(5 * time.Hour) }), Forced, checkpoint.ScanRunning, ago(5 * time.Hour), ago(2 * time.Minute)},
		{"forced, off", need(facts, func(n *decision) { at(time.Minute)(n); n.auto = false; n.forced = ago(5 * time.Hour) }), Forced, checkpoint.ScanRunning, ago(5 * time.Hour), ago(2 * time.Minute)},
		{"forced, too long away", need(facts, func(n *decision) { at(100 * time.Hour)(n); n.forced = ago(5 * time.Hour) }), Forced, checkpoint.ScanRunning, ago(100 * time.Hour), ago(2 * time.Minute)},
		{"forced from the future", need(facts, func(n *decision) {
			at(time.Minute)(n)
			n.floor, n.forced = ago(200*time.Hour), now.Add(time.Hour)
		}), Forced, checkpoint.ScanDone, now.Add(time.Hour), ago(200 * time.Hour)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := tt.need.decide()
			if tt.reason == "" {
				if got != nil {
					t.Errorf("decide() = %+v, want nil", got)
				}
				return
			}
			if got == nil || got.Reason != tt.reason || got.State != tt.state || !got.From.Equal(tt.from) || !got.Until.Equal(tt.until) {
				t.Fatalf("decide() = %+v, want %s %s from %s until %s", got, tt.reason, tt.state, tt.from, tt.until)
			}
			// A relay that ran may have published rows since the time from which they are scanned, and
			// another one none before now.
			mark := tt.from
			switch {
			case tt.reason == FirstStart:
				mark = now
			case !tt.need.ran:
				mark = tt.need.forced
			}
			if !got.Started.Equal(now) || got.Ranges != Ranges || !got.Forced.Equal(tt.need.forced) || !got.Mark.Equal(mark) {
				t.Errorf("decide() = %+v, want a scan of %d ranges, started %s, forced from %s, mark %s", got, Ranges, now, tt.need.forced, mark)
			}
		})
	}
}

func TestBackfill_CoversWhatAnotherDoes(t *testing.T) {
	t.Parallel()
	day := func(n int) time.Time { return time.Date(2026, 3, n, 0, 0, 0, 0, time.UTC) }
	r := &checkpoint.Scan{From: day(3), Until: day(6), Mark: day(3)}
	r.Cover(&checkpoint.Scan{Until: day(4), Mark: day(2), Forced: day(1), Read: 7, Published: 5})
	if !r.From.IsZero() || !r.Until.Equal(day(6)) || !r.Mark.Equal(day(2)) || !r.Forced.Equal(day(1)) || r.Read != 7 || r.Published != 5 {
		t.Errorf("cover() = %+v", r)
	}
}

// Between two generations no stream is open. The relay is no further behind than
// it was, however long it has been running.
func TestBackfill_IsNotOutrunBetweenGenerations(t *testing.T) {
	t.Parallel()
	store := relaytest.NewCheckpoints()
	s := checkpoint.NewStreams(store, 100, relaytest.Logger(t), prometheus.NewRegistry())
	m := checkpoint.NewManager(store, s, relaytest.Logger(t), nil)
	began, now := relaytest.Start, relaytest.Start.Add(100*time.Hour)
	b := &Backfill{streams: s, facts: cdclog.TableInfo{CDCTTL: 72 * time.Hour}, position: began}
	if _, err := m.GetProgress(t.Context(), began, "t", scyllacdc.StreamID("a")); err != nil {
		t.Fatal(err)
	}
	p := s.Begin(scyllacdc.StreamID("a"))
	p.Idle(gocql.MaxTimeUUID(now.Add(-2 * time.Minute)))
	want := 72*time.Hour - 2*time.Minute
	if got := b.Left(now); got.Round(time.Second) != want {
		t.Fatalf("left() = %s with a stream, want %s", got, want)
	}
	if err := m.StartGeneration(t.Context(), now); err != nil {
		t.Fatal(err)
	}
	if n := s.Count(); n != 0 {
		t.Fatalf("%d streams are open, want none", n)
	}
	if got := b.Left(now); got.Round(time.Second) != want {
		t.Errorf("left() = %s between the generations, want %s: the relay would start anew", got, want)
	}
}

// A first start waits until the rows before a change of the log are visible, and no other
// start waits.
func TestBackfill_FirstStartWaits(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	old := cdclog.TableInfo{CDCTTL: 72 * time.Hour, Created: ago(1000 * time.Hour), Logged: ago(1000 * time.Hour)}
	altered := func(d time.Duration) cdclog.TableInfo {
		f := old
		f.Altered = ago(d)
		return f
	}
	logged := old
	logged.Logged = ago(time.Minute)
	fresh := cdclog.TableInfo{CDCTTL: 72 * time.Hour, Created: ago(time.Minute), Logged: ago(time.Minute), Altered: ago(time.Minute)}
	for _, tt := range []struct {
		name string
		need decision
		want time.Duration
	}{
		{"never altered", decision{facts: old, auto: true}, 0},
		{"made a minute ago", decision{facts: fresh, auto: true}, 0},
		{"altered just now", decision{facts: altered(0), auto: true}, 150 * time.Second},
		{"altered just now, no rows", decision{facts: altered(0), auto: true, empty: true}, 150 * time.Second},
		{"altered a minute ago", decision{facts: altered(time.Minute), auto: true}, 90 * time.Second},
		{"log made a minute ago", decision{facts: logged, auto: true}, 90 * time.Second},
		{"altered by a clock that is ahead", decision{facts: altered(-time.Minute), auto: true}, 210 * time.Second},
		{"all rows are visible", decision{facts: altered(150 * time.Second), auto: true}, 0},
		{"altered before the log keeps rows", decision{facts: altered(100 * time.Hour), auto: true}, 0},
		{"altered before the first minute that is read", decision{facts: altered(53 * time.Second), auto: true, firstAge: time.Minute}, 0},
		{"scans are off", decision{facts: altered(0)}, 0},
		{"ran before", decision{facts: altered(0), auto: true, ran: true, position: ago(time.Minute)}, 0},
	} {
		n := tt.need
		n.now, n.firstAge, n.window = now, cmp.Or(n.firstAge, 72*time.Hour), 2*time.Minute
		if got := max(0, n.settlesIn()); got != tt.want {
			t.Errorf("%s: settlesIn() = %s, want %s", tt.name, got, tt.want)
		}
	}
}
