package dlq

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/outbox"
)

var edit2 = Edit{Payload: []byte(`{"n":2}`), ContentType: "application/json", Headers: map[string]string{"x": "y"}}

// original fails the test unless the dead letter contains the original event.
func original(t *testing.T, got, want *DeadLetter) {
	t.Helper()
	if string(got.Payload) != string(want.Payload) || got.ContentType != want.ContentType || !(Edit{Headers: got.Headers}).Equal(Edit{Headers: want.Headers}) {
		t.Errorf("the original became %s %s %v", got.Payload, got.ContentType, got.Headers)
	}
	if got.EventID != want.EventID || got.Sequence != want.Sequence || got.WrittenAt != want.WrittenAt || got.AggregateID != want.AggregateID {
		t.Errorf("the dead letter's place became %+v", got)
	}
}

func TestEdit_KeepsTheOriginalAndItsPlace(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	for _, from := range []Status{Pending, Failed, Suspended, Blocked} {
		id := b.bring(t, from)
		before := b.mustRead(t, id)
		b.clock.advance(time.Minute)
		first, err := b.Edit(ctx, id, edit2, eve, before.Version)
		if err != nil {
			t.Fatal(err)
		}
		second, err := b.Edit(ctx, id, Edit{Payload: []byte("3")}, eve, 0)
		if err != nil {
			t.Fatal(err)
		}
		l := b.mustRead(t, id)
		original(t, &l, &before)
		if l.EditedID != second || l.Edit == nil || l.Edit.ID != second || !l.Content().Equal(Edit{Payload: []byte("3")}) || first == second {
			t.Errorf("the dead letter is to be published as %s: %+v, want %s", l.EditedID, l.Edit, second)
		}
		if from == Blocked {
			if l.Status != Blocked {
				t.Errorf("an edited blocked dead letter is %s", l.Status)
			}
		} else if l.Status != Pending || !l.NextAttempt.Equal(b.clock.at) {
			t.Errorf("an edited %s dead letter is %s, due %s", from, l.Status, l.NextAttempt)
		}
		edits, err := b.Edits(ctx, id)
		if err != nil || len(edits) != 2 || edits[0].ID != first || edits[1].ID != second || !edits[0].Equal(edit2) || edits[0].Actor != eve {
			t.Errorf("Edits() = %+v, %v", edits, err)
		}
		if of, err := b.FindOriginal(ctx, first); err != nil || of != id {
			t.Errorf("OriginalOf() = %s, %v", of, err)
		}
		claimed, err := b.Claim(ctx, id, me, time.Minute)
		if err != nil || claimed.Edit == nil || claimed.Edit.ID != second {
			t.Errorf("Claim() = %+v, %v", claimed.Edit, err)
		}
		if err := b.Resolve(ctx, id, me, Outcome{Kind: OutcomeReplayed, Topic: "T"}); err != nil {
			t.Fatal(err)
		}
		if h := b.mustHistory(t, id); !strings.Contains(h[len(h)-1].Why, second.String()) {
			t.Errorf("the history lacks the published id: %+v", h[len(h)-1])
		}
	}
	if _, err := b.FindOriginal(ctx, gocql.MustRandomUUID()); !errors.Is(err, ErrNotFound) {
		t.Errorf("OriginalOf() of no edit = %v", err)
	}
}

// A redirect is an edit of the topic alone: the dead letter keeps its place and its event, and is
// resolved as published elsewhere.
func TestRedirect_EditsTheTopicAlone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	for _, from := range []Status{Pending, Failed, Suspended, Blocked} {
		id := b.bring(t, from)
		before := b.mustRead(t, id)
		if _, err := b.Edit(ctx, id, edit2, eve, 0); err != nil {
			t.Fatal(err)
		}
		if err := b.Redirect(ctx, id, "Elsewhere", eve); err != nil {
			t.Fatal(err)
		}
		l := b.mustRead(t, id)
		original(t, &l, &before)
		want := edit2
		want.Topic = "Elsewhere"
		if !l.Content().Equal(want) || l.Topic != before.Topic || (l.Status == Blocked) != (from == Blocked) {
			t.Errorf("redirected, a %s dead letter is %s with %+v in topic %s", from, l.Status, l.Content(), l.Topic)
		}
		if err := b.Redirect(ctx, id, "Elsewhere", eve); err != nil || b.mustRead(t, id).Version != l.Version {
			t.Errorf("redirected again: %v, version %d, want %d", err, b.mustRead(t, id).Version, l.Version)
		}
		edits, err := b.Edits(ctx, id)
		if err != nil || len(edits) != 2 || !edits[1].Equal(want) {
			t.Errorf("Edits() = %+v, %v", edits, err)
		}
		if h := b.mustHistory(t, id); h[len(h)-1].Action != ActionRedirect || !strings.Contains(h[len(h)-1].Outcome, "to topic Elsewhere") {
			t.Errorf("the history ends with %+v", h[len(h)-1])
		}
		claimed, err := b.Claim(ctx, id, me, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.ResolveMany(ctx, []Settlement{{DeadLetter: claimed, How: Outcome{Kind: OutcomeReplayed, Topic: "Elsewhere"}}}, me)[0]; err != nil {
			t.Fatal(err)
		}
		if l := b.mustRead(t, id); l.Outcome.Kind != OutcomeRedirected || l.Outcome.Topic != "Elsewhere" || l.Reopens() {
			t.Errorf("published, it is %s by %+v", l.Status, l.Outcome)
		}
	}
	// A job redirects once, though an operator has chosen another topic since.
	id, job := b.bring(t, Suspended), Actor{Name: "eve", Job: gocql.TimeUUID()}
	for _, step := range []struct {
		topic string
		by    Actor
		want  string
	}{{"A", job, "A"}, {"B", eve, "B"}, {"A", job, "B"}} {
		err := b.Redirect(ctx, id, step.topic, step.by)
		if l := b.mustRead(t, id); err != nil || l.Content().Topic != step.want {
			t.Errorf("redirect to %s: %v, then it is to be published to %s, want %s", step.topic, err, l.Content().Topic, step.want)
		}
	}
	for name, change := range map[string]func(*DeadLetter){
		"of a subscription": func(l *DeadLetter) { l.Table = subscriptionPrefix + "mail" },
		"unreadable":        func(l *DeadLetter) { l.EventType = "" },
	} {
		l := testDeadLetter("z-"+name, 1)
		change(l)
		if _, err := b.Write(ctx, l); err != nil {
			t.Fatal(err)
		}
		if err := b.Redirect(ctx, l.EventID, "A", eve); !errors.Is(err, ErrRefused) {
			t.Errorf("%s: %v, want it refused", name, err)
		}
	}
	id = b.bring(t, Suspended)
	if err := b.Redirect(ctx, id, "a b", eve); !errors.Is(err, ErrInvalidEdit) || !strings.Contains(err.Error(), `topic "a b"`) {
		t.Errorf("to no topic: %v, want it named", err)
	}
}

// A redirect changes nothing that a writer could have been refused: the other topic may take
// larger records, and the relay leaves out headers of rows.
func TestRedirect_ValidatesNoContent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, change := range map[string]func(*DeadLetter){
		"a large payload":               func(l *DeadLetter) { l.Payload, l.ErrorClass = make([]byte, 1_200_000), "record_too_large" },
		"a header of the relay":         func(l *DeadLetter) { l.Headers = map[string]string{"ce_id": "x"} },
		"a content type in its headers": func(l *DeadLetter) { l.Headers = map[string]string{"Content-Type": "x"} },
		"a column with its topic":       func(l *DeadLetter) { l.Headers = map[string]string{outbox.HeaderTopic: "own"} },
		"a header with a long name":     func(l *DeadLetter) { l.Headers = map[string]string{strings.Repeat("n", 300): ""} },
	} {
		l := testDeadLetter("a-"+name, 1)
		l.Status = Suspended
		change(l)
		b.mustWrite(t, l)
		read := b.mustRead(t, l.EventID)
		if err := b.Check(ActionRedirect, &read); err != nil {
			t.Errorf("%s: Check() = %v", name, err)
		}
		if err := b.Redirect(t.Context(), l.EventID, "Elsewhere", eve); err != nil {
			t.Errorf("%s: Redirect() = %v", name, err)
		}
		if now := b.mustRead(t, l.EventID); now.Status != Pending || now.Content().Topic != "Elsewhere" || len(now.Content().Payload) != len(l.Payload) {
			t.Errorf("%s: it is %s, to be published to %q", name, now.Status, now.Content().Topic)
		}
	}
}

// A dead letter of a row that could not be read lacks values that the row has since its correction,
// so a redirect would publish a part of it: only an edit completes it.
func TestRedirect_RefusesARowThatWasNotRead(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, change := range map[string]func(*DeadLetter){
		"its class":                     func(l *DeadLetter) { l.ErrorClass = ClassUndecodable },
		"its metadata, after a failure": func(l *DeadLetter) { l.Metadata = map[string]string{MetadataBadRow: "true"} },
	} {
		l := testDeadLetter("a-"+name, 1)
		l.Status = Suspended
		change(l)
		b.mustWrite(t, l)
		if err := b.Redirect(t.Context(), l.EventID, "Elsewhere", eve); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "fix the row in "+l.Table+" and replay it, or edit it before") {
			t.Errorf("%s: Redirect() = %v, want ErrRefused with both fixes", name, err)
		}
		if _, err := b.Edit(t.Context(), l.EventID, edit2, eve, 0); err != nil {
			t.Fatal(err)
		}
		must(t, b.Redirect(t.Context(), l.EventID, "Elsewhere", eve))
		if now := b.mustRead(t, l.EventID); now.Content().Topic != "Elsewhere" || !bytes.Equal(now.Content().Payload, edit2.Payload) {
			t.Errorf("%s: the edit is to be published as %+v", name, now.Content())
		}
	}
}

// A redirect whose result the relay could not note is found in the other topic. It is resolved as
// one that was noted, also at the second attempt: its own topic has no record of it.
func TestRedirect_FoundIsRedirected(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx, found := t.Context(), Outcome{Kind: OutcomeFound, Note: "found in its topic"}
	for name, resolve := range map[string]func(*DeadLetter) error{
		"one": func(l *DeadLetter) error { return b.Resolve(ctx, l.EventID, me, found) },
		"many": func(l *DeadLetter) error {
			return b.ResolveMany(ctx, []Settlement{{DeadLetter: *l, How: found}}, me)[0]
		},
	} {
		id := b.bring(t, Suspended)
		must(t, b.Redirect(ctx, id, "Elsewhere", eve))
		claimed, err := b.Claim(ctx, id, me, time.Minute)
		must(t, err)
		for range 2 {
			if err := resolve(&claimed); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if l := b.mustRead(t, id); l.Outcome.Kind != OutcomeRedirected || l.Outcome.Note != found.Note {
			t.Errorf("%s: it is resolved by %+v", name, l.Outcome)
		}
		id = b.bring(t, Processing)
		claimed = b.mustRead(t, id)
		must(t, resolve(&claimed))
		if l := b.mustRead(t, id); l.Outcome.Kind != OutcomeFound {
			t.Errorf("%s: one that was not redirected is resolved by %+v", name, l.Outcome)
		}
	}
}

// The topic of a row is in its headers, and no edit changes it: verification would search for the
// event in the topic of the row.
func TestEdit_KeepsTheTopicOfTheRow(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, was := range map[string]map[string]string{"with a column": {outbox.HeaderTopic: "own", "k": "1"}, "without one": {"k": "1"}} {
		l := testDeadLetter("a-"+name, 1)
		l.Status, l.Headers = Suspended, was
		b.mustWrite(t, l)
		e := Edit{Payload: l.Payload, ContentType: l.ContentType, Headers: maps.Clone(was)}
		e.Headers["k"] = "2"
		for _, topic := range []string{"other", ""} {
			if topic == was[outbox.HeaderTopic] {
				continue
			}
			hidden := e
			hidden.Headers = maps.Clone(e.Headers)
			hidden.Headers[outbox.HeaderTopic] = topic
			if _, err := b.Edit(t.Context(), l.EventID, hidden, eve, 0); !errors.Is(err, ErrInvalidEdit) || !strings.Contains(err.Error(), "header outbox-topic") || !strings.Contains(err.Error(), "outbox dlq redirect") {
				t.Errorf("%s: topic %q in the headers: %v, want the header and the redirect named", name, topic, err)
			}
		}
		if _, err := b.Edit(t.Context(), l.EventID, e, eve, 0); err != nil {
			t.Errorf("%s: an edit of another header: %v", name, err)
		}
	}
}

func TestEdit_Refuses(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	id := b.bring(t, Pending)
	before := b.mustRead(t, id)
	unread := testDeadLetter("b", 1)
	unread.EventType = ""
	b.mustWrite(t, unread)
	for name, tt := range map[string]struct {
		id     gocql.UUID
		e      Edit
		by     Actor
		expect int64
		want   error
	}{
		"another version":       {id, edit2, eve, 7, ErrRefused},
		"nothing changed":       {id, before.Content(), eve, 0, ErrInvalidEdit},
		"a header of the relay": {id, Edit{Headers: map[string]string{"ce_id": "x"}}, eve, 0, ErrInvalidEdit},
		"a large payload":       {id, Edit{Payload: make([]byte, 2_000_000)}, eve, 0, ErrInvalidEdit},
		"no event":              {unread.EventID, edit2, eve, 0, ErrInvalidEdit},
		"no dead letter":        {gocql.MustRandomUUID(), edit2, eve, 0, ErrNotFound},
		"resolved":              {b.bring(t, Resolved), edit2, eve, 0, ErrRefused},
		"claimed":               {b.bring(t, Processing), edit2, eve, 0, ErrRefused},
	} {
		if _, err := b.Edit(ctx, tt.id, tt.e, tt.by, tt.expect); !errors.Is(err, tt.want) {
			t.Errorf("%s: Edit() = %v, want %v", name, err, tt.want)
		}
	}
	var version *VersionError
	if _, err := b.Edit(ctx, id, edit2, eve, 7); !errors.As(err, &version) || version.Have != 1 || version.Want != 7 {
		t.Errorf("Edit() of another version = %v", err)
	}
	if _, err := b.Edit(ctx, id, edit2, Actor{}, 0); err == nil {
		t.Error("Edit() without an actor = nil")
	}
	if after := b.mustRead(t, id); after.Version != before.Version || after.Edit != nil {
		t.Errorf("refused edits left %+v", after)
	}
	if edits, err := b.Edits(ctx, id); err != nil || len(edits) != 0 {
		t.Errorf("Edits() = %+v, %v: refused edits are listed", edits, err)
	}
}

// An edit fails at any of its statements, once or until the process crashes. The dead
// letter then publishes the original or the complete edit, never a part and never both,
// and never loses its position.
func TestEdit_ThroughFaultsAndCrashes(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("many variants")
	}
	places := []place{
		{"dead_letter_edit_ids", engine.OpWrite},
		{"dead_letter_edits", engine.OpWrite},
		{"dead_letter_requests", engine.OpWrite},
		{"dead_letter_queue", engine.OpCAS},
	}
	throughTrouble(t, places, func(t *testing.T, b *fixture, begin beginTrouble, count int) {
		id := b.bring(t, Suspended)
		before := b.mustRead(t, id)
		life, hits := begin()
		edited, err := b.another(t, patient).Edit(life, id, edit2, eve, before.Version)
		if hits() == 0 {
			t.Fatal("nothing was hit")
		}
		if err != nil && count == 1 {
			t.Errorf("Edit() = %v, with one fault", err)
		}
		b.heal(t)
		if _, err := b.history(t.Context(), id, b.db.Serial); err != nil { // completes a pending transaction
			t.Fatal(err)
		}
		l := b.mustRead(t, id) // fails if the dead letter contains an id without an edit
		original(t, &l, &before)
		switch {
		case l.Edit != nil && (l.Status != Pending || !l.Content().Equal(edit2)):
			t.Errorf("half an edit: %s %+v", l.Status, l.Edit)
		case l.Edit == nil && (l.Status != Suspended || l.Version != before.Version):
			t.Errorf("no edit, and the dead letter is %s, version %d", l.Status, l.Version)
		case err == nil && l.EditedID != edited:
			t.Errorf("Edit() = %s, and the dead letter has %s", edited, l.EditedID)
		}
		if chain, err := b.Chain(t.Context(), testTable, "a"); err != nil || len(chain) != 1 || chain[0].EventID != id {
			t.Errorf("the chain is %+v, %v", chain, err)
		}
		if edits, err := b.Edits(t.Context(), id); err != nil || (len(edits) == 1) != (l.Edit != nil) {
			t.Errorf("Edits() = %+v, %v, and the dead letter's is %+v", edits, err, l.Edit)
		}
	})
}

func TestDiff(t *testing.T) {
	t.Parallel()
	was := Edit{Payload: []byte(`{"a":1,"b":2}`), ContentType: "application/json", Headers: map[string]string{"k": "1", "gone": "x"}}
	d := Diff(was, Edit{Payload: []byte(`{"a":1,"b":3}`), ContentType: "text/plain", Headers: map[string]string{"k": "2", "new": "y"}})
	for _, want := range []string{"-  \"b\": 2\n", "+  \"b\": 3\n"} {
		if !strings.Contains(d.Payload, want) {
			t.Errorf("the payload's difference lacks %q:\n%s", want, d.Payload)
		}
	}
	var names []string
	for _, h := range d.Headers {
		names = append(names, h.Name)
	}
	if got := strings.Join(names, " "); got != "content-type gone k new" || d.Headers[1].New != nil || d.Headers[3].Old != nil || *d.Headers[2].New != "2" {
		t.Errorf("the headers' difference is %q: %+v", got, d.Headers)
	}
	if d := Diff(was, was); !d.Empty() {
		t.Errorf("no difference: %+v", d)
	}
	if d := Diff(was, Edit{Payload: []byte(`{"a": 1, "b": 2}`), ContentType: was.ContentType, Headers: was.Headers}); d.Payload == "" {
		t.Error("white space is a difference too")
	}
	if d := Diff(Edit{Payload: []byte{0xff, 1}}, Edit{Payload: []byte{0xff, 2}}); !strings.Contains(d.Payload, "+00000000  ff 02") {
		t.Errorf("bytes: %s", d.Payload)
	}
}

func TestSchemas(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("OrderCreated.json", `{"type":"object","required":["id"],"properties":{"id":{"type":"integer"},"at":{"$ref":"at.json"}}}`)
	write("at.json", `{"type":"string","format":"date-time"}`)
	write("README.md", "no schema")
	s, err := LoadSchemas(dir)
	if err != nil {
		t.Fatal(err)
	}
	for payload, want := range map[string]string{
		`{"id":1,"at":"2026-01-02T03:04:05Z"}`: "",
		`{"at":"x","id":"1"}`:                  "/at",
		`{}`:                                   "id",
		`{`:                                    "not JSON",
	} {
		err := s.Validate("OrderCreated", []byte(payload))
		if want == "" && err != nil || want != "" && (!errors.Is(err, ErrInvalidEdit) || !strings.Contains(err.Error(), want)) {
			t.Errorf("Validate(%s) = %v, want it to contain %q", payload, err, want)
		}
	}
	if err := s.Validate("Other", []byte("{")); err != nil || s.Has("Other") {
		t.Errorf("a type without schema: %v", err)
	}
	var none *Schemas
	if none.Has("x") || none.Validate("x", nil) != nil {
		t.Error("no schemas have something")
	}
	for name, text := range map[string]string{
		"syntax":   `{`,
		"a file":   `{"$ref":"file:///etc/passwd"}`,
		"above":    `{"$ref":"../x.json"}`,
		"network":  `{"$ref":"http://localhost:1/x.json"}`,
		"no chema": `{"type":"objekt"}`,
	} {
		write("Bad.json", text)
		if _, err := LoadSchemas(dir); err == nil || !strings.Contains(err.Error(), "Bad.json") {
			t.Errorf("%s: LoadSchemas() = %v, want it to name the file", name, err)
		}
	}
	if _, err := LoadSchemas(filepath.Join(dir, "none")); err == nil {
		t.Error("LoadSchemas() of no directory = nil")
	}
}

// Numbers of a few bytes with any number of digits: some made the validation panic, and
// lists of others would keep it busy for minutes.
func TestSchemas_NumbersThatAreTooGreat(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "Paid.json"), []byte(`{"properties":{"amounts":{"items":{"type":"number","minimum":0,"multipleOf":0.01}}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := LoadSchemas(dir)
	if err != nil {
		t.Fatal(err)
	}
	for number, good := range map[string]bool{
		"1": true, "0.25": true, "1e20": true, "2.5E-1": true, "12345678901234567890123456789.25": true,
		"1e999999999": false, "1E+999999999": false, "1e-99999999999999999999": false, "1e1001": false, "-1e-1001": false,
		strings.Repeat("9", 2000): false,
	} {
		err := s.Validate("Paid", []byte(`{"amounts":[0,`+number+`]}`))
		if good && err != nil || !good && (!errors.Is(err, ErrInvalidEdit) || !strings.Contains(err.Error(), "/amounts/1: is a number of more than")) {
			t.Errorf("Validate(%.40s) = %v, want it taken: %t", number, err, good)
		}
	}
}

// writes calls then before each write.
type writes struct{ then func() }

// Check implements Fence.
func (w *writes) Check() error { w.then(); return nil }

// A purge may end after an edit was stored and before the dead letter refers to it: the edit
// is refused, and its content does not remain.
func TestEdit_LeavesNothingInAPurgedDeadLetter(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.bring(t, Suspended)
	stored := func() (n int) {
		t.Helper()
		if err := b.Session.Query("SELECT COUNT(*) FROM dead_letter_edits WHERE event_id = ?", id).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	purged := false
	w := &writes{func() {
		if purged || stored() == 0 {
			return
		}
		purged = true
		if err := b.purge(t.Context(), id, Purge{Force: true}, eve); err != nil { // it found no edits
			t.Error(err)
		}
	}}
	if _, err := b.another(t, WithFence(w)).Edit(t.Context(), id, edit2, eve, 0); !errors.Is(err, ErrRefused) || !purged {
		t.Errorf("Edit() = %v, purged %t, want ErrRefused", err, purged)
	}
	if n := stored(); n != 0 {
		t.Errorf("%d edits of a purged dead letter remain", n)
	}
}

// A process may stop between a purge and the removal of the edits, while the dead letter is
// restored from its archive, which stores the edits again.
func TestPurge_ThatStopsKeepsTheEditsOfARestoredDeadLetter(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for name, stop := range map[string]func(*fixture, gocql.UUID) func() error{
		"after the purge": func(b *fixture, id gocql.UUID) func() error {
			return func() error { return b.removeEdits(ctx, id) }
		},
		"after it read when": func(b *fixture, id gocql.UUID) func() error {
			var purged int64
			if err := b.Session.Query("SELECT WRITETIME(purged_at) FROM dead_letter_queue WHERE event_id = ?", id).Scan(&purged); err != nil {
				t.Error(err)
			}
			return func() error { return b.edits.remove(ctx, id, purged) }
		},
	} {
		b := setup(t)
		id := b.bring(t, Suspended)
		edited, err := b.Edit(ctx, id, edit2, eve, 0)
		must(t, err)
		must(t, b.Suspend(ctx, id, eve))
		copied, err := b.Copy(ctx, id)
		must(t, err)
		must(t, b.purge(ctx, id, Purge{Archive: "x", Force: true}, eve))
		remove := stop(b, id)
		must(t, b.another(t).Restore(ctx, id, &copied, eve))
		must(t, remove())
		if l, err := b.Read(ctx, id); err != nil || l.Edit == nil || l.Edit.ID != edited {
			t.Errorf("%s: Read() of the restored dead letter = %+v, %v", name, l.Edit, err)
		}
	}
}

// A dead letter whose edit is missing prevents no claim of others.
func TestClaimMany_BesideAMissingEdit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	bad, good := b.bring(t, Suspended), b.bring(t, Pending)
	edited, err := b.Edit(t.Context(), bad, edit2, eve, 0)
	must(t, err)
	must(t, b.edits.drop(t.Context(), bad, edited))
	out := b.another(t, WithTimeouts(time.Second, time.Second)).ClaimMany(t.Context(), []gocql.UUID{bad, good}, me, time.Minute)
	if out[0].Err == nil || out[1].Err != nil || out[1].DeadLetter.Payload == nil {
		t.Errorf("ClaimMany() = %v and %v, want an error of the first alone", out[0].Err, out[1].Err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
