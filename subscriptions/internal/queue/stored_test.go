package queue

import (
	"cmp"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/subscriptions/internal/position"
)

var strict = Config{Ordered: true, Strict: true, MaxReceive: 2, Backoff: func(n int) time.Duration { return time.Duration(n) * time.Second }}

func record(offset int64) *kgo.Record { return &kgo.Record{Offset: offset, Timestamp: start} }

func add(q *Queue, key string, offset int64) { q.Add(Record{Record: record(offset), Key: key}) }

// lease leases all messages that can be leased, for a minute.
func lease(q *Queue, now time.Time) []Delivery {
	return q.Lease(nil, 100, 1, now, now.Add(time.Minute), "me")
}

func offsets(ds []Delivery) (out []int64) {
	for _, d := range ds {
		out = append(out, d.Offset)
	}
	return out
}

func wantOffsets(t *testing.T, what string, got []Delivery, want ...int64) {
	t.Helper()
	if !slices.Equal(offsets(got), want) {
		t.Fatalf("%s: the offsets %v are leased, want %v", what, offsets(got), want)
	}
}

// store does the work of the database, and returns it.
func store(q *Queue) Work {
	w := q.Work(1000)
	for _, r := range w.Save {
		q.ConfirmSave(r.Offset, nil)
	}
	for _, o := range w.Load {
		q.ConfirmLoad(o, Record{Record: record(o)}, nil)
	}
	for _, d := range w.DeadLetters {
		q.DeadLettered(d.Offset, nil)
	}
	for _, o := range w.Remove {
		q.ConfirmRemoval(o, nil)
	}
	return w
}

// A failed delivery is confirmed once it is stored, delivered again when its delay is over,
// and settled in the position, so that later offsets can be committed.
func TestQueue_Nack(t *testing.T) {
	t.Parallel()
	q, got := New(strict, Start{}), results{}
	add(q, "a", 0)
	add(q, "a", 1)
	add(q, "b", 2)
	ds := lease(q, start)
	wantOffsets(t, "one of each key", ds, 0, 2)
	if o := q.Settle(0, ds[0].Lease, Nack, start, 0, "no stock", Waiter{got, 0}); o != Pending {
		t.Fatalf("Settle() = %v, want %v", o, Pending)
	}
	if len(got) != 0 || !q.HasWork() {
		t.Fatalf("outcomes %v before the row is written", got)
	}
	w := q.Work(10)
	want := Row{Offset: 0, Key: "a", Attempts: 1, NextAt: start.Add(time.Second), FirstAt: start, Error: "no stock"}
	if len(w.Save) != 1 || w.Save[0].Record == nil {
		t.Fatalf("%+v is saved", w.Save)
	}
	if row := w.Save[0]; row.Offset != want.Offset || row.Key != want.Key || row.Attempts != 1 || !row.NextAt.Equal(want.NextAt) || !row.FirstAt.Equal(start) || row.Error != want.Error || row.Behind {
		t.Errorf("the row is %+v, want %+v", row, want)
	}
	q.ConfirmSave(0, nil)
	if got[0] != OK {
		t.Errorf("the outcome is %v, want %v", got[0], OK)
	}
	if n := q.Next(); !n.Equal(start.Add(time.Second)) {
		t.Errorf("the next event is at %v, want the end of the delay", n)
	}
	if p := q.Position(); p.Offset != 1 {
		t.Errorf("the position is %d, want 1: offset 0 is in the database", p.Offset)
	}
	if c := q.Counts(); c.Deferred != 1 || c.Stored != 1 || c.Waiting != 1 || c.Leased != 1 {
		t.Errorf("the counts are %+v", c)
	}
	wantOffsets(t, "during the delay", lease(q, start))

	later := start.Add(2 * time.Second)
	if n := q.Expire(later); n != 0 {
		t.Errorf("%d leases expired, want 0", n)
	}
	wantOffsets(t, "before its record is read", lease(q, later))
	if w := store(q); !slices.Equal(w.Load, []int64{0}) {
		t.Errorf("the offsets %v are loaded, want 0", w.Load)
	}
	again := lease(q, later)
	wantOffsets(t, "after the delay", again, 0)
	if again[0].Attempt != 2 || again[0].MaxReceive != 2 {
		t.Errorf("delivery %d of %d, want 2 of 2", again[0].Attempt, again[0].MaxReceive)
	}
}

// The last failed delivery makes a dead letter. It is stored as one before that is written;
// it blocks its key until it is freed.
func TestQueue_DeadLetterBlocksItsKey(t *testing.T) {
	t.Parallel()
	q, got := New(Config{Ordered: true, Strict: true, MaxReceive: 1}, Start{}), results{}
	add(q, "a", 0)
	add(q, "a", 1)
	d := lease(q, start)[0]
	q.Settle(0, d.Lease, Nack, start, 0, "bad", Waiter{got, 0})
	w := store(q)
	if len(w.Save) != 1 || !w.Save[0].DeadLettering || w.Save[0].Rejected || len(w.DeadLetters) != 0 {
		t.Fatalf("the first work is %+v, want a row that becomes a dead letter", w)
	}
	w = store(q)
	if len(w.DeadLetters) != 1 || w.DeadLetters[0].Offset != 0 || w.DeadLetters[0].Error != "bad" || w.DeadLetters[0].Attempts != 1 || w.DeadLetters[0].Rejected {
		t.Fatalf("the second work is %+v, want the dead letter", w)
	}
	q.ConfirmPosition(q.Position())
	if w = store(q); !slices.Equal(w.Remove, []int64{0}) || got[0] != OK {
		t.Errorf("the third work is %+v with outcomes %v, want the removal of the row", w, got)
	}
	wantOffsets(t, "behind the dead letter", lease(q, start))
	if keys := q.keys.BlockedKeys(); !slices.Equal(keys, []string{"a"}) {
		t.Errorf("the keys %v are blocked, want a", keys)
	}
	free(q, "unknown")
	free(q, "a")
	wantOffsets(t, "after the key is freed", lease(q, start), 1)
	if keys := q.keys.BlockedKeys(); len(keys) != 0 {
		t.Errorf("the keys %v are blocked, want none", keys)
	}
}

// A rejected message is given up at its first delivery.
func TestQueue_Reject(t *testing.T) {
	t.Parallel()
	q, got := New(Config{Ordered: true, MaxReceive: 5}, Start{}), results{}
	add(q, "a", 0)
	add(q, "a", 1)
	q.Settle(0, lease(q, start)[0].Lease, Reject, start, 0, "not mine", Waiter{got, 0})
	if w := store(q); len(w.Save) != 1 || !w.Save[0].Rejected || !w.Save[0].DeadLettering {
		t.Fatalf("the row is %+v", w.Save)
	}
	if w := store(q); len(w.DeadLetters) != 1 || !w.DeadLetters[0].Rejected || w.DeadLetters[0].Error != "not mine" {
		t.Fatalf("the dead letter is %+v", w.DeadLetters)
	}
	q.ConfirmPosition(q.Position())
	store(q)
	if got[0] != OK {
		t.Errorf("the outcome is %v, want %v", got[0], OK)
	}
	wantOffsets(t, "without Strict", lease(q, start), 1)
}

// The details of a failure are kept only for the message that is given up, and in no state.
func TestQueue_Details(t *testing.T) {
	t.Parallel()
	q, got := New(Config{Ordered: true, MaxReceive: 2}, Start{}), results{}
	add(q, "a", 0)
	text := WithDetails("boom", "at main.go:7"+detailsMark)
	for i, want := range []string{"boom", text} {
		at := start.Add(time.Duration(i) * time.Hour)
		q.Expire(at)
		store(q) // reads the record
		q.Settle(0, lease(q, at)[0].Lease, Nack, at, time.Second, text, Waiter{got, 0})
		if w := store(q); len(w.Save) != 1 || w.Save[0].Error != want {
			t.Errorf("failure %d: the row is %+v, want the error %q", i+1, w.Save, want)
		}
		if p := q.Progress(0); p.Error != "boom" {
			t.Errorf("failure %d: the state has the error %q", i+1, p.Error)
		}
	}
	w := store(q)
	if len(w.DeadLetters) != 1 {
		t.Fatalf("the work is %+v, want a dead letter", w)
	}
	if reason, details := CutDetails(w.DeadLetters[0].Error); reason != "boom" || details != "at main.go:7" {
		t.Errorf("the dead letter has the error %q with the details %q", reason, details)
	}
	if reason, details := CutDetails(WithDetails("a"+detailsMark+"b", "")); reason != "ab" || details != "" {
		t.Errorf("without details: %q, %q", reason, details)
	}
}

// A record whose filter fails is given up without a delivery.
func TestQueue_Undecidable(t *testing.T) {
	t.Parallel()
	q := New(Config{MaxReceive: 5}, Start{})
	q.Add(Record{Record: record(0), Undecidable: errors.New("no field total")})
	wantOffsets(t, "undecidable", lease(q, start))
	w := store(q)
	if len(w.Save) != 0 || len(w.DeadLetters) != 1 || w.DeadLetters[0].Error != "no field total" || !w.DeadLetters[0].Rejected || w.DeadLetters[0].Attempts != 0 {
		t.Errorf("the work is %+v, want a dead letter without a row", w)
	}
	if p := q.Position(); p.Offset != 1 {
		t.Errorf("the position is %d, want 1", p.Offset)
	}
}

// Work that fails is done again.
func TestQueue_RepeatsFailedWork(t *testing.T) {
	t.Parallel()
	failed := errors.New("timeout")
	q := New(Config{Ordered: true, MaxReceive: 1}, Start{Offset: 4, Rows: []Row{{Offset: 3, Key: "x", Attempts: 1, FirstAt: start}}})
	q.Expire(start)
	for range 3 {
		w := q.Work(10)
		if !slices.Equal(w.Load, []int64{3}) {
			t.Fatalf("the offsets %v are loaded, want 3", w.Load)
		}
		q.ConfirmLoad(3, Record{}, failed)
	}
	store(q)
	d := lease(q, start)
	wantOffsets(t, "the loaded row", d, 3)
	q.Settle(3, d[0].Lease, Nack, start, 0, "bad", Waiter{})
	for range 3 {
		if w := q.Work(10); len(w.Save) != 1 {
			t.Fatalf("%+v is saved", w.Save)
		}
		q.ConfirmSave(3, failed)
	}
	store(q)
	for range 3 {
		if w := q.Work(10); len(w.DeadLetters) != 1 {
			t.Fatalf("%+v are dead-lettered", w.DeadLetters)
		}
		q.DeadLettered(3, failed)
	}
	store(q)
	q.ConfirmPosition(q.Position())
	for range 3 {
		if w := q.Work(10); !slices.Equal(w.Remove, []int64{3}) {
			t.Fatalf("the rows %v are removed", w.Remove)
		}
		q.ConfirmRemoval(3, failed)
	}
	store(q)
	if c := q.Counts(); c.Stored != 0 || c.Bytes != 0 || q.HasWork() {
		t.Errorf("the counts are %+v at the end, with work: %v", c, q.HasWork())
	}
}

// Rows of a former owner: failed deliveries wait for their time, messages behind them for their
// turn, and a message that was becoming a dead letter becomes one.
func TestNew_RestoresRows(t *testing.T) {
	t.Parallel()
	q := New(strict, Start{Offset: 10, Rows: []Row{
		{Offset: 3, Key: "a", Attempts: 1, NextAt: start.Add(time.Second), FirstAt: start, RecordAt: start, Error: "no"},
		{Offset: 5, Key: "a", Behind: true, FirstAt: start, RecordAt: start},
		{Offset: 7, Key: "b", Attempts: 1, DeadLettering: true, FirstAt: start, RecordAt: start, Error: "bad"},
		{Offset: 12, Key: "c", Attempts: 1, FirstAt: start, RecordAt: start, NextAt: start},
	}})
	if c := q.Counts(); c.Stored != 4 || c.Deferred != 2 || c.Waiting != 2 || c.Offset != 10 {
		t.Errorf("the counts are %+v", c)
	}
	if p := q.Progress(7); p.Kind != InPhase || p.Phase != Dead || p.Error != "bad" {
		t.Errorf("the progress of a message that becomes a dead letter is %+v", p)
	}
	if at := q.Oldest(); !at.Equal(start) {
		t.Errorf("the oldest message is of %v, want %v", at, start)
	}
	q.Expire(start)
	if w := store(q); !slices.Equal(w.Load, []int64{7}) {
		t.Errorf("the offsets %v are loaded, want 7", w.Load)
	}
	if w := store(q); len(w.DeadLetters) != 1 || w.DeadLetters[0].Offset != 7 {
		t.Errorf("the dead letters %+v are written, want that of 7", w.DeadLetters)
	}
	// The former owner stored 12 while 11, of its key, was leased or its acknowledgement was
	// not committed.
	wantOffsets(t, "at first", lease(q, start))
	add(q, "c", 11)
	add(q, "c", 12) // known from its row
	add(q, "d", 13)
	ds := lease(q, start)
	wantOffsets(t, "after reading", ds, 11, 13)
	ack(q, ds...)
	q.Expire(start)
	store(q)
	wantOffsets(t, "after 11", lease(q, start), 12)

	q.Expire(start.Add(time.Second))
	store(q)
	d := lease(q, start.Add(time.Second))
	wantOffsets(t, "after the delay of 3", d, 3)
	q.Settle(3, d[0].Lease, Ack, start.Add(time.Second), 0, "", Waiter{})
	q.ConfirmPosition(q.Position())
	store(q) // removes the row of 3
	store(q) // loads 5
	wantOffsets(t, "behind 3", lease(q, start.Add(time.Second)), 5)
}

// An open dead letter of a former owner blocks its key and settles its offset.
func TestNew_OpenDeadLetters(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		cfg  Config
		want []int64
	}{
		"strict":     {strict, []int64{2}},
		"not strict": {Config{Ordered: true, MaxReceive: 2}, []int64{0, 2}},
	} {
		q := New(tt.cfg, Start{Blocked: []Blocked{{"a", 0, start}}})
		add(q, "a", 0)
		add(q, "a", 1)
		add(q, "b", 2)
		wantOffsets(t, name, lease(q, start), tt.want...)
	}
}

// A replayed dead letter is stored, passes the block that it causes, and ends once.
func TestQueue_Replay(t *testing.T) {
	t.Parallel()
	id := gocql.TimeUUID()
	q := New(strict, Start{Offset: 5, Blocked: []Blocked{{"a", 2, start}}})
	add(q, "a", 5)
	edited := gocql.TimeUUID()
	row := Row{Offset: -2, Key: "a", Record: record(2), DeadLetter: id, Edited: edited}
	for name, bad := range map[string]Row{
		"without a record":         {Offset: -2, Key: "a", DeadLetter: id},
		"without a dead letter":    {Offset: -2, Key: "a", Record: record(2)},
		"at the place of a record": {Offset: 2, Key: "a", Record: record(2), DeadLetter: id},
	} {
		if q.Replay(bad, start) {
			t.Errorf("a replay %s is accepted", name)
		}
	}
	if got := q.FindReplayState(-2, id, edited); got != NoReplay {
		t.Errorf("before the replay: %d", got)
	}
	if !q.Replay(row, start) {
		t.Fatal("a replay is refused")
	}
	if q.Replay(row, start) {
		t.Error("a second replay of the same dead letter is accepted")
	}
	if got := q.FindReplayState(-2, id, edited); got != AcceptedReplay {
		t.Errorf("before it is stored: %d", got)
	}
	wantOffsets(t, "before it is stored", lease(q, start))
	if w := store(q); len(w.Save) != 1 || w.Save[0].DeadLetter != id || w.Save[0].Edited != edited || w.Save[0].Attempts != 0 {
		t.Fatalf("%+v is saved", w.Save)
	}
	if got := q.FindReplayState(-2, id, edited); got != StoredReplay {
		t.Errorf("after it is stored: %d", got)
	}
	if q.FindReplayState(-2, gocql.TimeUUID(), edited) != OtherReplay || q.FindReplayState(-2, id, gocql.UUID{}) != OtherReplay {
		t.Error("it counts as the replay of another dead letter, or of the original event")
	}
	if got, edit, purged := q.FindReplay(-2); got != id || edit != edited || purged {
		t.Errorf("ReplayOf() = %v, %v, %v, want %v", got, edit, purged, id)
	}
	q.Expire(start)
	store(q)
	d := lease(q, start)
	wantOffsets(t, "the replay passes the block", d, -2)
	q.Settle(-2, d[0].Lease, Ack, start, 0, "", Waiter{})
	q.ConfirmPosition(q.Position())
	store(q)
	if q.FindReplayState(-2, id, edited) != NoReplay {
		t.Error("the replay has not ended")
	}
	if got, _, _ := q.FindReplay(-2); got != (gocql.UUID{}) {
		t.Errorf("an ended replay is that of %v", got)
	}
	wantOffsets(t, "before the key is freed", lease(q, start))
	free(q, "a")
	wantOffsets(t, "after the key is freed", lease(q, start), 5)
}

// A cancelled replay is removed, and its dead letter is no longer its own; one that a consumer
// has stays.
func TestQueue_CancelReplay(t *testing.T) {
	t.Parallel()
	id := gocql.TimeUUID()
	q := New(strict, Start{Offset: 5})
	q.Replay(Row{Offset: -2, Key: "a", Record: record(2), DeadLetter: id}, start)
	store(q)
	q.Cancel(-2, gocql.TimeUUID())
	q.Expire(start)
	store(q)
	d := lease(q, start)
	wantOffsets(t, "another dead letter is cancelled", d, -2)
	q.Cancel(-2, id)
	q.Settle(-2, d[0].Lease, Release, start, 0, "", Waiter{})
	q.Cancel(-2, id)
	if got, _, _ := q.FindReplay(-2); got != (gocql.UUID{}) {
		t.Errorf("the message is still the replay of %v", got)
	}
	wantOffsets(t, "after it is cancelled", lease(q, start))
	q.ConfirmPosition(q.Position())
	if w := store(q); len(w.Remove) != 1 || q.FindReplayState(-2, id, gocql.UUID{}) != NoReplay {
		t.Errorf("%v is removed, want the row of the replay", w.Remove)
	}
}

// Repeating the action that ended a lease has its outcome; another action does not.
func TestQueue_RepeatedActions(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		first, second Action
		committed     bool // the first is durable before the second
		outcome       Outcome
	}{
		"an acknowledgement that is pending":        {Ack, Ack, false, Pending},
		"an acknowledgement that is durable":        {Ack, Ack, true, OK},
		"a failure that is pending":                 {Nack, Nack, false, Pending},
		"a failure that is stored":                  {Nack, Nack, true, OK},
		"a release":                                 {Release, Release, true, OK},
		"a failure after an acknowledgement":        {Ack, Nack, false, Expired},
		"an acknowledgement after a failure":        {Nack, Ack, true, Expired},
		"an acknowledgement after a release":        {Release, Ack, true, Expired},
		"a rejection after an acknowledgement":      {Ack, Reject, true, Expired},
		"a rejection whose dead letter is pending":  {Reject, Reject, false, Pending},
		"an acknowledgement of a rejected delivery": {Reject, Ack, false, Expired},
	} {
		q := New(strict, Start{})
		add(q, "a", 0)
		d := lease(q, start)[0]
		q.Settle(0, d.Lease, tt.first, start, 0, "", Waiter{})
		if tt.committed {
			store(q)
			q.ConfirmPosition(q.Position())
		}
		if got := q.Settle(0, d.Lease, tt.second, start, 0, "", Waiter{}); got != tt.outcome {
			t.Errorf("%s: %v, want %v", name, got, tt.outcome)
		}
	}
}

// A lease ends at its time; an extension moves it, a release gives the delivery back.
func TestQueue_Leases(t *testing.T) {
	t.Parallel()
	q, got := New(strict, Start{}), results{}
	add(q, "a", 0)
	d := lease(q, start)[0]
	if at := q.LeasedAt(0, d.Lease); !at.Equal(start) {
		t.Errorf("leased at %v, want %v", at, start)
	}
	if ls := q.Leases(); len(ls) != 1 || ls[0].Consumer != "me" || ls[0].Lease != d.Lease || ls[0].Attempt != 1 || ls[0].MaxReceive != 2 || !ls[0].Until.Equal(start.Add(time.Minute)) {
		t.Errorf("the leases are %+v", ls)
	}
	if q.Extend(0, d.Lease, start.Add(50*time.Second), start.Add(2*time.Minute)).IsZero() {
		t.Error("a valid lease is not extended")
	}
	if !q.Extend(0, d.Lease+1, start, start.Add(time.Hour)).IsZero() || !q.Extend(1, d.Lease, start, start.Add(time.Hour)).IsZero() {
		t.Error("a lease that was never given is extended")
	}
	if n := q.Expire(start.Add(2*time.Minute - 1)); n != 0 {
		t.Errorf("%d leases expired before their time", n)
	}
	end := start.Add(2 * time.Minute)
	if n := q.Expire(end); n != 1 {
		t.Errorf("%d leases expired, want 1", n)
	}
	if !q.LeasedAt(0, d.Lease).IsZero() || !q.Extend(0, d.Lease, end, end.Add(time.Minute)).IsZero() || len(q.Leases()) != 0 {
		t.Error("an expired lease is valid")
	}
	if o := q.Settle(0, d.Lease, Ack, end, 0, "", Waiter{got, 0}); o != Expired {
		t.Errorf("an acknowledgement after the end: %v, want %v", o, Expired)
	}
	if p := q.Progress(0); p.Phase != Deferred || p.Error != "the lease expired" || p.Attempts != 1 || !p.At.Equal(end.Add(time.Second)) {
		t.Errorf("the progress is %+v", p)
	}

	store(q)
	later := end.Add(time.Second)
	for range 5 { // a release is no attempt
		q.Expire(later)
		store(q)
		d = lease(q, later)[0]
		if d.Attempt != 2 {
			t.Fatalf("delivery %d, want 2", d.Attempt)
		}
		if o := q.Settle(0, d.Lease, Release, later, 0, "", Waiter{}); o != OK {
			t.Fatalf("a release: %v, want %v", o, OK)
		}
	}
}

// A message may have a limit of deliveries of its own, and a consumer a delay of its own.
func TestQueue_OwnLimits(t *testing.T) {
	t.Parallel()
	q := New(strict, Start{})
	q.Add(Record{Record: record(0), Key: "a", MaxReceive: 1})
	add(q, "b", 1)
	ds := lease(q, start)
	q.Settle(0, ds[0].Lease, Nack, start, 0, "", Waiter{})
	q.Settle(1, ds[1].Lease, Nack, start, time.Hour, "", Waiter{})
	if p := q.Progress(0); p.Phase != Dead {
		t.Errorf("after its only delivery a message is in phase %v, want %v", p.Phase, Dead)
	}
	if p := q.Progress(1); p.Phase != Deferred || !p.At.Equal(start.Add(time.Hour)) {
		t.Errorf("a message with a delay of an hour: %+v", p)
	}
	q.SetConfig(Config{Ordered: true, MaxReceive: 9})
	store(q)
	q.Expire(start.Add(time.Hour))
	store(q)
	if d := lease(q, start.Add(time.Hour)); len(d) != 1 || d[0].MaxReceive != 9 {
		t.Errorf("after a change of the limit: %+v", d)
	}
}

// Records that the subscription does not select are settled without a message.
func TestQueue_Skip(t *testing.T) {
	t.Parallel()
	q := New(strict, Start{Offset: 3})
	q.Skip(3, 7)
	if p := q.Position(); p.Offset != 4 || p.LeaderEpoch != 7 {
		t.Errorf("the position is %+v, want offset 4 of epoch 7", p)
	}
	add(q, "a", 4)
	q.Skip(5, 7)
	q.Skip(2, 7) // read again
	if p := q.Position(); p.Offset != 4 {
		t.Errorf("the position is %d, want 4: that message is not settled", p.Offset)
	}
	settled, _, err := position.Decode(4, q.Position().Metadata)
	if err != nil || !settled.Has(5) || settled.Has(4) {
		t.Errorf("the metadata contains %+v (%v), want 5", settled, err)
	}
	d := lease(q, start)[0]
	q.Settle(4, d.Lease, Ack, start, 0, "", Waiter{})
	if p := q.Position(); p.Offset != 6 {
		t.Errorf("the position is %d, want 6", p.Offset)
	}
}

// A closed queue ignores every call.
func TestQueue_Closed(t *testing.T) {
	t.Parallel()
	q := New(strict, Start{})
	add(q, "a", 0)
	add(q, "b", 1)
	d := q.Lease(nil, 1, 1, start, start.Add(time.Minute), "")[0]
	q.Close()
	add(q, "c", 2)
	wantOffsets(t, "closed", lease(q, start))
	if o := q.Settle(0, d.Lease, Ack, start, 0, "", Waiter{}); o != Expired {
		t.Errorf("Settle() = %v, want %v", o, Expired)
	}
	if n := q.Expire(start.Add(time.Hour)); n != 0 || !q.Next().IsZero() || len(q.Leases()) != 0 {
		t.Errorf("a closed queue has %d leases that expire", n)
	}
	if changed, urgent := q.Dirty(); changed || urgent || q.HasWork() {
		t.Error("a closed queue has work")
	}
	if q.Replay(Row{Offset: -9, Record: record(9), DeadLetter: gocql.TimeUUID()}, start) {
		t.Error("a closed queue accepts a replay")
	}
	if got := q.FindReplayState(-9, gocql.UUID{}, gocql.UUID{}); got != OtherReplay {
		t.Errorf("Replayed() = %d", got)
	}
	if n := q.Purge(start, start.Add(time.Hour), 100, false); n != 1 {
		t.Errorf("a purge counts %d messages, want the one that waits", n)
	}
	if w := q.Work(10); !w.Empty() {
		t.Errorf("the work is %+v", w)
	}
}

// free removes the block of a key, as the owner of the queues does.
func free(q *Queue, key string) {
	q.keys.Free(key)
	q.Turn(key)
}

// However often a lease is extended, and handed over meanwhile, it ends after the limit of one
// delivery, by default after 12 hours. The delivery has failed then.
func TestQueue_ExtensionsAreLimited(t *testing.T) {
	t.Parallel()
	for _, limit := range []time.Duration{0, MaxDelivery, 2 * time.Minute, 10*time.Minute + time.Second} {
		for _, moves := range []bool{false, true} {
			cfg := strict
			cfg.MaxExtension = limit
			end := start.Add(cmp.Or(limit, MaxDelivery))
			q := New(cfg, Start{})
			add(q, "a", 0)
			d := lease(q, start)[0]
			now := start
			for ; now.Before(end); now = now.Add(30 * time.Second) {
				if got, want := q.Extend(0, d.Lease, now, now.Add(time.Minute)), now.Add(time.Minute); got.IsZero() || got.After(end) || want.Before(end) && !got.Equal(want) {
					t.Fatalf("limit %s, moves %t: extended after %s to %s after the delivery", limit, moves, now.Sub(start), got.Sub(start))
				}
				if moves {
					h := q.HandOver(now)
					q = New(cfg, Start{At: now.Add(time.Second), HandOver: h})
					q.Add(Record{Record: &kgo.Record{Offset: 0, Timestamp: start}, Key: "a"})
				}
			}
			if got := q.Extend(0, d.Lease, now, now.Add(time.Minute)); !got.IsZero() {
				t.Errorf("limit %s, moves %t: extended to %s after the delivery", limit, moves, got.Sub(start))
			}
			if p := q.Progress(0); p.Phase != Deferred || p.Attempts != 1 {
				t.Errorf("limit %s, moves %t: the message is %+v, want a failed delivery", limit, moves, p)
			}
		}
	}
}

// A limit that becomes shorter than a lease does not shorten the lease: neither an extension, nor a
// hand-over. It permits no longer one.
func TestQueue_AShorterLimitEndsNoLease(t *testing.T) {
	t.Parallel()
	for _, moves := range []bool{false, true} {
		q := New(strict, Start{})
		add(q, "a", 0)
		d := lease(q, start)[0]
		q.Extend(0, d.Lease, start, start.Add(time.Hour))
		cfg := strict
		cfg.MaxExtension = time.Minute
		q.SetConfig(cfg)
		now := start.Add(30 * time.Minute)
		if moves {
			q = New(cfg, Start{At: now, HandOver: q.HandOver(now)})
		}
		if end := q.Extend(0, d.Lease, now, now.Add(2*time.Hour)); !end.Equal(start.Add(time.Hour)) {
			t.Errorf("moves %t: the lease ends %s after the delivery, want 1h", moves, end.Sub(start))
		}
	}
}
