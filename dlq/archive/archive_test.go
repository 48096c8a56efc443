package archive

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

func openDir(t *testing.T) (*Archive, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "new", "archive")
	a, err := Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	return a, dir
}

func at(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

// awkward returns a dead letter with everything that JSON could lose.
func awkward() *dlq.DeadLetter {
	edited := gocql.MustRandomUUID()
	return &dlq.DeadLetter{
		Table: "outbox.outbox_messages", EventID: gocql.MustRandomUUID(), AggregateID: "a\"\n", AggregateType: "order", EventType: "Ö", Sequence: 1<<62 + 1, Priority: -7, Tags: []string{"a", "b"},
		Payload: []byte{0, 0xff, '\n'}, ContentType: "x", Headers: map[string]string{"k": "v\n\u2028", "": ""}, CreatedAt: at(1), DeliverAt: at(2),
		WrittenAt: 1_700_000_000_123_457, Topic: "t", Status: dlq.Resolved, Version: 7, Unblocked: true, ErrorClass: "c", ErrorCode: "E", ErrorText: "e<&>",
		ErrorChain: []string{"", "x\u2028"}, Attempts: 3, Replays: 2, FirstFailedAt: at(1_700_000_000_001), LastFailedAt: at(1_700_000_000_002), Strategy: "s",
		Rule: "r", Waiting: "w", FailureKey: "f", FailureRepeats: 4, Outcome: dlq.Outcome{Kind: dlq.OutcomeReplayed, Topic: "t", Partition: 3, Offset: 1 << 60, Note: "n"},
		ResolvedAt: at(1_700_000_000_003), EditedID: edited,
		Edit: &dlq.Edited{
			ID: edited, Edit: dlq.Edit{Payload: []byte{0xfe}, ContentType: "y", Headers: map[string]string{"e": "f"}}, Actor: dlq.Actor{Name: "eve", Reason: "typo"}, At: at(9),
		},
		Metadata: map[string]string{"host": "h"}, Raw: map[string]string{"c": "0x"},
	}
}

func TestRecord_UnchangedToTheByte(t *testing.T) {
	t.Parallel()
	a, _ := openDir(t)
	full, text, empty, none := awkward(), awkward(), awkward(), awkward()
	text.Payload, text.Headers = []byte("{\"a\": \"\u2028<ä>\"}"), map[string]string{"a": "b"}
	empty.Payload, empty.Headers, empty.ErrorChain = []byte{}, map[string]string{}, []string{}
	none.Payload, none.Headers, none.ErrorChain, none.Metadata, none.Raw = nil, nil, nil, nil, nil
	none.CreatedAt, none.DeliverAt, none.ResolvedAt = time.Time{}, time.Time{}, time.Time{}
	deadLetters := []*dlq.DeadLetter{full, text, empty, none}
	var records []Record
	history := []dlq.Change{{Version: 1, ID: gocql.TimeUUID(), At: at(5), Action: dlq.ActionWrite, To: dlq.Pending, Why: "x"}}
	for _, l := range deadLetters {
		records = append(records, newRecord(&dlq.Copy{DeadLetter: *l, History: history}))
	}
	m, err := a.Write(t.Context(), records, "me")
	if err != nil {
		t.Fatal(err)
	}
	i := 0
	if err := a.Records(t.Context(), m.Object, func(r Record) error {
		got, err := r.DeadLetter()
		if err != nil {
			return err
		}
		if !reflect.DeepEqual(got, *deadLetters[i]) {
			t.Errorf("dead letter %d came back as\n%#v\nwant\n%#v", i, got, *deadLetters[i])
		}
		if !reflect.DeepEqual(r.History, history) {
			t.Errorf("history %+v", r.History)
		}
		i++
		return nil
	}); err != nil || i != len(deadLetters) {
		t.Fatalf("%d dead letters, %v", i, err)
	}
	if m.DeadLetters != 4 || m.By != "me" || len(m.Events) != 4 || m.ByStatus[dlq.Resolved] != 4 || !m.From.Equal(full.FirstFailedAt) {
		t.Errorf("manifest %+v", m)
	}
	r, err := a.DeadLetter(t.Context(), m.Object, text.EventID)
	if err != nil || r.EventID != text.EventID.String() {
		t.Errorf("DeadLetter() = %+v, %v", r, err)
	}
	if _, err := a.DeadLetter(t.Context(), m.Object, gocql.MustRandomUUID()); !errors.Is(err, ErrNotFound) {
		t.Errorf("DeadLetter() of another event = %v", err)
	}
}

// A new field of a dead letter that Record lacks would be lost.
func TestRecord_HasEveryField(t *testing.T) {
	t.Parallel()
	l := awkward()
	v := reflect.ValueOf(*l)
	for i := range v.NumField() {
		switch name := v.Type().Field(i).Name; name {
		case "NextAttempt", "ClaimedBy", "ClaimedUntil": // only of dead letters that are open
		case "PurgedAt", "Archive", "job": // of the archives that are here
		case "listed": // of a write
		default:
			if v.Field(i).IsZero() {
				t.Errorf("the test's dead letter has no %s: give it one, and the record a field", name)
			}
		}
	}
	r := newRecord(&dlq.Copy{DeadLetter: *l})
	if got, err := r.DeadLetter(); err != nil || !reflect.DeepEqual(got, *l) {
		t.Errorf("came back as %+v, %v", got, err)
	}
}

func TestArchive_DamageIsFound(t *testing.T) {
	t.Parallel()
	a, dir := openDir(t)
	m, err := a.Write(t.Context(), []Record{newRecord(&dlq.Copy{DeadLetter: *awkward()}), newRecord(&dlq.Copy{DeadLetter: *awkward()})}, "me")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, filepath.FromSlash(m.Object))
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	read := func() error { return a.Records(t.Context(), m.Object, func(Record) error { return nil }) }
	for name, content := range map[string][]byte{
		"cut": whole[:len(whole)-3], "longer": append(append([]byte{}, whole...), 0), "empty": {},
		"changed": append(append([]byte{}, whole[:len(whole)/2]...), append([]byte{^whole[len(whole)/2]}, whole[len(whole)/2+1:]...)...),
	} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := read(); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v, want ErrDamaged", name, err)
		}
	}
	if err := os.WriteFile(path, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := read(); err != nil {
		t.Errorf("whole again: %v", err)
	}
	if err := os.Remove(path + manifestSuffix); err != nil {
		t.Fatal(err)
	}
	if err := read(); !errors.Is(err, ErrNotFound) {
		t.Errorf("without its manifest: %v, want ErrNotFound", err)
	}
	if n, err := a.RemoveOrphans(t.Context()); n != 0 || err != nil {
		t.Errorf("a fresh object may be another process's: removed %d, %v", n, err)
	}
	a.clock = world.Clock(func() time.Time { return time.Now().Add(orphanAge + time.Hour) })
	if n, err := a.RemoveOrphans(t.Context()); n != 1 || err != nil {
		t.Errorf("RemoveOrphans() = %d, %v", n, err)
	}
}

// An object that differs from the written records gets no manifest.
func TestArchive_WriteReadsBack(t *testing.T) {
	t.Parallel()
	a, dir := openDir(t)
	a.stored = func(key string) {
		path := filepath.Join(dir, filepath.FromSlash(key))
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		b[len(b)/2] ^= 1
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if m, err := a.Write(t.Context(), []Record{newRecord(&dlq.Copy{DeadLetter: *awkward()})}, "me"); !errors.Is(err, ErrDamaged) {
		t.Fatalf("Write() on a bad disk = %+v, %v, want ErrDamaged", m, err)
	}
	n := 0
	if err := a.List(t.Context(), time.Time{}, func(Manifest) error { n++; return nil }); n != 0 || err != nil {
		t.Errorf("%d objects are listed, %v", n, err)
	}
}

func TestOpen_UnknownSchemes(t *testing.T) {
	t.Parallel()
	_, err := Open(t.Context(), "nosuch://bucket?key=canary")
	if err == nil || strings.Contains(err.Error(), "canary") || !strings.Contains(err.Error(), "outbox-cloud") {
		t.Errorf("an unknown scheme: %v", err)
	}
	Register("strict", func(_ context.Context, bucketURL string) (Bucket, error) {
		return nil, fmt.Errorf("open bucket %s: unknown query parameter", bucketURL)
	})
	if _, err := Open(t.Context(), "strict://bucket?key=canary"); err == nil || strings.Contains(err.Error(), "canary") || !strings.Contains(err.Error(), "unknown query parameter") {
		t.Errorf("an unknown parameter: %v", err)
	}
	if _, err := Open(t.Context(), "file://"+t.TempDir()+"?metadata=skip"); err == nil || !strings.Contains(err.Error(), "without options") {
		t.Errorf("a folder with options: %v", err)
	}
}

// A key from a request does not lead out of the folder, and what a writer that crashed has
// left is no object.
func TestFolder_HasOnlyItsObjects(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	f := &folder{filepath.Join(parent, "archive")}
	for _, key := range []string{"2026/01/02/b", "2026/01/02/a", "2026/01/03/c", "payloads/x"} {
		if err := f.Write(t.Context(), key, []byte(key), ""); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"secret", "archive/2026/01/02/unfinished-1"} {
		if err := os.WriteFile(filepath.Join(parent, name), []byte("no object"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var keys []string
	for o, err := range f.List(t.Context(), "2") {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, o.Key)
	}
	if want := []string{"2026/01/02/a", "2026/01/02/b", "2026/01/03/c"}; !slices.Equal(keys, want) {
		t.Errorf("objects %q, want %q", keys, want)
	}
	for _, key := range []string{"../secret", "/etc/passwd", "2026/01/09/none"} {
		if _, err := f.Open(t.Context(), key); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("Open(%q) error = %v, want fs.ErrNotExist", key, err)
		}
		if err := f.Delete(t.Context(), key); err != nil {
			t.Errorf("Delete(%q) error = %v, want nil", key, err)
		}
	}
	if _, err := os.Stat(filepath.Join(parent, "secret")); err != nil {
		t.Errorf("a file beside the folder: %v", err)
	}
	if err := f.Write(t.Context(), "../secret", nil, ""); err == nil {
		t.Error("Write() outside of the folder is no error")
	}
}
