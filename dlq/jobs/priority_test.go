package jobs

import (
	"bytes"
	"cmp"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/clocks"
	"github.com/scylla-outbox/scylla-outbox/test/seeds"
)

// requestedEvents returns the events of the requests for replays, in the order in which they
// were written.
func (b *fixture) requestedEvents(t *testing.T) (ids []gocql.UUID) {
	t.Helper()
	all, err := b.Requests(t.Context(), testTable, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range all {
		ids = append(ids, r.EventID)
	}
	return ids
}

// A job in order requests the replays one after the other, whatever its runner's concurrency.
func TestRunner_InOrder(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.reopen(t, dlq.WithClock(clocks.System{}))
	ids := b.writeMany(t, 60, nil)
	seeds.Rand(t).Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	start(t, b.jobs, RunnerConfig{Owner: "r1", Poll: 5 * time.Millisecond, Concurrency: 8})
	j := b.mustCreateJob(t, Spec{Action: dlq.ActionReplay, IDs: ids, BatchSize: 20, Follow: -1, InOrder: true})
	b.jobWhen(t, j.ID, "done", finished)
	if got := b.requestedEvents(t); !slices.Equal(got, ids) {
		t.Errorf("the replays were requested in the order %v, want %v", got, ids)
	}
	if _, err := b.jobs.Create(t.Context(), Spec{Action: dlq.ActionReplay, InOrder: true}, dlq.Actor{Name: "eve"}); err == nil || !strings.Contains(err.Error(), "in order") {
		t.Errorf("Create() in the order of a filter = %v", err)
	}
}

// A job by priority requests replays in the order of priorities, and of equal ones in
// that of the first failures, over its batches and within its limit.
func TestRunner_ByPriority(t *testing.T) {
	t.Parallel()
	for _, named := range []bool{false, true} {
		rnd := seeds.Rand(t)
		b := setup(t)
		b.reopen(t, dlq.WithClock(clocks.System{}))
		var want []*dlq.DeadLetter
		ids := b.writeMany(t, 40, func(_ int, l *dlq.DeadLetter) {
			l.Priority, l.FirstFailedAt = rnd.IntN(7)-3, time.Now().Add(-time.Duration(1+rnd.IntN(20))*time.Minute).Truncate(time.Minute)
			want = append(want, l)
		})
		slices.SortFunc(want, func(x, y *dlq.DeadLetter) int {
			return cmp.Or(y.Priority-x.Priority, x.FirstFailedAt.Compare(y.FirstFailedAt), bytes.Compare(x.EventID[:], y.EventID[:]))
		})
		spec := Spec{Action: dlq.ActionReplay, Limit: 25, BatchSize: 7, Follow: -1, ByPriority: true}
		if spec.Filter.EventType = "OrderCreated"; named {
			spec.Filter, spec.IDs = dlq.Filter{}, append(ids, gocql.MustRandomUUID())
		}
		start(t, b.jobs, RunnerConfig{Owner: "r1", Poll: 5 * time.Millisecond, Concurrency: 1})
		j := b.mustCreateJob(t, spec)
		b.jobWhen(t, j.ID, "done", finished)
		got := b.requestedEvents(t)
		if len(got) != spec.Limit {
			t.Fatalf("%d replays were requested, want %d", len(got), spec.Limit)
		}
		for i, id := range got {
			if id != want[i].EventID {
				t.Errorf("named %v: request %d is of %s, want %s with priority %d", named, i, id, want[i].EventID, want[i].Priority)
			}
		}
	}
}

// A job by priority that finds nothing changes nothing, also not what fails later.
func TestCreate_ByPriorityOfNone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.reopen(t, dlq.WithClock(clocks.System{}))
	b.writeMany(t, 3, nil)
	start(t, b.jobs, quick("r1"))
	j := b.mustCreateJob(t, Spec{Action: dlq.ActionReplay, Filter: dlq.Filter{Tags: []string{"none"}}, ByPriority: true})
	if j = b.jobWhen(t, j.ID, "done", finished); j.Progress.Done != 0 || len(b.requestedEvents(t)) != 0 {
		t.Errorf("the report is %+v", j.Progress)
	}
}

func TestRunner_SetsLabels(t *testing.T) {
	t.Parallel()
	b := setupJobs(t)
	ids := b.writeMany(t, 12, func(i int, l *dlq.DeadLetter) {
		l.Tags = []string{"old"}
		if i < 3 {
			l.Priority, l.Tags = 9, []string{"new"}
		}
	})
	start(t, b.jobs, quick("r1"))
	spec := Spec{Action: dlq.ActionSet, IDs: ids, BatchSize: 5, Set: &dlq.Labels{Priority: new(9), AddTags: []string{"new"}, RemoveTags: []string{"old"}}}
	j := b.mustCreateJob(t, spec)
	j = b.jobWhen(t, j.ID, "done", finished)
	if j.Progress.Changed != 9 || j.Progress.Skipped["already in that state"] != 3 || j.State != Done {
		t.Errorf("the report is %s %+v", j.State, j.Progress)
	}
	for _, id := range ids {
		if l := b.mustRead(t, id); l.Priority != 9 || !slices.Equal(l.Tags, []string{"new"}) || l.Status != dlq.Suspended {
			t.Errorf("%s has %d %v", l.Status, l.Priority, l.Tags)
		}
	}
	b.actedOnce(t, j.ID, 1, ids[3:])
	l := b.mustRead(t, ids[0])
	p, may, err := b.jobs.Preview(t.Context(), &spec, []dlq.DeadLetter{l})
	if err != nil || len(may) != 1 || p.DeadLetters != 1 || p.Followers != 0 {
		t.Errorf("Preview() = %+v, %v", p, err)
	}
}

func TestCreate_ReportsInvalidLabels(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for want, spec := range map[string]Spec{
		"set: name a priority":         {Action: dlq.ActionSet},
		"nothing to set":               {Action: dlq.ActionSet, Set: &dlq.Labels{}},
		"only the action set":          {Action: dlq.ActionSuspend, Set: &dlq.Labels{Priority: new(1)}},
		"priority 101":                 {Action: dlq.ActionSet, Set: &dlq.Labels{Priority: new(101)}},
		"only a replay":                {Action: dlq.ActionSuspend, ByPriority: true},
		`tag "a b"`:                    {Action: dlq.ActionSuspend, Filter: dlq.Filter{Tags: []string{"a b"}}},
		"priority -101: must be betwe": {Action: dlq.ActionSuspend, Filter: dlq.Filter{MinPriority: new(-101)}},
	} {
		if _, err := b.jobs.Create(t.Context(), spec, eve); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Create() = %v, want it to contain %q", err, want)
		}
	}
}

// A selection that is too large is refused as a whole: an order of a part would pass for
// the order of all.
func TestByPriority_RefusesWhatItCannotSort(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := New(b.Store)
	s.sorted = 7
	b.writeMany(t, 8, func(_ int, l *dlq.DeadLetter) { l.FirstFailedAt = time.Now().Add(-time.Minute) })
	spec := Spec{Action: dlq.ActionReplay, ByPriority: true, Limit: 5}
	if got, err := s.ByPriority(t.Context(), &spec); !errors.Is(err, ErrTooMany) || got != nil {
		t.Errorf("ByPriority() = %d dead letters, %v, want ErrTooMany", len(got), err)
	}
	if _, err := s.Create(t.Context(), spec, eve); !errors.Is(err, ErrTooMany) {
		t.Errorf("Create() = %v, want ErrTooMany", err)
	}
	if list, err := b.jobs.ListOpen(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("%d jobs, %v, want none", len(list), err)
	}
}
