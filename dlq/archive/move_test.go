package archive

import (
	"context"
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/dlq/jobs"
)

var _ jobs.Archive = (*Sweeper)(nil)

var ann = dlq.Actor{Name: "ann", Reason: "GDPR"}

// jobs are the jobs of the store.
func (b *fixture) jobs() *jobs.Store { return jobs.New(b.store) }

// job makes a job and runs it until it ends, with the archive.
func (b *fixture) job(spec jobs.Spec) *jobs.Job {
	b.Helper()
	j, err := b.jobs().Create(b.Context(), spec, ann)
	b.must(err)
	return b.runs(j.ID)
}

func (b *fixture) runs(id gocql.UUID) *jobs.Job {
	b.Helper()
	r := jobs.NewRunner(b.jobs(), jobs.RunnerConfig{Owner: "r", Poll: 5 * time.Millisecond, Archive: b.sweeper})
	j, err := r.RunJob(b.Context(), id)
	b.must(err)
	return j
}

// writeEdited writes a dead letter that was edited twice and resolved.
func (b *fixture) writeEdited(aggregate string) gocql.UUID {
	b.Helper()
	id := b.write(aggregate, 1, dlq.Suspended)
	for _, text := range []string{`{"secret":1}`, `{"secret":2}`} {
		_, err := b.store.Edit(b.Context(), id, dlq.Edit{Payload: []byte(text), ContentType: "application/json"}, ann, 0)
		b.must(err)
	}
	b.resolve(id)
	return id
}

// editRows is how many edits the database has.
func (b *fixture) editRows() (n int) {
	b.Helper()
	b.must(b.database.Session.Query("SELECT COUNT(*) FROM dead_letter_edits").Scan(&n))
	return n
}

func TestSweeper_JobsPurgeAndRestore(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	edited := b.writeEdited("e")
	plain := b.write("p", 1, dlq.Resolved)
	suspended := b.write("m", 1, dlq.Suspended)
	open := b.write("o", 1, dlq.Pending)
	before := map[gocql.UUID]dlq.Copy{}
	for _, id := range []gocql.UUID{edited, plain, suspended} {
		c, err := b.store.Copy(t.Context(), id)
		b.must(err)
		before[id] = c
	}
	if n := len(before[edited].Edits); n != 2 || b.editRows() != 2 {
		t.Fatalf("%d edits in the copy, %d in the database, want 2", n, b.editRows())
	}
	b.advance(time.Second)

	j := b.job(jobs.Spec{Action: dlq.ActionPurge})
	if p := j.Progress; j.State != jobs.Done || p.Total != 2 || p.Changed != 2 || p.SkippedAll() != 0 {
		t.Fatalf("purge of resolved ones: %s %+v %s", j.State, p, j.Error)
	}
	if n := b.editRows(); n != 0 {
		t.Errorf("%d edited payloads stay after the purge", n)
	}
	outline := b.read(edited)
	if outline.Status != dlq.Archived || outline.Edit != nil || outline.EditedID != before[edited].DeadLetter.EditedID {
		t.Errorf("the outline of an edited dead letter: %+v", outline)
	}
	if h, err := b.store.History(t.Context(), plain); err != nil || len(h) != 1 || h[0].By != "ann" || h[0].Why != "GDPR" || h[0].Job != j.ID {
		t.Errorf("history %+v, %v", h, err)
	}
	// Both are in one object.
	object := outline.Archive
	if got := b.read(plain).Archive; got != object || object == "" {
		t.Errorf("objects %q and %q, want one", object, got)
	}
	if j = b.job(jobs.Spec{Action: dlq.ActionPurge}); j.Progress.Total != 0 {
		t.Errorf("outlines are purged again: %+v", j.Progress)
	}

	// By ids: a dead letter that may not be purged is skipped and reported.
	j = b.job(jobs.Spec{Action: dlq.ActionPurge, IDs: []gocql.UUID{suspended, open, gocql.MustRandomUUID()}})
	if want := map[string]int{"suspended": 1, "pending": 1, "missing": 1}; !reflect.DeepEqual(j.Progress.Skipped, want) || j.Progress.Changed != 0 {
		t.Errorf("skipped %v, want %v", j.Progress.Skipped, want)
	}
	j = b.job(jobs.Spec{Action: dlq.ActionPurge, IDs: []gocql.UUID{suspended, open}, Force: true})
	if j.Progress.Changed != 1 || b.read(suspended).Archive == "" || b.read(open).Status != dlq.Pending {
		t.Errorf("by force: %+v", j.Progress)
	}

	// And back, from two objects, to the byte.
	lost := b.write("l", 1, dlq.Resolved)
	b.job(jobs.Spec{Action: dlq.ActionPurge, IDs: []gocql.UUID{lost}, NoArchive: true})
	j = b.job(jobs.Spec{Action: dlq.ActionRestore, IDs: []gocql.UUID{edited, plain, suspended, lost, open}})
	if want := map[string]int{"no copy": 1, "pending": 1}; j.Progress.Changed != 3 || !reflect.DeepEqual(j.Progress.Skipped, want) {
		t.Errorf("restore: %+v", j.Progress)
	}
	for _, id := range []gocql.UUID{edited, plain} {
		c, err := b.store.Copy(t.Context(), id)
		b.must(err)
		want := before[id]
		if !reflect.DeepEqual(c.History[:len(want.History)], want.History) || len(c.History) != len(want.History)+2 {
			t.Errorf("history %+v", c.History)
		}
		c.DeadLetter.Version, c.History = want.DeadLetter.Version, want.History
		if got, want := newRecord(&c), newRecord(&want); !reflect.DeepEqual(got, want) {
			t.Errorf("restored\n%+v\nwant\n%+v", got, want)
		}
	}
	if l := b.read(suspended); l.Status != dlq.Suspended || !l.Unblocked {
		t.Errorf("a dead letter that was never resolved is %+v", l)
	}
	if n := b.editRows(); n != 2 {
		t.Errorf("%d edits after the restore, want 2", n)
	}
}

// A runner crashes at any write of a purge, and another one finishes it: each dead
// letter is purged once, and each is complete in the archive.
func TestSweeper_PurgeCrashesAtEveryWrite(t *testing.T) {
	t.Parallel()
	step := 1
	if testing.Short() {
		step = 4
	}
	for skip := 0; skip < 9; skip += step {
		b := setup(t, nil)
		ids := []gocql.UUID{b.writeEdited("e"), b.write("a", 1, dlq.Resolved), b.write("b", 1, dlq.Resolved)}
		j, err := b.jobs().Create(t.Context(), jobs.Spec{Action: dlq.ActionPurge, IDs: ids}, ann)
		b.must(err)
		ctx, die := context.WithCancel(t.Context())
		left := skip
		rule := b.database.Node.Faults().MustAdd(faults.Rule{
			Match: faults.Match{Kinds: []engine.OpKind{engine.OpCAS, engine.OpWrite}},
			Effect: faults.Effect{Decide: func(engine.Op) (engine.Verdict, bool) {
				if left--; left < 0 {
					die()
				}
				return engine.Verdict{}, false
			}},
		})
		_, err = jobs.NewRunner(b.jobs(), jobs.RunnerConfig{Owner: "r", Poll: time.Hour, Archive: b.sweeper}).RunJob(ctx, j.ID)
		if err == nil && skip < 3 {
			t.Fatal("it did not die")
		}
		b.database.Node.Faults().Remove(rule)
		die()
		if end := b.runs(j.ID); end.State != jobs.Done || end.Progress.Changed != 3 || end.Progress.SkippedAll() != 0 {
			t.Errorf("after a crash at write %d: %s %+v", skip, end.State, end.Progress)
		}
		for _, id := range ids {
			l := b.read(id)
			if _, err := b.archive.DeadLetter(t.Context(), l.Archive, id); err != nil || l.Status != dlq.Archived || l.Payload != nil {
				t.Errorf("after a crash at write %d: %s is %s in %q, %v", skip, id, l.Status, l.Archive, err)
			}
		}
		if n := b.editRows(); n != 0 {
			t.Errorf("after a crash at write %d: %d edited payloads stay", skip, n)
		}
	}
}

// An archive that fails pauses the job, which contains the reason; nothing is purged.
func TestSweeper_ATroubledArchivePauses(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	id := b.write("a", 1, dlq.Resolved)
	if err := os.Chmod(b.archive.bucket.(*folder).dir, 0o500); err != nil {
		t.Fatal(err)
	}
	b.archive.stored = func(string) { panic("it was written") }
	if os.Geteuid() == 0 { // permissions do not apply to root
		b.must(os.RemoveAll(b.archive.bucket.(*folder).dir))
		b.must(os.WriteFile(b.archive.bucket.(*folder).dir, nil, 0o600))
	}
	for _, action := range []dlq.Action{dlq.ActionPurge, dlq.ActionArchive} {
		b.advance(40 * 24 * time.Hour)
		j := b.job(jobs.Spec{Action: action})
		if j.State != jobs.Paused || j.Error == "" || len(j.History) != 2 {
			t.Errorf("%s: the job is %s, error %q, %+v", action, j.State, j.Error, j.History)
		}
	}
	if l := b.read(id); l.Status != dlq.Resolved || l.Payload == nil {
		t.Errorf("the dead letter is %+v", l)
	}
}

func TestSweeper_JobSweeps(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	k := b.sweeper
	ids := []gocql.UUID{b.write("a", 1, dlq.Resolved), b.write("b", 1, dlq.Resolved)}
	held := b.write("c", 1, dlq.Failed)
	b.write("c", 2, dlq.Blocked)
	b.advance(100 * 24 * time.Hour)
	young := b.write("d", 1, dlq.Resolved)
	plan, more, err := k.Plan(t.Context())
	if err != nil || more || plan.Archived[dlq.Resolved] != 2 || plan.Held != 1 || b.read(ids[0]).Status != dlq.Resolved {
		t.Fatalf("Plan() = %+v, %v, %v", plan, more, err)
	}
	j := b.job(jobs.Spec{Action: dlq.ActionArchive})
	if p := j.Progress; j.State != jobs.Done || p.Changed != 2 || p.Total != 3 || p.Skipped["held"] != 1 || len(j.History) != 2 {
		t.Errorf("the sweep: %s %+v %+v", j.State, p, j.History)
	}
	for _, id := range ids {
		if l := b.read(id); l.Status != dlq.Archived {
			t.Errorf("%s is %s", id, l.Status)
		}
	}
	if b.read(young).Status != dlq.Resolved || b.read(held).Status != dlq.Failed {
		t.Error("the sweep moved too much")
	}
	b.advance(400 * 24 * time.Hour)
	if plan, _, err := k.Plan(t.Context()); err != nil || len(plan.Expired) != 1 {
		t.Errorf("Plan() = %+v, %v, want one object expired", plan, err)
	}
}

// Without an archive a runner leaves such jobs alone.
func TestRunner_WithoutAnArchive(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	id := b.write("a", 1, dlq.Resolved)
	none := jobs.NewRunner(b.jobs(), jobs.RunnerConfig{Poll: 5 * time.Millisecond})
	for _, spec := range []jobs.Spec{{Action: dlq.ActionPurge}, {Action: dlq.ActionRestore}, {Action: dlq.ActionArchive}} {
		j, err := b.jobs().Create(t.Context(), spec, ann)
		b.must(err)
		if _, err := none.RunJob(t.Context(), j.ID); !errors.Is(err, dlq.ErrArchive) {
			t.Errorf("%s without an archive = %v, want ErrArchive", spec.Action, err)
		}
		if now, err := b.jobs().Read(t.Context(), j.ID); err != nil || now.State != jobs.Queued {
			t.Errorf("the job is %s, %v", now.State, err)
		}
	}
	j, err := b.jobs().Create(t.Context(), jobs.Spec{Action: dlq.ActionPurge, IDs: []gocql.UUID{id}, NoArchive: true}, ann)
	b.must(err)
	if j, err = none.RunJob(t.Context(), j.ID); err != nil || j.Progress.Changed != 1 {
		t.Errorf("a purge that needs none: %+v, %v", j.Progress, err)
	}
}

// A dead letter that changes after it was read is not purged, although it was copied.
func TestSweeper_PurgeSkipsConcurrentChanges(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	id := b.write("a", 1, dlq.Suspended)
	b.archive.stored = func(key string) {
		if strings.HasSuffix(key, manifestSuffix) {
			b.must(b.store.Unblock(t.Context(), id, dlq.Actor{Name: "eve"}))
		}
	}
	left, err := b.sweeper.Purge(t.Context(), []gocql.UUID{id}, true, ann)
	var v *dlq.VersionError
	if err != nil || !errors.As(left[0], &v) {
		t.Errorf("Purge() = %v, %v, want a *VersionError", left, err)
	}
	if l := b.read(id); l.Status != dlq.Suspended || !l.Unblocked || l.Payload == nil {
		t.Errorf("the dead letter is %+v", l)
	}
}

// A purged dead letter that is restored just before it is purged again stays complete:
// no object contains the copy that would be written.
func TestSweeper_PurgeSkipsConcurrentRestores(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	id := b.write("a", 1, dlq.Suspended)
	k := b.sweeper
	if left, err := k.Purge(t.Context(), []gocql.UUID{id}, true, ann); err != nil || left[0] != nil {
		t.Fatal(left, err)
	}
	seen, err := b.store.Copy(t.Context(), id)
	b.must(err)
	if left, err := k.Restore(t.Context(), []gocql.UUID{id}, ann); err != nil || left[0] != nil {
		t.Fatal(left, err)
	}
	var refused error
	m := mover{
		s: k, how: dlq.Purge{Force: true}, by: func(*dlq.DeadLetter) dlq.Actor { return ann }, moved: func(_ *dlq.DeadLetter, err error) { refused = err },
	}
	var v *dlq.VersionError
	if err := m.take(t.Context(), &seen); err != nil || !errors.As(refused, &v) {
		t.Errorf("take() = %v, refused %v, want a *VersionError", err, refused)
	}
	if l := b.read(id); l.Payload == nil || !l.PurgedAt.IsZero() {
		t.Errorf("the dead letter is %+v", l)
	}
}
