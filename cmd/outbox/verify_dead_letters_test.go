package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/verify"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/rows"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// deadLetter stores the dead letter of a new event that is in no topic, and applies f to it.
func (b *dlqFixture) deadLetter(seq int64, aggregate gocql.UUID, status dlq.Status, f func(gocql.UUID) error) outbox.Event {
	b.t.Helper()
	e := b.add(seq, aggregate, 0)
	b.writeDeadLetter(seq, func(l *dlq.DeadLetter) { l.EventID, l.AggregateID, l.Status = e.ID.UUID(), aggregate.String(), status })
	if f != nil {
		if err := f(e.ID.UUID()); err != nil {
			b.t.Fatal(err)
		}
	}
	return e
}

// An event with a dead letter is not missing; one that was replayed must be in
// its topic. --repair leaves dead letters alone.
func TestVerify_DeadLetters(t *testing.T) {
	t.Parallel()
	b := setupDLQ(t)
	ctx, by := t.Context(), dlq.Actor{Name: "eve", Reason: "sent by post"}
	// at is the store with a clock that is so far from ours.
	at := func(d time.Duration) *dlq.Store {
		t.Helper()
		now := time.Now().Add(d)
		store, err := dlq.Open(b.session, "outbox", dlq.WithClock(world.Clock(func() time.Time { return now })))
		if err != nil {
			t.Fatal(err)
		}
		return store
	}
	store, late := at(-time.Hour), at(time.Hour)
	replay := func(s *dlq.Store) func(gocql.UUID) error {
		return func(id gocql.UUID) error {
			if _, err := s.Claim(ctx, id, "relay", time.Minute); err != nil {
				return err
			}
			return s.Resolve(ctx, id, "relay", dlq.Outcome{Kind: dlq.OutcomeReplayed, Topic: "things"})
		}
	}
	a := outbox.NewID().UUID()
	b.add(1, a, 1)
	head := b.deadLetter(2, a, dlq.Suspended, nil)
	next := b.deadLetter(3, a, dlq.Blocked, nil)
	discarded := b.deadLetter(1, outbox.NewID().UUID(), dlq.Suspended, func(id gocql.UUID) error { return store.Discard(ctx, id, by) })
	byHand := b.deadLetter(1, outbox.NewID().UUID(), dlq.Suspended, func(id gocql.UUID) error { return store.ResolveByHand(ctx, id, by) })
	b.deadLetter(1, outbox.NewID().UUID(), dlq.Pending, replay(late)) // the topic may have it since it was read

	stdout, stderr, code := b.verify("--until", "0s", "--repair", "--reason", "INC-7")
	for _, want := range []string{
		"dead        event " + head.ID.String(), "(dead letter, suspended: record_too_large)",
		"blocked     event " + next.ID.String(),
		"closed      event " + discarded.ID.String(), "(dead letter, discarded at ", ": sent by post)",
		"closed      event " + byHand.ID.String(), "by_hand at ",
		"6 events, 1 in their topics: 0 missing", "1 with a dead letter", "1 blocked by", "2 with a closed dead letter", "1 pending",
		"repair: 0 events requested",
	} {
		if !strings.Contains(stdout, want) {
			t.Errorf("stdout does not say %q:\n%s%s", want, stdout, stderr)
		}
	}
	if code != cli.ExitOK {
		t.Errorf("status %d, want %d\n%s", code, cli.ExitOK, stderr)
	}
	if s := b.status(head.ID.String()); s != dlq.Suspended {
		t.Errorf("--repair left the dead letter %s", s)
	}

	// Rows that are no events are counted by their dead letters: one with an id, one
	// without, and one without a dead letter.
	bad, noID, none := b.deadLetter(1, outbox.NewID().UUID(), dlq.Suspended, func(id gocql.UUID) error { return store.Discard(ctx, id, by) }), outbox.NewID().UUID(), outbox.NewID().UUID()
	for _, stmt := range []struct {
		cql  string
		args []any
	}{
		{"DELETE event_type FROM outbox_messages WHERE aggregate_id = ? AND seq = 1", []any{bad.AggregateID}},
		{"INSERT INTO outbox_messages (aggregate_id, seq, event_type) VALUES (?, 1, 'ThingHappened')", []any{noID.String()}},
	} {
		if err := b.session.Query(stmt.cql, stmt.args...).Exec(); err != nil {
			t.Fatal(err)
		}
	}
	var written int64
	if err := b.session.Query("SELECT WRITETIME(event_type) FROM outbox_messages WHERE aggregate_id = ? AND seq = 1", noID.String()).Scan(&written); err != nil {
		t.Fatal(err)
	}
	b.writeDeadLetter(1, func(l *dlq.DeadLetter) {
		l.EventID = rows.RowID("outbox.outbox_messages", noID.String(), 1, written, 2).UUID()
		l.AggregateID, l.Status = l.EventID.String(), dlq.Suspended
	})
	if stdout, stderr, code = b.verify("--until", "0s"); code != cli.ExitOK || !strings.Contains(stdout, " 0 unreadable rows") ||
		!strings.Contains(stdout, "3 with a closed dead letter") || !strings.Contains(stdout, "2 with a dead letter") {
		t.Errorf("exit status %d\n%s%s", code, stdout, stderr)
	}
	if err := b.session.Query("INSERT INTO outbox_messages (aggregate_id, seq, event_type) VALUES (?, 1, 'ThingHappened')", none.String()).Exec(); err != nil {
		t.Fatal(err)
	}
	if stdout, stderr, code = b.verify("--until", "0s"); code != cli.ExitFailed || !strings.Contains(stdout, " 1 unreadable rows") {
		t.Errorf("exit status %d\n%s%s", code, stdout, stderr)
	}
	if err := b.session.Query("DELETE FROM outbox_messages WHERE aggregate_id = ?", none.String()).Exec(); err != nil {
		t.Fatal(err)
	}

	lost := b.deadLetter(1, outbox.NewID().UUID(), dlq.Pending, replay(store))
	behind := b.add(4, a, 0) // without a dead letter of its own
	stdout, stderr, code = b.verify("--until", "0s", "-o", "json")
	var got struct {
		Findings []verify.Finding `json:"findings"`
		verified
	}
	if err := json.Unmarshal([]byte(stdout), &got); err != nil {
		t.Fatalf("%v: %s%s", err, stdout, stderr)
	}
	missing := make(map[outbox.ID]bool)
	for _, f := range got.Findings {
		if f.Kind == verify.Missing {
			missing[f.Event] = true
		}
	}
	if code != cli.ExitFailed || got.OK || got.Missing != 2 || !missing[lost.ID] || !missing[behind.ID] {
		t.Errorf("status %d, %s; want %s and %s missing", code, stdout, lost.ID, behind.ID)
	}
	if got.Dead != 2 || got.Blocked != 1 || got.Closed != 3 || got.Pending != 1 {
		t.Errorf("%+v", got.Counts)
	}
}
