package store

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/schema"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// fixture is a store on an in-memory node, with a clock of its own.
type fixture struct {
	*Store
	world.World
	now time.Time
}

var testPartition = Partition{"orders.k1", "OrderCreated", 3}

func setup(t testing.TB, opts ...Option) *fixture {
	t.Helper()
	b := &fixture{World: world.Start(t), now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	b.Store = b.another(t, opts...)
	return b
}

// another is the store of another process.
func (b *fixture) another(t testing.TB, opts ...Option) *Store {
	t.Helper()
	s, err := Open(b.Session, schema.DefaultKeyspace, append([]Option{WithClock(world.Clock(func() time.Time { return b.now })), WithTimeouts(30*time.Second, 2*time.Minute)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func claim(t testing.TB, s *Store, owner string) int64 {
	t.Helper()
	epoch, err := s.ClaimPartition(t.Context(), testPartition, owner)
	if err != nil {
		t.Fatal(err)
	}
	return epoch
}

// offsets returns the offsets of the stored messages.
func offsets(t testing.TB, s *Store) (out []int64) {
	t.Helper()
	all, err := s.Messages(t.Context(), testPartition)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		out = append(out, m.Offset)
	}
	return out
}

func message(offset int64) Stored {
	at := time.UnixMilli(1_700_000_000_000 + offset).UTC()
	return Stored{
		Offset: offset, Key: fmt.Sprint("order-", offset%3), State: StateDeferred, Attempts: 1, NextAt: at.Add(time.Second), FirstAt: at, Error: "500",
		Record: &kgo.Record{Topic: testPartition.Topic, Partition: testPartition.Number, Offset: offset, Timestamp: at, Key: []byte("k"), Value: []byte("v")},
	}
}

func messages(from, to int64) (out []Stored) {
	for o := from; o < to; o++ {
		out = append(out, message(o))
	}
	return out
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func same(t testing.TB, what string, got []int64, want ...int64) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: offsets %v, want %v", what, got, want)
	}
}

func TestOpen_ReportsWrongOptions(t *testing.T) {
	t.Parallel()
	for want, open := range map[string]func() (*Store, error){
		"keyspace":           func() (*Store, error) { return Open(nil, "a b") },
		"serial consistency": func() (*Store, error) { return Open(nil, "outbox", WithSerialConsistency(gocql.Quorum)) },
		"timeouts":           func() (*Store, error) { return Open(nil, "outbox", WithTimeouts(2, 1)) },
	} {
		if _, err := open(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Open() = %v, want an error about %s", err, want)
		}
	}
}

func TestMessages_AreReadAsTheyWereSaved(t *testing.T) {
	t.Parallel()
	b := setup(t)
	epoch := claim(t, b.Store, "i-1")
	first, second := message(7), message(5)
	second.State, second.NextAt, second.Attempts, second.Error = StateBehind, time.Time{}, 0, ""
	second.DeadLetter = gocql.MustRandomUUID()
	must(t, b.Save(t.Context(), testPartition, epoch, []Stored{first, second}))

	got, err := b.Messages(t.Context(), testPartition)
	want := []Stored{second, first}
	for i := range want {
		want[i].RecordAt, want[i].Record = want[i].Record.Timestamp.UTC(), nil
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("Messages() = %+v, %v\nwant %+v", got, err, want)
	}

	for _, m := range want {
		if got, err := b.Message(t.Context(), testPartition, m.Offset); err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("Message() = %+v, %v\nwant %+v", got, err, m)
		}
	}

	// Without a record the stored one stays; the other columns change.
	first.Record, first.Attempts, first.Error = nil, 2, strings.Repeat("x", maxError)+"y"
	must(t, b.Save(t.Context(), testPartition, epoch, []Stored{first}))
	r, err := b.Record(t.Context(), testPartition, 7)
	if err != nil || string(r.Value) != "v" {
		t.Errorf("Record() = %+v, %v, want the one that was saved first", r, err)
	}
	got, err = b.Messages(t.Context(), testPartition)
	if err != nil || len(got) != 2 || got[1].Attempts != 2 || got[1].Error != strings.Repeat("x", maxError) {
		t.Errorf("Messages() = %+v, %v, want 2 attempts and the error cut", got, err)
	}

	must(t, b.Remove(t.Context(), testPartition, epoch, []int64{5, 6}))
	same(t, "after Remove", offsets(t, b.Store), 7)
	if _, err := b.Record(t.Context(), testPartition, 5); !errors.Is(err, ErrNoRecord) {
		t.Errorf("Record() of a removed message: %v, want ErrNoRecord", err)
	}
	for _, p := range []Partition{testPartition, {"none", "t", 0}} {
		if got, err := b.Message(t.Context(), p, 5); !errors.Is(err, ErrNoRecord) {
			t.Errorf("Message() of a message that is not stored = %+v, %v, want ErrNoRecord", got, err)
		}
	}
	must(t, b.RemoveAll(t.Context(), testPartition, epoch))
	same(t, "after RemoveAll", offsets(t, b.Store))
}

// Producers control the content of records. A record is the same afterwards, byte for byte.
func TestRecord_KeepsEveryByte(t *testing.T) {
	t.Parallel()
	b := setup(t)
	epoch := claim(t, b.Store, "i-1")
	odd := "a\xff\x00b"
	header := func(key string, value []byte) kgo.RecordHeader { return kgo.RecordHeader{Key: key, Value: value} }
	for i, r := range []*kgo.Record{
		{},
		{Key: []byte{}, Value: []byte{}},
		{Key: []byte(odd), Value: []byte(odd), Headers: []kgo.RecordHeader{
			header(odd, []byte(odd)), header("a", []byte("1")), header("a", []byte("2")), header("a", []byte("1")), header("", nil), header("empty", []byte{}),
		}},
		{Timestamp: time.UnixMilli(math.MaxInt64), Value: []byte("x")},
		{Timestamp: time.UnixMilli(-1), Value: slices.Repeat([]byte("x"), 3*maxBytes), Headers: []kgo.RecordHeader{header(strings.Repeat("ü", 40_000), nil)}},
	} {
		r.Topic, r.Partition, r.Offset = testPartition.Topic, testPartition.Number, int64(i)
		if r.Timestamp.IsZero() {
			r.Timestamp = time.UnixMilli(0)
		}
		m := Stored{Offset: r.Offset, Key: odd, State: StateDeferred, Error: odd, Record: r}
		must(t, b.Save(t.Context(), testPartition, epoch, []Stored{m}))
		got, err := b.Record(t.Context(), testPartition, m.Offset)
		if err != nil || !reflect.DeepEqual(got, r) {
			t.Errorf("record %d: Record() = %.300v, %v\nwant %.300v", i, got, err, r)
		}
		all, err := b.Messages(t.Context(), testPartition)
		if err != nil || all[i].Key != odd || all[i].Error != "a\uFFFD\x00b" {
			t.Errorf("record %d: Messages() = %+v, %v", i, all, err)
		}
	}
}

// More messages than a page and a batch, and records near the limit of a batch, are stored
// and read completely.
func TestMessages_InChunksAndPages(t *testing.T) {
	t.Parallel()
	b := setup(t)
	epoch := claim(t, b.Store, "i-1")
	const n = 2*pageSize + 1
	all := messages(0, n)
	for i := range all {
		if i%100 == 0 {
			all[i].Record.Value = slices.Repeat([]byte("x"), maxBytes-i)
		}
	}
	must(t, b.Save(t.Context(), testPartition, epoch, all))
	if got := offsets(t, b.Store); len(got) != n || got[0] != 0 || got[n-1] != n-1 || !slices.IsSorted(got) {
		t.Errorf("%d messages, want %d, in order", len(got), n)
	}
	r, err := b.Record(t.Context(), testPartition, 1900)
	if err != nil || len(r.Value) != maxBytes-1900 {
		t.Errorf("Record() = %d bytes, %v", len(r.Value), err)
	}
	must(t, b.RemoveAll(t.Context(), testPartition, epoch))
	same(t, "after RemoveAll", offsets(t, b.Store))
}

// Messages begins at the offset of Trim, and messages below it are still read when they are
// saved afterwards, as after a lost position.
func TestTrim_MovesTheBeginning(t *testing.T) {
	t.Parallel()
	b := setup(t)
	epoch := claim(t, b.Store, "i-1")
	firstOffset := func() int64 {
		t.Helper()
		st, err := b.readStatics(t.Context(), testPartition)
		must(t, err)
		return st.first
	}
	must(t, b.Save(t.Context(), testPartition, epoch, messages(5000, 5002)))
	must(t, b.Trim(t.Context(), testPartition, epoch, 5000))
	if got := firstOffset(); got != 5000 {
		t.Errorf("first_offset %d after Trim, want 5000", got)
	}
	hits := b.Fault(0, faults.Effect{Delay: time.Nanosecond}, engine.OpCAS)
	must(t, b.Trim(t.Context(), testPartition, epoch, 5001))
	if firstOffset() != 5000 || hits() != 0 {
		t.Errorf("Trim by 1 executed %d statements, want none", hits())
	}
	must(t, b.Save(t.Context(), testPartition, epoch, messages(4000, 4001)))
	same(t, "after a save below the beginning", offsets(t, b.Store), 4000, 5000, 5001)

	// The next owner keeps the beginning.
	must(t, b.Remove(t.Context(), testPartition, epoch, []int64{4000}))
	must(t, b.Trim(t.Context(), testPartition, epoch, 5000))
	other := b.another(t)
	epoch = claim(t, other, "i-2")
	must(t, other.Save(t.Context(), testPartition, epoch, messages(6000, 6001)))
	if got := firstOffset(); got != 5000 {
		t.Errorf("first_offset %d with the next owner, want 5000", got)
	}
	if err := b.Trim(t.Context(), testPartition, epoch-1, 10_000); !errors.Is(err, ErrFenced) {
		t.Errorf("Trim() of a former owner: %v, want ErrFenced", err)
	}
	same(t, "with the next owner", offsets(t, other), 5000, 5001, 6000)
}
