package dlq

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
)

// writeResolved returns a replayed dead letter with all columns.
func (b *fixture) writeResolved(t *testing.T) *DeadLetter {
	t.Helper()
	l := testDeadLetter("a", 1)
	l.Payload, l.Raw = []byte{0, 0xff, '\n'}, map[string]string{"c": "0x00"}
	b.mustWrite(t, l)
	if _, err := b.Claim(t.Context(), l.EventID, me, time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := b.Resolve(t.Context(), l.EventID, me, Outcome{Kind: OutcomeReplayed, Topic: "OrderCreated", Partition: 1, Offset: 2}); err != nil {
		t.Fatal(err)
	}
	return l
}

func TestPurge_LeavesAnOutlineAndRestoreBringsItBack(t *testing.T) {
	t.Parallel()
	b := setup(t)
	l := b.writeResolved(t)
	before, history := b.mustRead(t, l.EventID), b.mustHistory(t, l.EventID)
	seen := eve
	seen.Version = before.Version - 1
	var v *VersionError
	if err := b.Purge(t.Context(), l.EventID, Purge{Archive: "x"}, seen); !errors.As(err, &v) {
		t.Fatalf("a dead letter that has changed since it was copied: %v, want a *VersionError", err)
	}
	seen.Version = before.Version
	if err := b.Purge(t.Context(), l.EventID, Purge{Archive: "2026/01/02/x.jsonl.zst"}, seen); err != nil {
		t.Fatal(err)
	}
	outline := b.mustRead(t, l.EventID)
	if outline.Payload != nil || outline.Headers != nil || outline.ErrorText != "" || outline.ErrorChain != nil || outline.Metadata != nil || outline.Raw != nil {
		t.Errorf("a purged dead letter still has %+v", outline)
	}
	if outline.Status != Archived || outline.PurgedAt.IsZero() || outline.Archive != "2026/01/02/x.jsonl.zst" || outline.Outcome != before.Outcome ||
		outline.WrittenAt != l.WrittenAt || outline.Table != l.Table || outline.ErrorClass != l.ErrorClass {
		t.Errorf("the outline is %+v", outline)
	}
	b.mustBeListed(t, l.EventID)
	if h := b.mustHistory(t, l.EventID); len(h) != 1 || h[0].Action != ActionPurge || h[0].By != eve.Name || h[0].Why != eve.Reason {
		t.Errorf("history %+v", h)
	}

	// The event's row is read again: the event is known, and the dead letter does not
	// change.
	if st, err := b.Write(t.Context(), l); err != nil || st != Archived {
		t.Errorf("Write() of a purged event = %s, %v", st, err)
	}
	b.mustBeListed(t, l.EventID)
	if err := b.Purge(t.Context(), l.EventID, Purge{}, eve); err != nil {
		t.Errorf("purging again: %v", err)
	}
	if again := b.mustRead(t, l.EventID); again.Version != outline.Version || again.Archive != outline.Archive {
		t.Errorf("purging again changed it: %+v", again)
	}

	if err := b.Restore(t.Context(), l.EventID, nil, eve); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "copy") {
		t.Errorf("Restore() without the copy = %v", err)
	}
	other := before
	other.EventID = gocql.MustRandomUUID()
	if err := b.Restore(t.Context(), l.EventID, &Copy{DeadLetter: other}, eve); err == nil {
		t.Error("Restore() took the copy of another event")
	}
	if err := b.Restore(t.Context(), l.EventID, &Copy{DeadLetter: before, History: history}, eve); err != nil {
		t.Fatal(err)
	}
	after := b.mustRead(t, l.EventID)
	after.Version = before.Version
	if !reflect.DeepEqual(after, before) {
		t.Errorf("restored\n%+v\nwant\n%+v", after, before)
	}
	h := b.mustHistory(t, l.EventID)
	if len(h) != len(history)+2 || !reflect.DeepEqual(h[:len(history)], history) || h[len(h)-2].Action != ActionPurge || h[len(h)-1].Action != ActionRestore {
		t.Errorf("history after all %+v", h)
	}
	b.mustBeListed(t, l.EventID)
}

func TestPurge_OpenDeadLettersOnlyByForce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, from := range []Status{Pending, Blocked, Processing} {
		id := b.bring(t, from)
		b.clock.advance(time.Hour) // claims have expired
		if err := b.Purge(t.Context(), id, Purge{Force: true}, eve); !errors.Is(err, ErrRefused) {
			t.Errorf("purge of a %s dead letter = %v, want it refused", from, err)
		}
	}
	for _, from := range []Status{Failed, Suspended} {
		id := b.bring(t, from)
		if err := b.Purge(t.Context(), id, Purge{}, eve); !errors.Is(err, ErrRefused) {
			t.Errorf("purge of a %s dead letter without force = %v, want it refused", from, err)
		}
		whole := b.mustRead(t, id)
		if err := b.CheckPurge(&whole, Purge{}); !errors.Is(err, ErrRefused) {
			t.Errorf("CheckPurge() = %v", err)
		}
		b.clock.advance(time.Second) // requests of the same moment have no order
		if err := b.Purge(t.Context(), id, Purge{Force: true, Archive: "x"}, eve); err != nil {
			t.Fatal(err)
		}
		b.mustBeListed(t, id)
		rs, err := b.Requests(t.Context(), testTable, nil)
		if err != nil || len(rs) == 0 || rs[len(rs)-1].EventID != id || rs[len(rs)-1].Entry.Status != Archived {
			t.Errorf("the requests are %+v, %v", rs, err)
		}
		if err := b.Restore(t.Context(), id, &Copy{DeadLetter: whole}, eve); err != nil {
			t.Fatal(err)
		}
		if l := b.mustRead(t, id); l.Status != Suspended || !l.Unblocked || string(l.Payload) != string(whole.Payload) {
			t.Errorf("restored: %+v", l)
		}
		b.mustBeListed(t, id)
	}
}

func TestForget_OnlyWhatWasPurged(t *testing.T) {
	t.Parallel()
	b := setup(t)
	l := b.writeResolved(t)
	if err := b.Forget(t.Context(), l.EventID); !errors.Is(err, ErrRefused) {
		t.Fatalf("Forget() of a whole dead letter = %v", err)
	}
	if err := b.Purge(t.Context(), l.EventID, Purge{}, eve); err != nil {
		t.Fatal(err)
	}
	if err := b.Forget(t.Context(), l.EventID); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Read(t.Context(), l.EventID); !errors.Is(err, ErrNotFound) {
		t.Errorf("Read() = %v", err)
	}
	var n int
	if err := b.Session.Query("SELECT COUNT(*) FROM dead_letter_lookups").Scan(&n); err != nil || n != 0 {
		t.Errorf("%d entries of lists are left, %v", n, err)
	}
	if err := b.Forget(t.Context(), l.EventID); !errors.Is(err, ErrNotFound) {
		t.Errorf("Forget() again = %v", err)
	}
}

// A dead letter that was forgotten without an acknowledgement is in no list; nothing
// else would remove the entry.
func TestForget_AnswerLost(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"applied", "decided", "undecided", "connection lost, applied"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			l := b.writeResolved(t)
			if err := b.Purge(t.Context(), l.EventID, Purge{}, eve); err != nil {
				t.Fatal(err)
			}
			hits := b.fault("dead_letter_queue", engine.OpCAS, 0, 1, casFaults[how])
			if err := b.Forget(t.Context(), l.EventID); err != nil || hits() != 1 {
				t.Errorf("Forget() = %v after %d faults", err, hits())
			}
			if stats, err := b.Stats(t.Context()); err != nil || stats.ByStatus[Archived] != 0 {
				t.Errorf("Stats() counts %d archived dead letters (%v), want none", stats.ByStatus[Archived], err)
			}
		})
	}
}

// A copy contains the current edit also if the history no longer does. Otherwise a
// restored dead letter would contain an id without an edit.
func TestCopy_OfAnEditThatTheHistoryHasForgotten(t *testing.T) {
	t.Parallel()
	b := setup(t)
	l := testDeadLetter("order-1", 1)
	b.mustWrite(t, l)
	edited, err := b.Edit(t.Context(), l.EventID, Edit{Payload: []byte(`{"n":2}`), ContentType: l.ContentType}, eve, 0)
	if err == nil {
		err = b.Discard(t.Context(), l.EventID, eve)
	}
	if err == nil { // as a thousand changes do
		err = b.Session.Query("DELETE history[2] FROM dead_letter_queue WHERE event_id = ?", l.EventID).Exec()
	}
	if err != nil {
		t.Fatal(err)
	}
	c, err := b.Copy(t.Context(), l.EventID)
	if err != nil || len(c.Edits) != 1 || c.Edits[0].ID != edited {
		t.Fatalf("Copy() has the edits %+v (%v), want %s", c.Edits, err, edited)
	}
	if err := b.Purge(t.Context(), l.EventID, Purge{Archive: "object"}, eve); err != nil {
		t.Fatal(err)
	}
	if err := b.Restore(t.Context(), l.EventID, &c, eve); err != nil {
		t.Fatal(err)
	}
	if now := b.mustRead(t, l.EventID); now.Edit == nil || string(now.Content().Payload) != `{"n":2}` {
		t.Errorf("restored: %+v", now)
	}
}

func TestDuty_OneAtATime(t *testing.T) {
	t.Parallel()
	b := setup(t)
	duty := func(owner string, ttl time.Duration) *Duty {
		d, err := b.Duty("watch", owner, ttl)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	one, two := duty("one", time.Hour), duty("two", time.Hour)
	take := func(d *Duty, want bool) {
		t.Helper()
		if ok, err := d.Take(t.Context()); ok != want || err != nil {
			t.Fatalf("Take() = %v, %v, want %v", ok, err, want)
		}
	}
	if s, err := one.State(t.Context()); s != "" || err != nil {
		t.Fatalf("State() = %q, %v", s, err)
	}
	take(one, true)
	take(one, true)
	if ok, err := one.Save(t.Context(), "mine"); !ok || err != nil {
		t.Fatalf("Save() = %v, %v", ok, err)
	}
	if ok, err := two.Save(t.Context(), "theirs"); ok || err != nil {
		t.Fatalf("Save() of another = %v, %v", ok, err)
	}
	if err := two.Leave(t.Context()); err != nil { // it has nothing to leave
		t.Fatal(err)
	}
	take(two, false)
	take(duty("one", time.Second), true) // which makes it end sooner
	deadline := time.Now().Add(5 * time.Minute)
	for { // until the claim has expired
		ok, err := two.Take(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the claim does not expire")
		}
		time.Sleep(20 * time.Millisecond)
	}
	if s, err := two.State(t.Context()); s != "mine" || err != nil {
		t.Errorf("State() = %q, %v, want the saved state", s, err)
	}
	if err := two.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	take(one, true)
}
