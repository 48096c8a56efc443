package delivery

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/outbox/kafkarecord"
	"github.com/scylla-outbox/scylla-outbox/schema"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// bundle is a store on an in-memory node, with a clock of its own.
type bundle struct {
	*Store
	world.World
	now time.Time
}

func setup(t *testing.T) *bundle {
	t.Helper()
	b := &bundle{World: world.Start(t), now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	var err error
	b.Store, err = Open(Config{Session: b.Session, Keyspace: schema.DefaultKeyspace, Now: func() time.Time { return b.now }})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func testRecord(n int) *kgo.Record {
	return &kgo.Record{
		Topic: "OrderCreated", Partition: 2, Offset: int64(n), Timestamp: time.UnixMilli(1_700_000_000_000).UTC(), Key: []byte("order-1"), Value: []byte(`{"n":1}`),
		Headers: []kgo.RecordHeader{{Key: "ce_id", Value: []byte("e" + strconv.Itoa(n))}, {Key: "ce_type", Value: []byte("OrderCreated")}, {Key: "traceparent", Value: []byte("00-1")}},
	}
}

// saved saves the n-th event's delivery in a state, a minute after the one before.
func (b *bundle) saved(t *testing.T, rule string, n int, st State) *Delivery {
	t.Helper()
	b.now = b.now.Add(time.Minute)
	r := testRecord(n)
	e := kafkarecord.Decode(r)
	d := New(rule, "to-"+rule, r, &e)
	d.State = st
	if err := b.Save(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	return d
}

func (b *bundle) list(t *testing.T, f Filter) (out []string) {
	t.Helper()
	if err := b.List(t.Context(), f, func(d *Delivery) error {
		out = append(out, d.Rule+"/"+d.EventID+"/"+string(d.State))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

func same(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func TestStore_ADeliveryIsReadAsItWasSaved(t *testing.T) {
	t.Parallel()
	b := setup(t)
	d := b.saved(t, "a", 1, Pending)
	d.Attempts, d.Error, d.NextAttempt = 2, "500", b.now.Add(time.Minute)
	if err := b.Save(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	got, err := b.Read(t.Context(), d.ID)
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", d) {
		t.Errorf("Read() = %+v\nwant     %+v", got, d)
	}
	e := kafkarecord.Decode(got.Record())
	if want := kafkarecord.Decode(testRecord(1)); e.ID != want.ID || e.Headers["traceparent"] != "00-1" || string(e.Payload()) != `{"n":1}` || e.Key != want.Key {
		t.Errorf("the record is %+v, want %+v", e, want)
	}
	if _, err := b.Read(t.Context(), gocql.UUID{1}); !errors.Is(err, ErrNotFound) {
		t.Errorf("Read() of an unknown id = %v", err)
	}
	if NewID("a", &e) == NewID("b", &e) {
		t.Error("two rules have one id")
	}
	x, y := kafkarecord.Event{Topic: "t", Offset: 1}, kafkarecord.Event{Topic: "t", Offset: 2}
	if NewID("a", &x) == NewID("a", &y) {
		t.Error("two records without an event id have one id")
	}
}

// Producers control the content of records. A delivery that cannot be saved
// would be retried for ever and block its rule.
func TestStore_TakesWhateverAProducerWrites(t *testing.T) {
	t.Parallel()
	b := setup(t)
	long, odd := strings.Repeat("ü", 40_000), "a\xffb"
	for name, r := range map[string]*kgo.Record{
		"long": {Topic: "t", Key: []byte(long), Value: []byte(long), Headers: []kgo.RecordHeader{
			{Key: "ce_id", Value: []byte(long)}, {Key: "ce_type", Value: []byte(long)}, {Key: "ce_subject", Value: []byte(long)}, {Key: long, Value: []byte(long)},
		}},
		"no UTF-8": {Topic: "t", Offset: 1, Key: []byte(odd), Value: []byte(odd), Headers: []kgo.RecordHeader{
			{Key: "ce_id", Value: []byte(odd)}, {Key: "ce_type", Value: []byte(odd)}, {Key: "ce_subject", Value: []byte(odd)}, {Key: odd, Value: []byte(odd)},
		}},
		"a time beyond all years": {Topic: "t", Offset: 2, Timestamp: time.UnixMilli(math.MaxInt64), Value: []byte("x")},
	} {
		e := kafkarecord.Decode(r)
		d := New("r", "to", r, &e)
		if err := b.Save(t.Context(), d); err != nil {
			t.Errorf("%s: Save() = %.200v", name, err)
			continue
		}
		read, err := b.Read(t.Context(), d.ID)
		if err != nil || !bytes.Equal(read.Value, r.Value) || !bytes.Equal(read.Key, r.Key) || read.RecordAt.Year() > 9999 {
			t.Errorf("%s: Read() = %.200v, %.200v", name, read, err)
		}
		if got := b.list(t, Filter{Event: d.EventID}); e.ID != "" && len(got) != 1 {
			t.Errorf("%s: found by its event %d times", name, len(got))
		}
	}
}

func TestStore_ListsByRuleStateAndEvent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for n := range 100 { // more than an hour, and than one chunk
		b.saved(t, "a", n, Delivered)
	}
	begin := b.now
	f := b.saved(t, "a", 100, Failed)
	b.saved(t, "b", 100, Failed)
	b.saved(t, "b", 101, Pending)
	same(t, "failed", b.list(t, Filter{State: Failed}), "b/e100/failed", "a/e100/failed")
	same(t, "of an event", b.list(t, Filter{Event: "e100"}), "b/e100/failed", "a/e100/failed")
	same(t, "of a rule, failed", b.list(t, Filter{Rule: "a", State: Failed}), "a/e100/failed")
	same(t, "since", b.list(t, Filter{Since: begin.Add(time.Second)}), "b/e101/pending", "b/e100/failed", "a/e100/failed")
	same(t, "until", b.list(t, Filter{Rule: "b", Until: b.now}), "b/e100/failed")
	if got := b.list(t, Filter{}); len(got) != 103 || got[0] != "b/e101/pending" || got[3] != "a/e99/delivered" {
		t.Errorf("all: %d, %v", len(got), got[:4])
	}
	if got := b.list(t, Filter{Rule: "a", State: Delivered}); len(got) != 100 {
		t.Errorf("delivered of a: %d", len(got))
	}
	// Pages neither repeat nor skip one.
	var pages []string
	for f := (Filter{}); ; {
		n := 0
		err := b.List(t.Context(), f, func(d *Delivery) error {
			if n == 7 {
				return ErrStop
			}
			n++
			f.After = d.Place()
			pages = append(pages, d.Rule+"/"+d.EventID+"/"+string(d.State))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if n < 7 {
			break
		}
	}
	same(t, "pages", pages, b.list(t, Filter{})...)
	// A changed delivery has its new state and its old position.
	f.State = Delivered
	if err := b.Save(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	same(t, "failed", b.list(t, Filter{State: Failed}), "b/e100/failed")
	if got := b.list(t, Filter{}); len(got) != 103 || got[2] != "a/e100/delivered" {
		t.Errorf("all: %d, %v", len(got), got[:4])
	}
}

func TestStore_RepeatIsAskedForOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	d := b.saved(t, "a", 1, Failed)
	got, err := b.Repeat(t.Context(), d.ID, "mara", "mended")
	if err != nil || got.State != Pending || got.Repeats != 1 || got.RepeatedBy != "mara" || got.Reason != "mended" {
		t.Fatalf("Repeat() = %+v, %v", got, err)
	}
	if _, err := b.Repeat(t.Context(), d.ID, "mara", ""); !errors.Is(err, ErrPending) {
		t.Errorf("Repeat() again = %v", err)
	}
	if _, err := b.Repeat(t.Context(), gocql.UUID{1}, "mara", ""); !errors.Is(err, ErrNotFound) {
		t.Errorf("Repeat() of an unknown id = %v", err)
	}
	asked, err := b.Repeats(t.Context(), "a", gocql.UUID{}, 10)
	if err != nil || len(asked) != 1 || asked[0] != (Asked{d.ID, "OrderCreated", 2, got.writtenAt}) {
		t.Fatalf("Repeats() = %+v, %v", asked, err)
	}
	if err := b.Repeated(t.Context(), got); err != nil {
		t.Fatal(err)
	}
	if asked, err = b.Repeats(t.Context(), "a", gocql.UUID{}, 10); err != nil || len(asked) != 0 {
		t.Errorf("Repeats() = %+v, %v", asked, err)
	}
}

// The write of a new owner with a slow clock wins over the ones of the old owner.
func TestStore_TheLaterWriteCountsWhateverTheClocks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	d := b.saved(t, "a", 1, Pending)
	b.now = b.now.Add(-time.Hour)
	got, err := b.Read(t.Context(), d.ID)
	if err != nil {
		t.Fatal(err)
	}
	got.State = Delivered
	if err := b.Save(t.Context(), got); err != nil {
		t.Fatal(err)
	}
	if got, err = b.Read(t.Context(), d.ID); err != nil || got.State != Delivered {
		t.Errorf("state %s, %v", got.State, err)
	}
	same(t, "pending", b.list(t, Filter{State: Pending}))
}

func TestStore_SinceIsWhatWasSaidFirst(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first := b.now
	for _, at := range []time.Time{first, first.Add(time.Hour)} {
		if got, err := b.Since(t.Context(), "a", at); err != nil || !got.Equal(first) {
			t.Errorf("Since() = %s, %v, want %s", got, err, first)
		}
	}
}

// Every row has a TTL, so there is no retention sweep.
func TestStore_RowsGoByThemselves(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for st, keep := range map[State]time.Duration{Delivered: DefaultKeepDelivered, Failed: DefaultKeepFailed, Pending: DefaultKeepFailed} {
		d := b.saved(t, "a", len(st), st)
		for _, column := range []string{"state", "record_value", "written_at"} {
			var ttl int
			if err := b.Session.Query("SELECT TTL("+column+") FROM deliveries WHERE id = ?", d.ID).Scan(&ttl); err != nil {
				t.Fatal(err)
			}
			if got := time.Duration(ttl) * time.Second; got > keep || got < keep-time.Minute {
				t.Errorf("%s of a %s delivery has TTL %s, want %s", column, st, got, keep)
			}
		}
	}
	if _, err := Open(Config{Session: b.Session, Keyspace: "x", KeepDelivered: time.Hour, KeepFailed: time.Minute}); err == nil {
		t.Error("failed deliveries expire before delivered ones without an error")
	}
}

// A first write with an unknown outcome is repeated later: the delivery is
// listed once, with its current state. The same holds if a process failed in
// between, and the next one did not read its write.
func TestStore_AnUnknownFirstWriteIsListedOnce(t *testing.T) {
	t.Parallel()
	for name, forgets := range map[string]bool{"repeated": false, "by another process": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			r := testRecord(1)
			e := kafkarecord.Decode(r)
			d := New("r", "to-r", r, &e)
			b.Node.Faults().MustAdd(faults.Rule{
				Match: faults.Match{Kinds: []engine.OpKind{engine.OpLoggedBatch}}, Effect: faults.Effect{Failure: faults.WriteTimeout("", 0, 1), Fate: engine.FateApply},
			})
			if err := b.Save(t.Context(), d); err == nil {
				t.Fatal("Save() did not fail")
			}
			b.Node.Faults().Clear()
			b.now = b.now.Add(2 * time.Hour)
			if forgets {
				d = New("r", "to-r", r, &e)
			}
			d.State = Failed
			if err := b.Save(t.Context(), d); err != nil {
				t.Fatal(err)
			}
			for _, f := range []Filter{{}, {Rule: "r"}, {Plugin: "to-r"}, {Event: "e1"}, {State: Failed}} {
				same(t, fmt.Sprintf("%+v", f), b.list(t, f), "r/e1/failed")
			}
			same(t, "pending", b.list(t, Filter{State: Pending}))
		})
	}
}

// Repeated removes the request that was made, but no newer one, which would
// stay pending for ever.
func TestStore_ARepeatAskedForMeanwhileStays(t *testing.T) {
	t.Parallel()
	for name, late := range map[string]bool{"after it was delivered": false, "before the request is read": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			seen := b.saved(t, "a", 1, Failed)
			if !late {
				var err error
				if seen, err = b.Repeat(t.Context(), seen.ID, "mara", ""); err != nil {
					t.Fatal(err)
				}
				seen.State = Delivered
				if err := b.Save(t.Context(), seen); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := b.Repeat(t.Context(), seen.ID, "noor", ""); err != nil {
				t.Fatal(err)
			}
			if err := b.Repeated(t.Context(), seen); err != nil {
				t.Fatal(err)
			}
			if asked, err := b.Repeats(t.Context(), "a", gocql.UUID{}, 10); err != nil || len(asked) != 1 {
				t.Errorf("Repeats() = %+v, %v, want the last request", asked, err)
			}
		})
	}
}

// A delivery that is saved long after its first hour is listed until it
// expires.
func TestStore_ListsWhatIsSavedAgainLater(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.now = time.Now()
	begin := b.now
	pass := func(d time.Duration) {
		b.now = begin.Add(d)
		b.Node.Faults().Clock().SetSkew(d)
	}
	d := b.saved(t, "a", 1, Failed)
	pass(DefaultKeepFailed - 24*time.Hour)
	if err := b.Save(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	pass(DefaultKeepFailed + 24*time.Hour)
	if _, err := b.Read(t.Context(), d.ID); err != nil {
		t.Fatal(err)
	}
	for _, f := range []Filter{{}, {Rule: "a"}, {Plugin: "to-a"}, {State: Failed}} {
		same(t, fmt.Sprintf("%+v", f), b.list(t, f), "a/e1/failed")
	}
}

func TestStore_RepeatsGoOnBehindOne(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for n := range 5 {
		if _, err := b.Repeat(t.Context(), b.saved(t, "a", n, Failed).ID, "mara", ""); err != nil {
			t.Fatal(err)
		}
	}
	seen := make(map[gocql.UUID]bool)
	var after gocql.UUID
	for range 3 {
		asked, err := b.Repeats(t.Context(), "a", after, 2)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range asked {
			seen[a.ID], after = true, a.ID
		}
	}
	if len(seen) != 5 {
		t.Errorf("three times two are %d, want 5", len(seen))
	}
}
