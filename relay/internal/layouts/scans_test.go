package layouts

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/relay/internal/backfill"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/checkpoint"
)

func day(n int) time.Time { return time.Date(2026, 3, n, 0, 0, 0, 0, time.UTC) }

// done is a scan that ended.
func done(started, until int) checkpoint.Scan {
	return checkpoint.Scan{Started: day(started), Reason: backfill.Outrun, State: checkpoint.ScanDone, Until: day(until), Mark: day(started), Ranges: backfill.Ranges}
}

// A finished scan covers only the time that the finished scans of all shards cover.
func TestDoneScans(t *testing.T) {
	t.Parallel()
	forced := func(s checkpoint.Scan, from int) checkpoint.Scan {
		s.Forced = day(from)
		return s
	}
	not := done(5, 4)
	not.State, not.Reason = checkpoint.ScanNotNeeded, backfill.FirstStart
	running := done(9, 8)
	running.State = checkpoint.ScanRunning
	notNeeded := not
	notNeeded.Started, notNeeded.Mark = day(6), day(6)
	both := done(7, 3)
	for _, tt := range []struct {
		name string
		rows [][]checkpoint.Scan
		want *checkpoint.Scan
	}{
		{"one shard has none", [][]checkpoint.Scan{{done(5, 4)}, nil}, nil},
		{"one shard has a running one only", [][]checkpoint.Scan{{done(5, 4)}, {running}}, nil},
		{"the earlier end counts", [][]checkpoint.Scan{{done(5, 4)}, {done(7, 3)}}, &both},
		{"in any order", [][]checkpoint.Scan{{done(7, 3)}, {done(5, 4)}}, &both},
		{"the later scan of a shard counts", [][]checkpoint.Scan{{done(7, 3), done(4, 2)}}, &both},
		{"a running one does not", [][]checkpoint.Scan{{running, done(7, 3)}}, &both},
		{"none was needed", [][]checkpoint.Scan{{not}, {notNeeded}}, &checkpoint.Scan{
			Started: day(6), Reason: backfill.FirstStart, State: checkpoint.ScanNotNeeded, Until: day(4), Mark: day(6), Ranges: backfill.Ranges,
		}},
		{"one was needed", [][]checkpoint.Scan{{not}, {done(7, 3)}}, &both},
	} {
		if got := doneScans(tt.rows); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: doneScans() = %+v, want %+v", tt.name, got, tt.want)
		}
	}
	for _, tt := range []struct {
		name string
		rows [][]checkpoint.Scan
		want time.Time
	}{
		{"of both shards", [][]checkpoint.Scan{{forced(done(5, 4), 1)}, {forced(done(7, 3), 1)}}, day(1)},
		{"of one shard", [][]checkpoint.Scan{{forced(done(5, 4), 1)}, {done(7, 3)}}, time.Time{}},
		{"not done in one shard", [][]checkpoint.Scan{{forced(done(5, 4), 1)}, {done(7, 3), forced(running, 1)}}, time.Time{}},
		{"different", [][]checkpoint.Scan{{forced(done(5, 4), 1)}, {forced(done(7, 3), 2)}}, time.Time{}},
		{"the later of two", [][]checkpoint.Scan{{forced(done(5, 4), 1), forced(done(6, 4), 2)}}, day(2)},
	} {
		if got := doneScans(tt.rows); got == nil || !got.Forced.Equal(tt.want) {
			t.Errorf("a requested scan %s: doneScans() = %+v, want forced from %s", tt.name, got, tt.want)
		}
	}
}

// running is an unfinished scan that has finished so many ranges, from the first.
func running(started, from, until, mark, finished int) checkpoint.Scan {
	s := checkpoint.Scan{
		Started: day(started), Reason: backfill.Outrun, State: checkpoint.ScanRunning, From: day(from), Until: day(until), Mark: day(mark), Ranges: backfill.Ranges, Read: 7, Published: 5,
	}
	for n := range finished {
		s.Done = append(s.Done, n)
	}
	return s
}

// An unfinished scan covers the unfinished ones of all shards, where they have rows left.
func TestUnfinishedScans(t *testing.T) {
	t.Parallel()
	shards := []*progress{
		{Portion: cdclog.Portion{Tokens: part(0, 2)}, first: day(2)},
		{Portion: cdclog.Portion{Tokens: part(1, 2)}, first: day(3)},
	}
	if got := unfinishedScans(cdclog.Ring, shards, [][]checkpoint.Scan{{done(5, 4)}, nil}); got != nil {
		t.Errorf("unfinishedScans() = %+v without an unfinished one, want nil", got)
	}
	got := unfinishedScans(cdclog.Ring, shards, [][]checkpoint.Scan{{running(9, 6, 8, 7, 128)}, {done(12, 11), running(10, 5, 7, 6, 0)}})
	// Half of the first shard is done, a quarter of the ring, and nothing of the second one. The
	// range at the edge meets an open one of the shard.
	if got == nil || !got.Started.Equal(day(10)) || !got.From.Equal(day(5)) || !got.Until.Equal(day(8)) || !got.Mark.Equal(day(5)) ||
		got.Reason != backfill.Outrun || got.State != checkpoint.ScanRunning || got.Ranges != backfill.Ranges || got.Read != 0 || got.Published != 0 {
		t.Errorf("unfinishedScans() = %+v", got)
	} else if n := len(got.Done); n < 62 || n > 64 || got.Done[n-1] != n-1 {
		t.Errorf("%d ranges are done, %v, want the first quarter", n, got.Done)
	}
	later := running(9, 6, 8, 4, 0)
	if got := unfinishedScans(part(0, 2), shards, [][]checkpoint.Scan{{later}, {done(12, 11)}}); got == nil || len(got.Done) != 0 || !got.Mark.Equal(day(4)) {
		t.Errorf("unfinishedScans() = %+v, want nothing done and the scan's own mark", got)
	}
	// A scan of all rows publishes again what any of the shards, or an earlier scan, published.
	everything := running(9, 6, 8, 7, 0)
	everything.From = time.Time{}
	for _, tt := range []struct {
		other checkpoint.Scan
		want  time.Time
	}{{done(12, 11), day(2)}, {done(1, 1), day(1)}} {
		if got := unfinishedScans(cdclog.Ring, shards, [][]checkpoint.Scan{{everything}, {tt.other}}); got == nil || !got.Mark.Equal(tt.want) || !got.From.IsZero() {
			t.Errorf("unfinishedScans() = %+v, want the mark %s", got, tt.want)
		}
	}
}

// Scans of other layouts continue, with their finished ranges, and are taken over once.
func TestTakeOver_Scans(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	begin := func(index, count int, s checkpoint.Scan) {
		t.Helper()
		scans := w.readProgress(index, count).scans
		ranges := s.Done
		s.Done = nil
		if err := scans.Begin(t.Context(), &s, nil); err != nil {
			t.Fatal(err)
		}
		if len(ranges) > 0 {
			if err := scans.Advance(t.Context(), &s, ranges); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.remember(2)
	for i := range 2 {
		w.ran(i, 2, 90, 20)
		begin(i, 2, done(5, 4))
		begin(i, 2, running(9, 6, 8, 7, 128))
	}
	check := func(index, count int, finished int) {
		t.Helper()
		got, err := w.readProgress(index, count).scans.Load(t.Context())
		if err != nil || len(got) != 2 {
			t.Fatalf("Load() = %+v, %v, want two scans", got, err)
		}
		if s := got[1]; s.State != checkpoint.ScanDone || !s.Until.Equal(day(4)) || !s.Started.Equal(day(5)) {
			t.Errorf("the finished scan is %+v", s)
		}
		if s := got[0]; s.State != checkpoint.ScanRunning || !s.From.Equal(day(6)) || !s.Until.Equal(day(8)) || len(s.Done) != finished {
			t.Errorf("the unfinished scan is %+v, want %d ranges done", s, finished)
		}
	}
	w.takeOver(0, 1)
	all, err := w.readProgress(0, 1).scans.Load(t.Context())
	if err != nil || len(all) == 0 {
		t.Fatal(all, err)
	}
	finished := len(all[0].Done)
	if finished < 124 || finished > 128 {
		t.Errorf("%d ranges are done, want half of each half", finished)
	}
	check(0, 1, finished)
	w.ran(0, 2, 90, 10)
	w.ran(1, 2, 90, 10)
	w.takeOver(0, 1)
	check(0, 1, finished)
	// A shard that has a running scan of its own continues with one that covers both.
	own := running(11, 7, 10, 7, 3)
	begin(0, 3, own)
	w.takeOver(0, 3)
	got, err := w.readProgress(0, 3).scans.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(got, func(s checkpoint.Scan) bool { return s.State == checkpoint.ScanRunning })
	if i < 0 || !got[i].From.Equal(day(6)) || !got[i].Until.Equal(day(10)) || len(got[i].Done) != 0 {
		t.Errorf("scans = %+v, want one that covers both and has nothing done", got)
	}
}
