package dlq

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
)

// A change of labels changes nothing else: the relay receives no request, and the place
// in the order of the aggregate, the claim and the next attempt stay.
func TestSet_ChangesLabelsOnly(t *testing.T) {
	t.Parallel()
	b := setup(t)
	l := testDeadLetter("a", 1)
	l.Priority, l.Tags = 3, []string{"vip", "night", "vip"}
	b.mustWrite(t, l)
	before := b.mustRead(t, l.EventID)
	if before.Priority != 3 || !slices.Equal(before.Tags, []string{"night", "vip"}) {
		t.Fatalf("stored as %d %v", before.Priority, before.Tags)
	}
	set := func(c Labels) {
		t.Helper()
		if err := b.Set(t.Context(), l.EventID, c, eve); err != nil {
			t.Fatal(err)
		}
	}
	set(Labels{Priority: new(-5), AddTags: []string{"team:a"}, RemoveTags: []string{"vip", "none"}})
	after := b.mustRead(t, l.EventID)
	if after.Priority != -5 || !slices.Equal(after.Tags, []string{"night", "team:a"}) || after.Version != 2 {
		t.Errorf("it has %d %v, version %d", after.Priority, after.Tags, after.Version)
	}
	after.Priority, after.Tags, after.Version = before.Priority, before.Tags, before.Version
	if fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("other fields changed: %+v, want %+v", after, before)
	}
	b.mustBeListed(t, l.EventID)
	if h := b.mustHistory(t, l.EventID); len(h) != 2 || h[1].Outcome != "priority 3 to -5, tag team:a added, tag vip removed" || h[1].By != eve.Name {
		t.Errorf("history %+v", h)
	}
	// The relay reads a priority, and no tags.
	set(Labels{AddTags: []string{"later"}})
	set(Labels{RemoveTags: []string{"later"}})
	if got, err := b.Requests(t.Context(), testTable, nil); err != nil || len(got) != 1 || got[0].Action != ActionSet || got[0].Entry.Priority != -5 {
		t.Errorf("Requests() = %+v, %v, want that of the priority", got, err)
	}
	set(Labels{Priority: new(-5), AddTags: []string{"night"}, RemoveTags: []string{"vip"}})
	if again := b.mustRead(t, l.EventID); again.Version != 4 {
		t.Errorf("a change of nothing made version %d", again.Version)
	}
	set(Labels{Priority: new(0), RemoveTags: []string{"night", "team:a"}})
	if bare := b.mustRead(t, l.EventID); bare.Priority != 0 || bare.Tags != nil {
		t.Errorf("it has %d %v, want none", bare.Priority, bare.Tags)
	}
	b.mustBeListed(t, l.EventID)
}

func TestSet_Refuses(t *testing.T) {
	t.Parallel()
	b := setup(t)
	l := testDeadLetter("a", 1)
	for i := range MaxTags {
		l.Tags = append(l.Tags, fmt.Sprint("t", i))
	}
	b.mustWrite(t, l)
	for _, bad := range []Labels{
		{},
		{Priority: new(MaxPriority + 1)},
		{Priority: new(MinPriority - 1)},
		{AddTags: []string{""}},
		{AddTags: []string{"a b"}},
		{AddTags: []string{"ä"}},
		{AddTags: []string{"-a"}},
		{AddTags: []string{"a\n"}},
		{AddTags: []string{strings.Repeat("a", 65)}},
		{AddTags: []string{"a"}, RemoveTags: []string{"a"}},
		{AddTags: []string{"one-more"}},
	} {
		if err := b.Set(t.Context(), l.EventID, bad, eve); err == nil {
			t.Errorf("Set(%+v) = nil, want an error", bad)
		}
	}
	if got := b.mustRead(t, l.EventID); got.Version != 1 || len(got.Tags) != MaxTags {
		t.Errorf("a refused change made version %d with %v", got.Version, got.Tags)
	}
	if err := b.Set(t.Context(), l.EventID, Labels{AddTags: []string{"x"}, RemoveTags: []string{"t0"}}, eve); err != nil {
		t.Errorf("a tag in the place of another: %v", err)
	}
	for _, change := range []func(*DeadLetter){
		func(l *DeadLetter) { l.Priority = 101 },
		func(l *DeadLetter) { l.Tags = []string{"a b"} },
		func(l *DeadLetter) { l.Tags = slices.Repeat([]string{"a"}, MaxTags+1) },
	} {
		l := testDeadLetter("a", 2)
		change(l)
		if _, err := b.Write(t.Context(), l); err == nil {
			t.Errorf("Write() with %d %v = nil, want an error", l.Priority, l.Tags)
		}
	}
	for _, f := range []Filter{{Tags: []string{"a b"}}, {MinPriority: new(101)}} {
		if err := b.List(t.Context(), f, func(*DeadLetter) error { return nil }); err == nil {
			t.Errorf("List(%+v) = nil, want an error", f)
		}
	}
}

// A change of tags is interrupted at each statement; the same change again completes it.
func TestSet_ThroughFaultsAndCrashes(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("many variants")
	}
	places := []place{{"dead_letter_lookups", engine.OpWrite}, {"dead_letter_queue", engine.OpCAS}}
	throughTrouble(t, places, func(t *testing.T, b *fixture, begin beginTrouble, count int) {
		l := testDeadLetter("a", 1)
		l.Tags = []string{"old"}
		b.mustWrite(t, l)
		life, hits := begin()
		c := Labels{Priority: new(9), AddTags: []string{"new"}, RemoveTags: []string{"old"}}
		err := b.another(t, patient).Set(life, l.EventID, c, eve)
		if hits() == 0 {
			t.Fatal("nothing was hit")
		}
		if err != nil && count == 1 {
			t.Errorf("Set() = %v", err)
		}
		b.heal(t)
		if err := b.another(t).Set(t.Context(), l.EventID, c, eve); err != nil {
			t.Fatal(err)
		}
		for _, tag := range []string{"old", "new"} {
			if got := b.listAll(t, Filter{Tags: []string{tag}}); len(got) != map[string]int{"new": 1}[tag] {
				t.Errorf("tag %s lists %d dead letters", tag, len(got))
			}
		}
		if got := b.mustRead(t, l.EventID); got.Priority != 9 || !slices.Equal(got.Tags, []string{"new"}) || got.Version != 2 {
			t.Errorf("it has %d %v, version %d", got.Priority, got.Tags, got.Version)
		}
		b.mustBeListed(t, l.EventID)
	})
}

// Labels outlive a purge and a restore: the outline contains them.
func TestSet_LabelsOutliveAPurge(t *testing.T) {
	t.Parallel()
	b := setup(t)
	l := testDeadLetter("a", 1)
	l.Priority, l.Tags = 5, []string{"vip"}
	b.mustWrite(t, l)
	for _, err := range []error{
		b.Discard(t.Context(), l.EventID, eve),
		b.Purge(t.Context(), l.EventID, Purge{}, eve),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if got := b.mustRead(t, l.EventID); got.Priority != 5 || !slices.Equal(got.Tags, []string{"vip"}) {
		t.Errorf("the outline has %d %v", got.Priority, got.Tags)
	}
	b.mustBeListed(t, l.EventID)
	var r *RefusedError
	if err := b.Set(t.Context(), l.EventID, Labels{Priority: new(1)}, eve); !errors.As(err, &r) || r.Status != Archived {
		t.Errorf("Set() of an outline = %v, want it refused", err)
	}
}

// The hours of tables and tags without dead letters are removed from the lists.
func TestTidy_TablesAndTags(t *testing.T) {
	t.Parallel()
	b := setup(t)
	l := testDeadLetter("a", 1)
	l.Tags = []string{"vip"}
	b.mustWrite(t, l)
	if err := b.Discard(t.Context(), l.EventID, eve); err != nil {
		t.Fatal(err)
	}
	b.clock.advance(3 * time.Hour)
	if _, err := b.Tidy(t.Context()); err != nil {
		t.Fatal(err)
	}
	var kinds []string
	var kind string
	iter := b.Session.Query("SELECT kind FROM dead_letter_buckets").Iter()
	for iter.Scan(&kind) {
		kinds = append(kinds, kind)
	}
	if err := iter.Close(); err != nil {
		t.Fatal(err)
	}
	for _, k := range []string{kindOpenTable, kindOpenTag} {
		if slices.Contains(kinds, k) {
			t.Errorf("an empty hour of %s stayed", k)
		}
	}
	if got := b.listAll(t, Filter{Table: testTable, Tags: []string{"vip"}, Status: []Status{Resolved}}); len(got) != 1 {
		t.Errorf("%d dead letters after a tidy, want the discarded one", len(got))
	}
}

func TestParsePriority(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"": 0, "7": 7, "-7": -7, " 8 ": 8, "+9": 9, "100": 100, "101": 100, "-101": -100, "99999999999999999999": 100, "-99999999999999999999": -100,
		"high": 0, "1.5": 0, "0x10": 0, "7\x00": 0,
	} {
		if got := ParsePriority(text); got != want {
			t.Errorf("ParsePriority(%q) = %d, want %d", text, got, want)
		}
	}
}
