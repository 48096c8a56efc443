package relay

import (
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
	scyllacdc "github.com/scylladb/scylla-cdc-go"

	"github.com/scylla-outbox/scylla-outbox/relay/hint"
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
	unknown := facts
	unknown.Created, unknown.Logged = time.Time{}, time.Time{}
	need := func(f cdclog.TableInfo, change func(*backfillNeed)) backfillNeed {
		n := backfillNeed{now: now, facts: f, firstAge: 72 * time.Hour, window: 2 * time.Minute, auto: true}
		if change != nil {
			change(&n)
		}
		return n
	}
	at := func(d time.Duration) func(*backfillNeed) {
		return func(n *backfillNeed) { n.ran, n.position = true, ago(d) }
	}
	for _, tt := range []struct {
		name          string
		need          backfillNeed
		reason, state string
		from, until   time.Time
	}{
		{"first start, old table", need(facts, nil), backfillFirstStart, checkpoint.ScanRunning, time.Time{}, ago(63 * time.Hour)},
		{"first start, young table", need(young, nil), backfillFirstStart, checkpoint.ScanNotNeeded, time.Time{}, ago(63 * time.Hour)},
		{"first start, rows live shorter than the log", need(short, nil), backfillFirstStart, checkpoint.ScanNotNeeded, time.Time{}, ago(63 * time.Hour)},
		{"first start, no rows", need(facts, func(n *backfillNeed) { n.empty = true }), backfillFirstStart, checkpoint.ScanNotNeeded, time.Time{}, ago(63 * time.Hour)},
		{"first start, log younger than the table", need(added, nil), backfillFirstStart, checkpoint.ScanRunning, time.Time{}, ago(10*time.Hour - time.Second)},
		{"first start, age unknown", need(unknown, nil), backfillFirstStart, checkpoint.ScanRunning, time.Time{}, ago(63 * time.Hour)},
		{"first start, a log for ever", need(forever, nil), backfillFirstStart, checkpoint.ScanRunning, time.Time{}, ago(63 * time.Hour)},
		{"first start, reads the last hour alone", need(facts, func(n *backfillNeed) { n.firstAge = time.Hour }), backfillFirstStart, checkpoint.ScanRunning, time.Time{}, ago(52*time.Minute + 30*time.Second)},
		{"first start, off", need(facts, func(n *backfillNeed) { n.auto = false }), backfillFirstStart, checkpoint.ScanNotNeeded, time.Time{}, ago(72 * time.Hour)},
		{"a short while away", need(facts, at(time.Minute)), "", "", time.Time{}, time.Time{}},
		{"nearly too long away", need(facts, at(67*time.Hour)), "", "", time.Time{}, time.Time{}},
		{"too long away", need(facts, at(68*time.Hour)), backfillOutrun, checkpoint.ScanRunning, ago(68 * time.Hour), ago(63 * time.Hour)},
		{"too long away, off", need(facts, func(n *backfillNeed) { at(68 * time.Hour)(n); n.auto = false }), "", "", time.Time{}, time.Time{}},
		{"long away, a log for ever", need(forever, at(9000*time.Hour)), "", "", time.Time{}, time.Time{}},
		{"forced", need(facts, func(n *backfillNeed) { at(time.Minute)(n); n.forced = ago(5 * time.Hour) }), backfillForced, checkpoint.ScanRunning, ago(5 * time.Hour), ago(2 * time.Minute)},
		{"forced, off", need(facts, func(n *backfillNeed) { at(time.Minute)(n); n.auto = false; n.forced = ago(5 * time.Hour) }), backfillForced, checkpoint.ScanRunning, ago(5 * time.Hour), ago(2 * time.Minute)},
		{"forced, too long away", need(facts, func(n *backfillNeed) { at(100 * time.Hour)(n); n.forced = ago(5 * time.Hour) }), backfillForced, checkpoint.ScanRunning, ago(100 * time.Hour), ago(2 * time.Minute)},
		{"forced from the future", need(facts, func(n *backfillNeed) {
			at(time.Minute)(n)
			n.floor, n.forced = ago(200*time.Hour), now.Add(time.Hour)
		}), backfillForced, checkpoint.ScanDone, now.Add(time.Hour), ago(200 * time.Hour)},
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
				t.Errorf("decide() = %+v, want %s %s from %s until %s", got, tt.reason, tt.state, tt.from, tt.until)
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

// What is behind the scan, what is ahead of it, and what is forgotten.
func TestOlderRows(t *testing.T) {
	t.Parallel()
	until := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	o := newOlderRows(&checkpoint.Scan{Until: until, Ranges: 4, Done: []int{2}}, cdclog.Ring, 2)
	var ids [4][]gocql.UUID
	for n := 0; len(ids[0]) < 3 || len(ids[1]) < 3 || len(ids[2]) < 3 || len(ids[3]) < 3; n++ {
		id := relaytest.Event(n, 1, "x").AggregateID
		r := cdclog.Ring.PartOf(hint.Token(id), 4)
		ids[r] = append(ids[r], id)
	}
	a, b := ids[0][0], ids[0][1]
	if hint.Token(a) > hint.Token(b) {
		a, b = b, a
	}
	if !o.behind(a) || o.behind(ids[2][0]) {
		t.Error("behind() is not as the ranges are done")
	}
	o.scanned(a)
	if o.behind(a) || !o.behind(b) {
		t.Error("the scan has passed a, and not b")
	}
	o.note(b, 3)
	if !o.behind(b) || o.aheadOf(b) != 3 {
		t.Errorf("behind() = %t, aheadOf() = %d, want true and 3", o.behind(b), o.aheadOf(b))
	}
	o.passed(b)
	o.passed(ids[3][0])
	if ok, wait := o.room(); o.behind(b) || ok || wait == nil {
		t.Error("two aggregates are ahead, and there is room for another")
	}
	_, wait := o.room()
	o.close(0)
	<-wait
	if ok, _ := o.room(); !ok || o.behind(b) || o.isOpen(0) || !o.isOpen(1) {
		t.Error("close() did not end the range")
	}
	e := relaytest.Event(0, 2, "x")
	e.AggregateID = ids[3][1]
	us := until.UnixMicro()
	for _, tt := range []struct {
		seq, written int64
		l            line
		known, gaps  bool
		want         bool
	}{
		{2, us + 1, line{}, false, false, true},
		{1, us + 1, line{}, false, false, false},
		{1, us, line{}, false, false, true},
		{2, us + 1, line{1, 2}, true, false, false},
		{2, us + 1, line{1, 2}, true, true, true},
		{7, us + 1, line{5, 7}, true, false, true},
	} {
		e.Sequence = tt.seq
		if got := o.holdsBack(&e, tt.written, tt.l, tt.known, tt.gaps); got != tt.want {
			t.Errorf("holdsBack(seq %d, %+v) = %t, want %t", tt.seq, tt, got, tt.want)
		}
	}
}

// What is found in the topics is kept for the first ranges, as many as there is
// room for, and always for one.
func TestOlderFound_IsBounded(t *testing.T) {
	t.Parallel()
	row := &checkpoint.Scan{Until: time.Now(), Ranges: 16, Done: []int{0}}
	o := newOlderRows(row, cdclog.Ring, 10)
	f := newOlderFound(o, 20)
	all := relaytest.Events(200, 1, "x")
	for range 2 { // once more what is there already
		for i := range all {
			f.take(all[i].AggregateID, all[i].ID)
		}
	}
	if f.ranges >= row.Ranges || f.ranges < 2 {
		t.Fatalf("%d ranges are known, want some of %d", f.ranges, row.Ranges)
	}
	kept := 0
	for _, e := range all {
		r := cdclog.Ring.PartOf(hint.Token(e.AggregateID), row.Ranges)
		if got, want := o.isOut(e.AggregateID, e.ID), r > 0 && r < f.ranges; got != want {
			t.Errorf("isOut(event of range %d) = %t, want %t", r, got, want)
		} else if got {
			kept++
		}
	}
	if kept != f.kept || kept > f.most && f.ranges > 2 {
		t.Errorf("%d events are kept, it says %d, want at most %d", kept, f.kept, f.most)
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
	b := &backfill{streams: s, facts: cdclog.TableInfo{CDCTTL: 72 * time.Hour}, position: began}
	if _, err := m.GetProgress(t.Context(), began, "t", scyllacdc.StreamID("a")); err != nil {
		t.Fatal(err)
	}
	p := s.Begin(scyllacdc.StreamID("a"))
	p.Idle(gocql.MaxTimeUUID(now.Add(-2 * time.Minute)))
	want := 72*time.Hour - 2*time.Minute
	if got := b.left(now); got.Round(time.Second) != want {
		t.Fatalf("left() = %s with a stream, want %s", got, want)
	}
	if err := m.StartGeneration(t.Context(), now); err != nil {
		t.Fatal(err)
	}
	if n := s.Count(); n != 0 {
		t.Fatalf("%d streams are open, want none", n)
	}
	if got := b.left(now); got.Round(time.Second) != want {
		t.Errorf("left() = %s between the generations, want %s: the relay would start anew", got, want)
	}
}
