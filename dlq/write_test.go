package dlq

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/test/seeds"
)

// A dead letter is read back unchanged to the byte; null and empty are distinct.
func TestWrite_KeepsEveryByte(t *testing.T) {
	t.Parallel()
	b, rnd := setup(t), seeds.Rand(t)
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	large := make([]byte, 1<<20)
	for i := range large {
		large[i] = byte(rnd.IntN(256))
	}
	for name, change := range map[string]func(*DeadLetter){
		"as usual":      func(*DeadLetter) {},
		"nil payload":   func(l *DeadLetter) { l.Payload = nil },
		"empty payload": func(l *DeadLetter) { l.Payload = []byte{} },
		"all bytes":     func(l *DeadLetter) { l.Payload = every },
		"large":         func(l *DeadLetter) { l.Payload = large },
		"nil headers":   func(l *DeadLetter) { l.Headers = nil },
		"empty headers": func(l *DeadLetter) { l.Headers = map[string]string{} },
		"odd headers": func(l *DeadLetter) {
			l.Headers = map[string]string{"": "", "ü": "\n\x00", "a": strings.Repeat("x", 70_000)}
		},
		"no times":      func(l *DeadLetter) { l.CreatedAt, l.WrittenAt = time.Time{}, 0 },
		"deliver later": func(l *DeadLetter) { l.DeliverAt = l.CreatedAt.Add(time.Hour) },
		"odd type":      func(l *DeadLetter) { l.ContentType, l.Topic, l.EventType, l.AggregateID = "", "", "", "" },
		"undecodable": func(l *DeadLetter) {
			l.Raw = map[string]string{"payload": "0x00ff", "seq": "null"}
		},
		"no chain":       func(l *DeadLetter) { l.ErrorChain, l.Metadata = nil, nil },
		"negative times": func(l *DeadLetter) { l.CreatedAt = time.UnixMilli(-1).UTC() },
	} {
		t.Run(name, func(t *testing.T) {
			l := testDeadLetter("a", 1)
			change(l)
			b.mustWrite(t, l)
			got := b.mustRead(t, l.EventID)
			if !bytes.Equal(got.Payload, l.Payload) || (got.Payload == nil) != (l.Payload == nil) {
				t.Errorf("payload %d bytes, nil %v, want %d bytes, nil %v", len(got.Payload), got.Payload == nil, len(l.Payload), l.Payload == nil)
			}
			if !maps.Equal(got.Headers, l.Headers) || (got.Headers == nil) != (l.Headers == nil) {
				t.Errorf("headers %q, nil %v, want %q, nil %v", got.Headers, got.Headers == nil, l.Headers, l.Headers == nil)
			}
			if got.ContentType != l.ContentType || got.Topic != l.Topic || got.EventType != l.EventType || got.AggregateID != l.AggregateID ||
				got.AggregateType != l.AggregateType || got.Sequence != l.Sequence || got.WrittenAt != l.WrittenAt || got.Table != l.Table {
				t.Errorf("got %+v, want %+v", got, *l)
			}
			if !got.CreatedAt.Equal(l.CreatedAt) || !got.DeliverAt.Equal(l.DeliverAt) {
				t.Errorf("created %s to deliver %s, want %s and %s", got.CreatedAt, got.DeliverAt, l.CreatedAt, l.DeliverAt)
			}
			if !maps.Equal(got.Raw, l.Raw) || !maps.Equal(got.Metadata, l.Metadata) || !slices.Equal(got.ErrorChain, l.ErrorChain) ||
				got.ErrorClass != l.ErrorClass || got.ErrorCode != l.ErrorCode || got.ErrorText != l.ErrorText || got.Attempts != l.Attempts {
				t.Errorf("got %+v, want %+v", got, *l)
			}
			if got.Version != 1 || got.Status != Pending || !got.FirstFailedAt.Equal(b.clock.at) {
				t.Errorf("got version %d, %s, first failed at %s", got.Version, got.Status, got.FirstFailedAt)
			}
		})
	}
}

func TestWrite_RefusesAnInvalidDeadLetter(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for want, change := range map[string]func(*DeadLetter){
		"event id is zero":        func(l *DeadLetter) { l.EventID = gocql.UUID{} },
		`table ""`:                func(l *DeadLetter) { l.Table = "" },
		`table "orders"`:          func(l *DeadLetter) { l.Table = "orders" },
		`status "resolved": a ne`: func(l *DeadLetter) { l.Status = Resolved },
	} {
		l := testDeadLetter("a", 1)
		change(l)
		if _, err := b.Write(t.Context(), l); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Write() = %v, want %q", err, want)
		}
	}
}

// The ways in which one statement may end badly.
var casFaults = map[string]faults.Effect{
	"decided":                  {Failure: faults.WriteTimeout(faults.CAS, 1, 2), Fate: engine.FateDecided},
	"undecided":                {Failure: faults.WriteTimeout(faults.CAS, 1, 2)},
	"applied":                  {Failure: faults.WriteTimeout(faults.CAS, 1, 2), Fate: engine.FateApply},
	"connection lost, applied": {Disconnect: true, Fate: engine.FateApply},
	"connection lost":          {Disconnect: true},
	"no answer in time":        {Delay: time.Hour},
	"unavailable":              {Failure: faults.Unavailable(0, 1)},
}

// place is one kind of statement on a table.
type place struct {
	table string
	kind  engine.OpKind
}

// beginTrouble makes statements fail from now on: life is the context of a process that
// may crash, hits returns the number of failures.
type beginTrouble func() (life context.Context, hits func() int)

// throughTrouble runs f, with a fixture of its own, for every fault of statements at
// each of the places: count of them, or with 0 one, and the process crashes.
func throughTrouble(t *testing.T, places []place, f func(t *testing.T, b *fixture, begin beginTrouble, count int)) {
	t.Helper()
	for _, at := range places {
		for name, effect := range casFaults {
			if at.kind != engine.OpCAS && effect.Fate == engine.FateDecided {
				continue
			}
			for _, count := range counts() {
				t.Run(fmt.Sprintf("%s %s count=%d", at.table, name, count), func(t *testing.T) {
					t.Parallel()
					b := setup(t)
					f(t, b, func() (context.Context, func() int) { return b.trouble(t, at.table, at.kind, count, effect) }, count)
				})
			}
		}
	}
}

// Write fails at the lists or at the dead letter, once or until the process crashes;
// then another process reads the event again and writes it.
func TestWrite_ThroughFaultsAndCrashes(t *testing.T) {
	t.Parallel()
	places := []place{
		{"dead_letter_chains", engine.OpUnloggedBatch},
		{"dead_letter_buckets", engine.OpWrite},
		{"dead_letter_queue", engine.OpCAS},
	}
	throughTrouble(t, places, func(t *testing.T, b *fixture, begin beginTrouble, count int) {
		life, hits := begin()
		l := testDeadLetter("a", 1)
		st, err := b.another(t, patient).Write(life, l)
		if hits() == 0 {
			t.Fatal("nothing was hit")
		}
		if err == nil && st != Pending || err != nil && count == 1 {
			t.Errorf("Write() = %s, %v", st, err)
		}
		b.heal(t)
		if err == nil && count == 1 {
			b.mustBeListed(t, l.EventID)
		}
		// A stored dead letter is in its chain, or it is not stored.
		chain := b.listChains(t, testTable)
		if _, err := b.read(t.Context(), l.EventID, b.stmt.entry, (*DeadLetter).entryDest, b.db.Serial); (err == nil) != (len(chain) == 1) {
			t.Errorf("Read() = %v, and a chain of %d", err, len(chain))
		}
		b.clock.advance(3 * time.Hour)
		again := *l
		again.FirstFailedAt, again.Status = time.Time{}, Blocked
		st, err2 := b.another(t).Write(t.Context(), &again)
		if err2 != nil || len(chain) == 1 && st != Pending {
			t.Errorf("Write() again = %s, %v", st, err2)
		}
		// Lists may contain the entries of the first attempt, and a listing shows one
		// dead letter.
		b.mustShow(t, l.EventID)
		b.mustBeListed(t, l.EventID)
		if h := b.mustHistory(t, l.EventID); len(h) != 1 {
			t.Errorf("history %+v, want one line", h)
		}
	})
}

// Chains report an event as begun if a process listed it and did not store it, until it
// is stored.
func TestChainsAndBegun(t *testing.T) {
	t.Parallel()
	b := setup(t)
	begun := func() (out []ChainEntry) {
		t.Helper()
		if err := b.ChainsAndBegun(t.Context(), testTable, func(ChainEntry) error { return nil }, func(e ChainEntry) { out = append(out, e) }); err != nil {
			t.Fatal(err)
		}
		return out
	}
	l := testDeadLetter("a", 7)
	b.mustWrite(t, testDeadLetter("a", 6))
	life, _ := b.trouble(t, "dead_letter_queue", engine.OpCAS, 0, casFaults["unavailable"])
	if st, err := b.another(t, patient).Write(life, l); err == nil {
		t.Fatalf("Write() = %s", st)
	}
	b.heal(t)
	want := ChainEntry{EventID: l.EventID, AggregateID: "a", Sequence: 7, WrittenAt: l.WrittenAt}
	if got := begun(); len(got) != 1 || got[0] != want {
		t.Errorf("begun are %+v, want %+v", got, want)
	}
	chain, err := b.Chain(t.Context(), testTable, "a")
	if err != nil || len(chain) != 1 || len(b.listChains(t, testTable)) != 1 {
		t.Errorf("Chain() = %+v, %v, want the dead letter that is stored", chain, err)
	}
	b.mustWrite(t, l)
	if got := begun(); len(got) != 0 {
		t.Errorf("begun are %+v, want none", got)
	}
	if n := len(b.listChains(t, testTable)); n != 2 {
		t.Errorf("%d dead letters, want both", n)
	}
}

// mustShow checks that listings contain the dead letter once, at its current place.
// They remove what a crash left.
func (b *fixture) mustShow(t testing.TB, id gocql.UUID) {
	t.Helper()
	l := b.mustRead(t, id)
	for _, f := range []Filter{{}, {ErrorClass: l.ErrorClass}, {EventType: l.EventType}, {Table: l.Table}, {Aggregate: l.AggregateID}} {
		if got := b.listAll(t, f); len(got) != 1 || got[0].EventID != id || got[0].Status != l.Status {
			t.Errorf("List(%+v) = %+v, want one dead letter, %s", f, got, l.Status)
		}
	}
}

// heal ends all faults and waits until connections are back.
func (b *fixture) heal(t testing.TB) {
	t.Helper()
	b.Node.Faults().Clear()
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if _, err := b.Read(t.Context(), gocql.UUID{1}); errors.Is(err, ErrNotFound) {
			return
		} else if time.Now().After(deadline) {
			t.Fatalf("the database does not come back: %v", err)
		}
	}
}

// Write does not reset a dead letter that has changed, and lists do not contain its
// former place.
func TestWrite_NeverResets(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, st := range Statuses {
		id := b.bring(t, st)
		before := b.mustRead(t, id)
		l := testDeadLetter("a", 1)
		l.EventID = id
		b.clock.advance(2 * time.Hour)
		got, err := b.Write(t.Context(), l)
		if err != nil || got != st {
			t.Errorf("Write() of a %s dead letter = %s, %v", st, got, err)
		}
		if after := b.mustRead(t, id); after.Version != before.Version || after.Status != st || !after.FirstFailedAt.Equal(before.FirstFailedAt) {
			t.Errorf("a %s dead letter became %+v", st, after)
		}
		b.mustBeListed(t, id)
	}
}

// The id of a dead letter is that of an event of another aggregate: Write changes nothing. The
// aggregate of an unreadable row may be unknown.
func TestWrite_IDOfAnotherAggregate(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first := testDeadLetter("a", 1)
	b.mustWrite(t, first)
	other := *first
	other.AggregateID = "b"
	if _, err := b.Write(t.Context(), &other); !errors.Is(err, ErrOtherRecord) {
		t.Errorf("Write() error = %v, want ErrOtherRecord", err)
	}
	if err := b.Chains(t.Context(), first.Table, func(e ChainEntry) error {
		if e.AggregateID != "a" {
			t.Errorf("the chains have an event of aggregate %s", e.AggregateID)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	other.AggregateID = first.EventID.String()
	if status, err := b.Write(t.Context(), &other); status != Pending || err != nil {
		t.Errorf("Write() = %q, %v for an unknown aggregate, want %q", status, err, Pending)
	}
}

// A process that crashed between the lists and the dead letter leaves entries without
// one; readers skip them.
func TestChains_EntriesWithoutDeadLetter(t *testing.T) {
	t.Parallel()
	b := setup(t)
	l, err := b.newDeadLetter(testDeadLetter("a", 1))
	if err != nil {
		t.Fatal(err)
	}
	if err := b.lists.add(t.Context(), listed{l, listKeys(l), true}); err != nil {
		t.Fatal(err)
	}
	if got := b.listChains(t, testTable); len(got) != 0 {
		t.Errorf("Chains() = %+v, want none", got)
	}
	if got := b.listAll(t, Filter{}); len(got) != 0 {
		t.Errorf("List() = %+v, want none", got)
	}
	if _, err := b.Claim(t.Context(), l.EventID, me, time.Minute); !errors.Is(err, ErrNotFound) {
		t.Errorf("Claim() = %v, want ErrNotFound", err)
	}
	b.mustWrite(t, l)
	b.mustBeListed(t, l.EventID)
}

// A process that crashed after a change left the entry of a closed dead letter in the
// chain; another entry, as of a repeated row, is at a wrong place.
func TestChains_StaleEntries(t *testing.T) {
	t.Parallel()
	b := setup(t)
	closed := b.mustRead(t, b.bring(t, Resolved))
	open := b.mustRead(t, b.bring(t, Pending))
	elsewhere := open
	elsewhere.WrittenAt++
	closed.Version++ // or the completed removal remains
	for _, l := range []*DeadLetter{&closed, &elsewhere} {
		if err := b.lists.add(t.Context(), listed{l, nil, true}); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if got := b.listChains(t, testTable); len(got) != 1 || got[0].EventID != open.EventID {
			t.Errorf("Chains() = %+v, want the open dead letter once", got)
		}
	}
}

// Chains are in the order of their events.
func TestChains_Order(t *testing.T) {
	t.Parallel()
	b, rnd := setup(t), seeds.Rand(t)
	var want []string
	aggregates := 200
	if testing.Short() {
		aggregates = 50
	}
	for _, a := range rnd.Perm(aggregates) {
		for i := range rnd.Perm(4) {
			l := testDeadLetter(fmt.Sprint("a", a), int64(i+1))
			b.mustWrite(t, l)
			want = append(want, fmt.Sprint(l.AggregateID, l.Sequence))
		}
	}
	for _, i := range rnd.Perm(120) { // more than a page, in one chain without numbers
		l := testDeadLetter("unnumbered", 0)
		l.WrittenAt = int64(i)
		b.mustWrite(t, l)
		want = append(want, fmt.Sprint(l.AggregateID, l.WrittenAt))
	}
	other := testDeadLetter("a1", 9)
	other.Table = "shop.outbox"
	b.mustWrite(t, other)

	var got []string
	var last ChainEntry
	seen := make(map[string]bool)
	for _, e := range b.listChains(t, testTable) {
		if e.AggregateID == last.AggregateID {
			if e.Sequence < last.Sequence || e.Sequence == last.Sequence && e.WrittenAt <= last.WrittenAt {
				t.Errorf("%s: %d at %d comes after %d at %d", e.AggregateID, e.Sequence, e.WrittenAt, last.Sequence, last.WrittenAt)
			}
		} else if seen[e.AggregateID] {
			t.Errorf("%s comes again", e.AggregateID)
		}
		seen[e.AggregateID], last = true, e
		n := e.Sequence
		if n == 0 {
			n = e.WrittenAt
		}
		got = append(got, fmt.Sprint(e.AggregateID, n))
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("Chains() has %d dead letters, want %d", len(got), len(want))
	}
	stop := errors.New("stop")
	n := 0
	if err := b.Chains(t.Context(), testTable, func(ChainEntry) error { n++; return stop }); !errors.Is(err, stop) || n != 1 {
		t.Errorf("Chains() = %v after %d, want the function's error", err, n)
	}
}

// The bucket of an aggregate is part of the stored format.
func TestChainBucket_IsFixed(t *testing.T) {
	t.Parallel()
	for a, want := range map[string]int{"": 5, "a": 44, "018f0102-0304-7006-8708-090a0b0c0d0e": 0} {
		if got := chainBucket(a); got != want {
			t.Errorf("chainBucket(%q) = %d, want %d", a, got, want)
		}
	}
}

// stop is a fence that prevents one write, from 0.
type stop struct{ write, n int }

// Check implements Fence.
func (s *stop) Check() error {
	if s.n++; s.n-1 == s.write {
		return errors.New("stop")
	}
	return nil
}

// A write that fails after its entries of lists leaves none when it is repeated with a later
// failure, and the dead letter has the later one.
func TestWrite_LaterLeavesNoEntriesOfEarlierOnes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	l := testDeadLetter("a", 1)
	s := b.another(t, WithFence(&stop{write: 1}))
	if _, err := s.Write(t.Context(), l); err == nil {
		t.Fatal("Write() = nil, want the error of the fence")
	}
	if n, err := b.Stats(t.Context()); err != nil || n.Open != 1 {
		t.Fatalf("the lists have %d entries, %v, want one", n.Open, err)
	}
	l.FirstFailedAt = b.clock.Now().Add(3 * time.Hour)
	if _, err := s.Write(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	if n, err := b.Stats(t.Context()); err != nil || n.Open != 1 || !n.Oldest.Equal(l.FirstFailedAt) {
		t.Errorf("the lists have %d entries, the first of %s, %v, want one of %s", n.Open, n.Oldest, err, l.FirstFailedAt)
	}
	b.mustBeListed(t, l.EventID)
}
