package deadletter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/kafkarecord"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/schema"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/internal/position"
	"github.com/scylla-outbox/scylla-outbox/test/seeds"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

const table, incarnation = "subscription.orders", "orders.k1"

// fixture is a Replayer on a real store of dead letters; it is the messages of the instance.
type fixture struct {
	*dlq.Store
	replayer  *Replayer
	owned     bool
	state     map[gocql.UUID]State
	records   []*kgo.Record
	cancelled []gocql.UUID
	unserved  error
}

func setup(t *testing.T) *fixture {
	t.Helper()
	w := world.Start(t)
	s, err := dlq.Open(w.Session, schema.DefaultKeyspace, dlq.WithTimeouts(30*time.Second, 2*time.Minute))
	must(t, err)
	b := &fixture{Store: s, owned: true, state: map[gocql.UUID]State{}}
	b.replayer = &Replayer{Table: table, Owner: incarnation, Store: s, Messages: b}
	return b
}

func (b *fixture) Replayed(r Replay) State {
	switch st, ok := b.state[r.DeadLetter]; {
	case !b.owned || r.Topic != "OrderCreated" || r.Partition != 3 || r.Offset != 17:
		return NotOwned
	case ok:
		return st
	}
	return Free
}

func (b *fixture) Replay(record *kgo.Record, r Replay) {
	b.records = append(b.records, record)
	b.state[r.DeadLetter] = Accepted
}

func (b *fixture) Cancel(r Replay) { b.cancelled = append(b.cancelled, r.DeadLetter) }

func (b *fixture) Owns(string, int32) bool { return b.owned }

func (b *fixture) Unserved(context.Context, string, int32) error { return b.unserved }

// oldRequests is a store whose requests are older than servedWithin.
type oldRequests struct{ *dlq.Store }

func (s *oldRequests) Requests(ctx context.Context, table string, mine func(*dlq.Request) bool) ([]dlq.Request, error) {
	all, err := s.Store.Requests(ctx, table, mine)
	for i := range all {
		all[i].ID = gocql.UUIDFromTime(all[i].ID.Time().Add(-2 * servedWithin))
	}
	return all, err
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func testRecord() *kgo.Record {
	e := outbox.Event{
		ID: outbox.NewID(), AggregateID: outbox.IDFromText("order-1"), Sequence: 7, AggregateType: "order", Type: "OrderCreated", CreatedAt: time.Unix(1_700_000_000, 5000),
		Payload: []byte(`{"n":1}`), ContentType: "application/json", Headers: map[string]string{"traceparent": "00-1"},
	}
	h := outbox.AppendHeaders[kgo.RecordHeader](nil, &e, "/s")
	h = append(h, kgo.RecordHeader{Key: outbox.HeaderCaptured, Value: []byte("2026-01-01T00:00:00Z")}, kgo.RecordHeader{Key: "Content-Type", Value: []byte("x")})
	return &kgo.Record{Topic: "OrderCreated", Partition: 3, Offset: 17, Timestamp: time.UnixMilli(1_700_000_001_234), Key: []byte("order-1"), Value: e.Payload, Headers: h}
}

func testLetter() *dlq.DeadLetter {
	return New(&Message{
		Table: table, Incarnation: incarnation, Record: testRecord(), Attempts: 3, FirstAt: time.Now(), At: time.Now(), Class: "max_receive", Error: "500", Host: "i-1",
	})
}

func (b *fixture) written(t *testing.T) gocql.UUID {
	t.Helper()
	l := testLetter()
	_, err := b.Write(t.Context(), l)
	must(t, err)
	return l.EventID
}

func (b *fixture) status(t *testing.T, id gocql.UUID, want dlq.Status) dlq.DeadLetter {
	t.Helper()
	l, err := b.Read(t.Context(), id)
	if err != nil || l.Status != want {
		t.Errorf("dead letter %s is %s, %v; want %s", id, l.Status, err, want)
	}
	return l
}

func (b *fixture) requests(t *testing.T, want int) {
	t.Helper()
	left, err := b.Requests(t.Context(), table, nil)
	if err != nil || len(left) != want {
		t.Errorf("%d requests are left, %v; want %d", len(left), err, want)
	}
}

func (b *fixture) poll(t *testing.T) {
	t.Helper()
	must(t, b.replayer.Poll(t.Context()))
}

var ada = dlq.Actor{Name: "ada", Reason: "fixed"}

// The event of a replay decodes as the original one, for any record.
func TestRecord_DecodesAsTheOriginal(t *testing.T) {
	t.Parallel()
	rnd := seeds.Rand(t)
	for range 2000 {
		r := randomRecord(rnd)
		got, err := Record(New(&Message{Table: table, Incarnation: incarnation, Record: r}))
		must(t, err)
		if want := kafkarecord.Decode(r); !reflect.DeepEqual(kafkarecord.Decode(got), want) || !bytes.Equal(got.Key, r.Key) {
			t.Fatalf("Decode(Record()) = %+v\nwant %+v", kafkarecord.Decode(got), want)
		}
	}
}

// An operator may edit the reference of a stored payload, and that of its schema, and the
// archive finds the payload, only among the headers.
func TestNew_KeepsTheReferenceOfThePayload(t *testing.T) {
	t.Parallel()
	r := testRecord()
	r.Value, r.Headers = nil, append(r.Headers, kgo.RecordHeader{Key: outbox.HeaderDataRef, Value: []byte("payloads/x")}, kgo.RecordHeader{Key: outbox.HeaderDataSchema, Value: []byte("/s/1")})
	l := New(&Message{Table: table, Incarnation: incarnation, Record: r})
	if got := l.Headers; got[outbox.HeaderDataRef] != "payloads/x" || got[outbox.HeaderDataSchema] != "/s/1" {
		t.Errorf("the dead letter has headers %v, metadata %v", got, l.Metadata)
	}
}

// Jobs and notices find a dead letter by the time at which it appeared, not by the time of its
// first delivery: a job made before does not select it, and a later query finds it.
func TestNew_ListedByTheTimeOfTheDeadLetter(t *testing.T) {
	t.Parallel()
	b := setup(t)
	before := time.Now().Truncate(time.Millisecond)
	first := before.Add(-3 * time.Hour)
	r := testRecord()
	l := New(&Message{Table: table, Incarnation: incarnation, Record: r, Attempts: 9, FirstAt: first, At: before, Class: "max_receive"})
	_, err := b.Write(t.Context(), l)
	must(t, err)
	for want, f := range map[int]dlq.Filter{0: {Table: table, Until: before}, 1: {Table: table, Since: before}} {
		n := 0
		must(t, b.List(t.Context(), f, func(*dlq.DeadLetter) error { n++; return nil }))
		if n != want {
			t.Errorf("List() from %s until %s returns %d dead letters, want %d", f.Since, f.Until, n, want)
		}
	}
	if _, err := b.Write(t.Context(), New(&Message{Table: table, Incarnation: incarnation, Record: r, FirstAt: first.Add(time.Millisecond), At: time.Now()})); err != nil {
		t.Errorf("Write() again after a crash = %v", err)
	}
	if got, err := time.Parse(time.RFC3339, l.Metadata[metaFirst]); err != nil || !got.Equal(first) {
		t.Errorf("the first delivery is %q, want %s", l.Metadata[metaFirst], first)
	}
}

func randomRecord(rnd *rand.Rand) *kgo.Record {
	texts := []string{"", "a", "order-1", "\xff\x00", "{}", "12", "-3", "2026-01-02T03:04:05.1Z", "text/plain", "ü", strings.Repeat("x", 300)}
	names := []string{
		outbox.HeaderID, outbox.HeaderType, outbox.HeaderSubject, outbox.HeaderAggregateType, outbox.HeaderSequence, outbox.HeaderTime, outbox.HeaderSource,
		outbox.HeaderSpecVersion, outbox.HeaderContentType, outbox.HeaderPartitionKey, outbox.HeaderDataRef, outbox.HeaderDataSchema, outbox.HeaderOriginalID, outbox.HeaderCaptured, "CE_X", "Content-Type", "a", "", "\xff", "max_receive",
	}
	text := func() []byte {
		if i := rnd.IntN(len(texts) + 1); i < len(texts) {
			return []byte(texts[i])
		}
		return nil
	}
	at := []time.Time{time.UnixMilli(1_700_000_001_234), time.UnixMilli(math.MaxInt64), time.UnixMilli(-1)}
	r := &kgo.Record{Topic: "t", Partition: rnd.Int32N(9), Offset: rnd.Int64N(9), Timestamp: at[rnd.IntN(len(at))], Key: text(), Value: text()}
	for range rnd.IntN(8) {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: names[rnd.IntN(len(names))], Value: text()})
	}
	return r
}

// One message has one dead letter; other messages have other ones.
// The priority of the dead letter is that of the header.
func TestNew_Priority(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]int{"7": 7, "high": 0, "": 0, "1000": dlq.MaxPriority} {
		r := testRecord()
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: outbox.HeaderPriority, Value: []byte(value)})
		if l := New(&Message{Table: table, Incarnation: incarnation, Record: r}); l.Priority != want || l.Headers[outbox.HeaderPriority] != value {
			t.Errorf("header %q: priority %d, headers %v", value, l.Priority, l.Headers)
		}
	}
}

func TestNew_ID(t *testing.T) {
	t.Parallel()
	seen := map[gocql.UUID]string{}
	for what, change := range map[string]func(*Message){
		"the message":              func(*Message) {},
		"another incarnation":      func(m *Message) { m.Incarnation = "orders.k2" },
		"another offset":           func(m *Message) { m.Record.Offset++ },
		"another partition":        func(m *Message) { m.Record.Partition++ },
		"another topic":            func(m *Message) { m.Record.Topic = "x" },
		"a later generation":       func(m *Message) { m.Origin.Generation = 2 },
		"a topic of the same name": func(m *Message) { m.Origin.TopicID[3] = 1 },
		"a collision":              func(m *Message) { m.Collisions = 1 },
	} {
		m := Message{Table: table, Incarnation: incarnation, Record: testRecord()}
		change(&m)
		id := New(&m).EventID
		if other, ok := seen[id]; ok {
			t.Errorf("%s and %s have one dead letter", what, other)
		}
		seen[id] = what
		m.Attempts, m.Host, m.Error = 5, "i-2", "x"
		if New(&m).EventID != id {
			t.Errorf("%s: the dead letter of a repetition has another id", what)
		}
	}
	if l := testLetter(); l.Status != dlq.Suspended {
		t.Errorf("a new dead letter is %s, want suspended", l.Status)
	}
}

// A replay is delivered once, and its dead letter is resolved with the acknowledgement.
func TestReplay_UntilItIsAcknowledged(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.written(t)
	b.poll(t)
	if len(b.records) != 0 {
		t.Fatal("a dead letter was replayed without a request")
	}
	must(t, b.ask(t, id))
	b.owned = false
	b.poll(t)
	b.requests(t, 1)
	b.status(t, id, dlq.Pending)

	b.owned = true
	b.poll(t)
	b.poll(t)
	b.status(t, id, dlq.Processing)
	b.requests(t, 1) // until the message is stored
	if len(b.records) != 1 {
		t.Fatalf("%d messages of one replay, want 1", len(b.records))
	}
	want := kafkarecord.Decode(testRecord())
	if got := kafkarecord.Decode(b.records[0]); got.ID == "" || got.Headers["outbox-captured"] == "" || !reflect.DeepEqual(withoutID(got), withoutID(want)) {
		t.Errorf("the message is %+v\nwant %+v", got, want)
	}
	b.state[id] = Stored
	b.poll(t)
	b.requests(t, 0)
	if err := b.Discard(t.Context(), id, ada); !errors.Is(err, dlq.ErrRefused) {
		t.Errorf("Discard() while it is delivered: %v, want a refusal", err)
	}
	for range 2 {
		must(t, b.replayer.ResolveReplay(t.Context(), b.message(id)))
	}
	if l := b.status(t, id, dlq.Resolved); l.Outcome.Kind != dlq.OutcomeReplayed || l.Outcome.Offset != 17 {
		t.Errorf("outcome %+v", l.Outcome)
	}
}

// withoutID removes the id, which is random in each test record.
func withoutID(e kafkarecord.Event) kafkarecord.Event { e.ID = ""; return e }

// ask requests a replay.
func (b *fixture) ask(t *testing.T, id gocql.UUID) error { return b.Store.Replay(t.Context(), id, ada) }

// A replay whose owner fails before the message is stored is made again by the next owner,
// and one that fails again can be replayed again.
func TestReplay_AfterFailures(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.written(t)
	for n := range 3 {
		must(t, b.ask(t, id))
		b.poll(t)
		delete(b.state, id) // the owner failed
		b.poll(t)
		if len(b.records) != 2*(n+1) {
			t.Fatalf("%d messages, want one of each owner", len(b.records))
		}
		b.state[id] = Stored
		for range 2 {
			must(t, b.replayer.FailReplay(t.Context(), id, dlq.Failure{Class: "max_receive", Text: fmt.Sprint(n), Attempts: 3}))
		}
		delete(b.state, id)
		b.poll(t)
		b.requests(t, 0)
		if l := b.status(t, id, dlq.Suspended); l.Replays != n+1 || l.ErrorText != fmt.Sprint(n) || l.Attempts != 3*(n+2) {
			t.Errorf("after %d failures: %d replays, %d attempts, %q", n+1, l.Replays, l.Attempts, l.ErrorText)
		}
	}
}

// A message of another delivery at the offset, as after a seek, delays the replay.
func TestReplay_WaitsForABusyOffset(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.written(t)
	must(t, b.ask(t, id))
	b.state[id] = Busy
	b.poll(t)
	b.status(t, id, dlq.Pending)
	b.requests(t, 1)
	delete(b.state, id)
	b.poll(t)
	b.status(t, id, dlq.Processing)
}

// An edited dead letter is delivered with its new content and id, and names the old one.
func TestReplay_DeliversTheEdit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.written(t)
	before := b.status(t, id, dlq.Suspended)
	edit := before.Content()
	edit.Payload, edit.Headers = []byte(`{"n":2}`), map[string]string{"b": "c"}
	_, err := b.Edit(t.Context(), id, edit, ada, 0)
	must(t, err)
	must(t, b.ask(t, id))
	b.poll(t)
	if len(b.records) != 1 {
		t.Fatalf("%d messages, want 1", len(b.records))
	}
	l := b.status(t, id, dlq.Processing)
	e := kafkarecord.Decode(b.records[0])
	if string(e.Payload()) != `{"n":2}` || e.Headers["b"] != "c" || e.Headers["traceparent"] != "" || e.ID != l.EditedID.String() ||
		e.Headers[outbox.HeaderOriginalID] != before.Metadata[metaEventID] || e.Offset != 17 || e.Sequence != 7 {
		t.Errorf("the message is %+v", e)
	}
}

// Requests that need no message are removed, and a dead letter without a place becomes
// suspended again.
func TestPoll_OtherRequests(t *testing.T) {
	t.Parallel()
	b := setup(t)
	discarded := b.written(t)
	must(t, b.Discard(t.Context(), discarded, ada))
	lost := testLetter()
	lost.EventID, lost.Metadata = gocql.MustRandomUUID(), map[string]string{"host": "x"}
	_, err := b.Write(t.Context(), lost)
	must(t, err)
	must(t, b.ask(t, lost.EventID))
	b.poll(t)
	b.requests(t, 0)
	if l := b.status(t, lost.EventID, dlq.Suspended); l.ErrorClass != ClassReplay || !strings.Contains(l.ErrorText, "no place") {
		t.Errorf("the dead letter without a place: %s: %s", l.ErrorClass, l.ErrorText)
	}
	b.status(t, discarded, dlq.Resolved)
	if len(b.records) != 0 {
		t.Errorf("%d messages, want none", len(b.records))
	}
}

// Errors of the database do not lose requests.
func TestPoll_ReturnsErrors(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.written(t)
	must(t, b.ask(t, id))
	for _, failing := range []string{"Requests", "Read", "Claim", "Done"} {
		b.replayer.Store = &failingStore{b.Store, failing}
		if err := b.replayer.Poll(t.Context()); failing != "Done" && !errors.Is(err, errDown) {
			t.Errorf("Poll() with failing %s: %v", failing, err)
		}
	}
	b.replayer.Store = b.Store
	b.state[id] = Stored
	b.poll(t)
	b.requests(t, 0)
	b.replayer.Store = &failingStore{b.Store, "Resolve"}
	if err := b.replayer.ResolveReplay(t.Context(), b.message(id)); !errors.Is(err, errDown) {
		t.Errorf("Acknowledged() = %v", err)
	}
	b.status(t, id, dlq.Processing)
}

var errDown = errors.New("the database is down")

type failingStore struct {
	*dlq.Store
	method string
}

func (f *failingStore) fails(method string) error {
	if slices.Contains(strings.Fields(f.method), method) {
		return errDown
	}
	return nil
}

func (f *failingStore) Requests(ctx context.Context, table string, mine func(*dlq.Request) bool) ([]dlq.Request, error) {
	if err := f.fails("Requests"); err != nil {
		return nil, err
	}
	return f.Store.Requests(ctx, table, mine)
}

func (f *failingStore) Read(ctx context.Context, id gocql.UUID) (dlq.DeadLetter, error) {
	if err := f.fails("Read"); err != nil {
		return dlq.DeadLetter{}, err
	}
	return f.Store.Read(ctx, id)
}

func (f *failingStore) Claim(ctx context.Context, id gocql.UUID, owner string, d time.Duration) (dlq.DeadLetter, error) {
	if err := f.fails("Claim"); err != nil {
		return dlq.DeadLetter{}, err
	}
	return f.Store.Claim(ctx, id, owner, d)
}

func (f *failingStore) Resolve(ctx context.Context, id gocql.UUID, owner string, how dlq.Outcome) error {
	if err := f.fails("Resolve"); err != nil {
		return err
	}
	return f.Store.Resolve(ctx, id, owner, how)
}

// Values of key columns and names of headers above 64 KiB are cut; the record of a replay has
// them complete.
func TestNew_LongKeys(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 70_000)
	for name, r := range map[string]*kgo.Record{
		"key":            {Key: []byte(long)},
		"binary key":     {Key: []byte(strings.Repeat("\xff", 70_000))},
		"subject":        {Headers: []kgo.RecordHeader{{Key: outbox.HeaderSubject, Value: []byte(long)}}},
		"type":           {Headers: []kgo.RecordHeader{{Key: outbox.HeaderType, Value: []byte(long)}}},
		"aggregate type": {Headers: []kgo.RecordHeader{{Key: outbox.HeaderAggregateType, Value: []byte(long)}}},
		"header":         {Headers: []kgo.RecordHeader{{Key: long, Value: []byte("v")}, {Key: "k", Value: []byte(long)}}},
	} {
		r.Topic, r.Value = "t", []byte("{}")
		l := New(&Message{Table: "subscription.s", Incarnation: "s.1", Record: r})
		for _, column := range []string{l.AggregateID, l.AggregateType, l.EventType} {
			if len(column) > maxKeyColumn {
				t.Errorf("%s: a key column has %d bytes", name, len(column))
			}
		}
		for key := range l.Metadata {
			if len(key) > 2*maxKeyColumn {
				t.Errorf("%s: a key of the metadata has %d bytes", name, len(key))
			}
		}
		got, err := Record(l)
		if err != nil || string(got.Key) != string(r.Key) {
			t.Errorf("%s: the key of the replay has %d bytes, %v", name, len(got.Key), err)
		}
		for _, h := range r.Headers {
			if !slices.ContainsFunc(got.Headers, func(o kgo.RecordHeader) bool { return o.Key == h.Key && string(o.Value) == string(h.Value) }) {
				t.Errorf("%s: the replay has not the header of %d bytes", name, len(h.Key)+len(h.Value))
			}
		}
	}
	one, two := long+"1", long+"2"
	if clip(&one); clip(&two) && one == two {
		t.Error("two long values are equal once they are cut")
	}
}

// message is that of the replay of a dead letter of testLetter.
func (b *fixture) message(id gocql.UUID) Replay {
	return Replay{Topic: "OrderCreated", Partition: 3, Offset: 17, DeadLetter: id}
}

// A replay that nobody can deliver is suspended with the reason: the topic or the partition is
// not read any more, or the dead letter is that of a deleted subscription of the name.
func TestPoll_RefusesWhatNobodyDelivers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.owned, b.unserved = false, errors.New("the topic does not exist")
	id := b.written(t)
	must(t, b.ask(t, id))
	b.poll(t)
	b.status(t, id, dlq.Pending) // the owner may be late
	b.replayer.Store = &oldRequests{b.Store}
	b.replayer.elsewhere = nil // by its age it is another request
	b.poll(t)
	if l := b.status(t, id, dlq.Suspended); !strings.Contains(l.ErrorText, "the topic does not exist") || !strings.Contains(l.Waiting, "nobody can deliver it") {
		t.Errorf("the dead letter waits for %q, after %q", l.Waiting, l.ErrorText)
	}

	b.replayer.Store, b.owned, b.unserved = b.Store, true, nil
	foreign := New(&Message{Table: table, Incarnation: "orders.k0", Record: testRecord()})
	_, err := b.Write(t.Context(), foreign)
	must(t, err)
	must(t, b.ask(t, foreign.EventID))
	b.poll(t)
	if l := b.status(t, foreign.EventID, dlq.Suspended); !strings.Contains(l.ErrorText, "orders.k0, a deleted subscription") {
		t.Errorf("the dead letter of a deleted subscription: %s", l.ErrorText)
	}
	if len(b.records) != 0 {
		t.Errorf("%d messages, want none", len(b.records))
	}
}

// A message belongs to the last request for its dead letter, and to no other decision of an
// operator.
func TestReplay_FollowsTheOperator(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.written(t)
	must(t, b.ask(t, id))
	b.poll(t)
	b.state[id] = Stored
	b.poll(t)
	must(t, b.Unclaim(t.Context(), id, incarnation, "the claim has expired")) // and is requested again
	must(t, b.ask(t, id))
	b.poll(t)
	b.status(t, id, dlq.Processing)
	b.requests(t, 0)
	if len(b.records) != 1 {
		t.Errorf("%d messages, want the first one", len(b.records))
	}
	// Acknowledged before the next request is read.
	must(t, b.Unclaim(t.Context(), id, incarnation, "the claim has expired"))
	must(t, b.ask(t, id))
	must(t, b.replayer.ResolveReplay(t.Context(), b.message(id)))
	b.status(t, id, dlq.Resolved)
	delete(b.state, id)
	b.poll(t)
	b.requests(t, 0)

	other := New(&Message{Table: table, Incarnation: incarnation, Record: testRecord(), Origin: position.Origin{Generation: 2}})
	_, err := b.Write(t.Context(), other)
	must(t, err)
	must(t, b.ask(t, other.EventID))
	b.poll(t)
	b.state[other.EventID] = Stored
	b.poll(t)
	must(t, b.Unclaim(t.Context(), other.EventID, incarnation, "the claim has expired"))
	must(t, b.Discard(t.Context(), other.EventID, ada))
	b.cancelled = nil
	b.poll(t)
	if !slices.Contains(b.cancelled, other.EventID) {
		t.Error("the message of a discarded dead letter stays")
	}
	must(t, b.replayer.ResolveReplay(t.Context(), b.message(other.EventID)))
	if l := b.status(t, other.EventID, dlq.Resolved); l.Outcome.Kind != dlq.OutcomeDiscarded {
		t.Errorf("the outcome is %s, want that of the operator", l.Outcome.Kind)
	}
}

// The dead letters of a deleted subscription are not claimed any more.
func TestReplayer_End(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.written(t)
	must(t, b.ask(t, id))
	b.poll(t)
	b.status(t, id, dlq.Processing)
	must(t, b.replayer.End(t.Context(), b.Chains))
	if l := b.status(t, id, dlq.Suspended); !strings.Contains(l.Waiting, "deleted") {
		t.Errorf("it waits for %q", l.Waiting)
	}
	must(t, b.Discard(t.Context(), id, ada))
}
