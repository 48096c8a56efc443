package queue

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/subscriptions/internal/position"
)

// results collects outcomes by index.
type results map[int]Outcome

func (r results) Done(i int, o Outcome) { r[i] = o }

var start = time.UnixMilli(1e12)

// fillQueue returns a queue with n messages of as many keys.
func fillQueue(n int, keys ...string) *Queue {
	q := New(Config{Ordered: true, MaxReceive: 3, Backoff: func(int) time.Duration { return time.Second }}, Start{})
	for i := range n {
		key := ""
		if len(keys) > 0 {
			key = keys[i%len(keys)]
		}
		q.Add(Record{Record: &kgo.Record{Offset: int64(i), Timestamp: start}, Key: key})
	}
	return q
}

// An acknowledgement that arrives while a commit is on its way needs the next one.
func TestQueue_ConfirmedByItsCommit(t *testing.T) {
	t.Parallel()
	q, got := fillQueue(2), results{}
	d := q.Lease(nil, 2, 1, start, start.Add(time.Minute), "")
	q.Settle(0, d[0].Lease, Ack, start, 0, "", Waiter{got, 0})
	running := q.Position()
	q.Settle(1, d[1].Lease, Ack, start, 0, "", Waiter{got, 1})
	q.ConfirmPosition(running)
	if _, early := got[1]; got[0] != OK || early {
		t.Fatalf("outcomes %v after the first commit, want that of 0 only", got)
	}
	q.ConfirmPosition(q.Position())
	if got[1] != OK {
		t.Errorf("outcomes %v after the second commit", got)
	}
}

func TestQueue_DeliversNothingOutsideOfTheWindow(t *testing.T) {
	t.Parallel()
	q := fillQueue(position.Window + 10)
	d := q.Lease(nil, position.Window+10, 1, start, start.Add(time.Minute), "")
	if len(d) != position.Window {
		t.Fatalf("%d messages are leased, want the window of %d", len(d), position.Window)
	}
	q.Settle(0, d[0].Lease, Ack, start, 0, "", Waiter{})
	if d = q.Lease(nil, 10, 1, start, start.Add(time.Minute), ""); len(d) != 1 || d[0].Offset != position.Window {
		t.Errorf("%+v after the first is settled, want the next one", d)
	}
}

// The outcome of an acknowledgement is unknown if a commit that may contain it has no
// answer, and else the lease has ended.
func TestQueue_OutcomesAfterTheEnd(t *testing.T) {
	t.Parallel()
	q, got := fillQueue(3), results{}
	d := q.Lease(nil, 3, 1, start, start.Add(time.Minute), "")
	q.Settle(0, d[0].Lease, Ack, start, 0, "", Waiter{got, 0})
	q.Uncertain(q.Position())
	q.Settle(1, d[1].Lease, Ack, start, 0, "", Waiter{got, 1})
	q.Settle(2, d[2].Lease, Nack, start, 0, "", Waiter{got, 2})
	q.Close()
	if got[0] != Unknown || got[1] != Expired || got[2] != Unknown {
		t.Errorf("outcomes %v, want unknown, expired, unknown", got)
	}
}

// A delivery that fails while its row is being written is stored, also if that write fails.
func TestQueue_StoresWhatFailsDuringAFailedSave(t *testing.T) {
	t.Parallel()
	q := fillQueue(position.Window + 10)
	d := q.Lease(nil, position.Window, 1, start, start.Add(time.Hour), "")
	q.Unblock(start, true)
	q.Unblock(start.Add(time.Minute), true) // nothing could be delivered meanwhile
	if w := q.Work(1); len(w.Save) != 1 || w.Save[0].Offset != 0 {
		t.Fatalf("%+v is saved, want the first message", w.Save)
	}
	q.Settle(0, d[0].Lease, Nack, start.Add(time.Minute), 0, "failed", Waiter{})
	q.ConfirmSave(0, errors.New("timeout"))
	for w := q.Work(position.Window); ; w = q.Work(position.Window) {
		for _, row := range w.Save {
			if row.Offset == 0 && row.Error == "failed" {
				return
			}
		}
		if len(w.Save) == 0 {
			t.Fatal("the failed delivery is not saved")
		}
	}
}

// A lease that is older than the remembered ones is still valid.
func TestQueue_OldLeaseIsValid(t *testing.T) {
	t.Parallel()
	q := fillQueue(2)
	first := q.Lease(nil, 1, 1, start, start.Add(time.Hour), "")[0]
	for range remembered + 5 {
		d := q.Lease(nil, 1, 1, start, start.Add(time.Hour), "")[0]
		q.Settle(d.Offset, d.Lease, Release, start, 0, "", Waiter{})
	}
	if o := q.Settle(first.Offset, first.Lease, Ack, start, 0, "", Waiter{}); o != Pending {
		t.Errorf("outcome %d, want it to be accepted", o)
	}
}

func BenchmarkQueue_LeaseAndAck(b *testing.B) {
	q := New(Config{Ordered: true, MaxReceive: 3}, Start{})
	offset, done := int64(0), results{}
	for b.Loop() {
		for range 100 {
			q.Add(Record{Record: &kgo.Record{Offset: offset, Timestamp: start}, Key: string(rune('a' + offset%1000))})
			offset++
		}
		for _, d := range q.Lease(nil, 100, 1, start, start.Add(time.Minute), "") {
			q.Settle(d.Offset, d.Lease, Ack, start, 0, "", Waiter{done, 0})
		}
		q.ConfirmPosition(q.Position())
	}
}

// A blocked key costs the others of its partition no more than storing its messages: 5% of
// the messages among 60,000 of a blocked key are delivered within some seconds.
func TestQueue_ABlockedKeyCostsItsOwn(t *testing.T) {
	t.Parallel()
	q := New(Config{Ordered: true, MaxReceive: 3}, Start{})
	now, next, free := start, int64(0), 0
	const total = 60_000
	stopped := false
	for ; now.Before(start.Add(30*time.Second)) && free < total/20; now = now.Add(storeInterval) {
		if stopped = q.Full(stopped); !stopped {
			for ; next < total && !q.Full(false); next++ {
				key := "hot"
				if next%20 == 7 {
					key = strconv.FormatInt(next, 10)
				}
				addAt(q, key, next, start)
			}
		}
		for _, d := range q.Lease(nil, 1000, 1, now, now.Add(12*time.Hour), "") {
			if d.Offset%20 == 7 {
				free++
				q.Settle(d.Offset, d.Lease, Ack, now, 0, "", Waiter{})
			}
		}
		q.ConfirmPosition(q.Position())
		q.Unblock(now, stopped)
		store(q)
	}
	if free < total/20 {
		t.Errorf("%d of %d messages of other keys were delivered after %s", free, total/20, now.Sub(start))
	}
	if c := q.Counts(); len(q.messages) > position.Window || c.Waiting+c.Leased != total-total/20 {
		t.Errorf("%d messages are in memory, and the counts are %+v", len(q.messages), c)
	}
}

// Also behind a million stored messages of a blocked key messages of other keys are delivered, and
// the purge and the progress know the stored ones.
func TestQueue_AMillionStoredMessages(t *testing.T) {
	t.Parallel()
	const stored = 1_000_000
	rows := make([]Row, stored)
	for i := range rows {
		rows[i] = Row{Offset: int64(i), Key: "hot", Behind: i > 0, Attempts: 1 - min(i, 1), NextAt: start.Add(time.Hour), FirstAt: start}
	}
	q := New(Config{Ordered: true, MaxReceive: 3}, Start{Offset: stored, Rows: rows})
	if len(q.messages) > 1 || q.Full(false) {
		t.Fatalf("%d messages are in memory, reading stops: %v", len(q.messages), q.Full(false))
	}
	for i := range int64(1000) {
		addAt(q, "free", stored+i, start)
		d := lease(q, start)
		wantOffsets(t, "behind the stored ones", d, stored+i)
		ack(q, d...)
	}
	if p := q.Progress(stored - 1); p.Kind != InPhase || p.Phase != Waiting {
		t.Errorf("the progress of a stored message is %+v", p)
	}
	if q.FindReplayState(17, gocql.UUID{}, gocql.UUID{}) == NoReplay {
		t.Error("the place of a stored message is free for a replay")
	}
	if n := q.Purge(start, start.Add(time.Second), 0, true); n != stored {
		t.Errorf("a purge counts %d messages", n)
	}
	// The key continues in order, in runs.
	later := start.Add(time.Hour)
	next := int64(0)
	for i := range 5 {
		q.Expire(later)
		for range 5 {
			store(q)
		}
		d := q.Lease(nil, 100, 100, later, later.Add(time.Minute), "")
		if i > 0 && len(d) != 100 {
			t.Errorf("%d messages are in run %d, want 100", len(d), i)
		}
		for j := range d {
			if d[j].Offset != next || d[j].Record == nil {
				t.Fatalf("%+v is leased, want offset %d", d[j], next)
			}
			next++
		}
		if n := len(q.messages); n > len(d)+maxPrefetched+1 {
			t.Errorf("%d messages are in memory", n)
		}
		ack(q, d...)
		store(q)
	}
}

// A run of stored messages has no more than fits into memory, and none of another key has to wait
// for its records. Without a consumer of runs, none is read before its turn.
func TestQueue_PrefetchIsBounded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ size, run, most int }{
		"small records": {10, 1000, 1 + maxPrefetched}, "large records": {1 << 20, 1000, prefetchBytes>>20 + prefetchAtOnce}, "one by one": {10, 1, 1}, "two by two": {10, 2, 2},
	} {
		rows := make([]Row, 2000)
		for i := range rows {
			rows[i] = Row{Offset: int64(i), Key: "hot", Behind: true, FirstAt: start}
		}
		rows = append(rows, Row{Offset: 5000, Key: "cold", Behind: true, FirstAt: start})
		q := New(Config{Ordered: true, MaxReceive: 3}, Start{Offset: 6000, Rows: rows})
		work := func() (loads int) {
			for range 100 {
				w := q.Work(5)
				loads += len(w.Load)
				for _, o := range w.Load {
					key := "hot"
					if o == 5000 {
						key = "cold"
					}
					q.ConfirmLoad(o, Record{Record: &kgo.Record{Offset: o, Timestamp: start, Value: make([]byte, c.size)}, Key: key}, nil)
				}
				for _, o := range w.Remove {
					q.ConfirmRemoval(o, nil)
				}
			}
			return loads
		}
		work()
		next, most := int64(0), 0
		for range 10 {
			n := 0
			ds := q.Lease(nil, 1000, c.run, start, start.Add(time.Minute), "")
			for _, d := range ds {
				if d.Offset == 5000 {
					continue
				}
				if d.Offset != next || d.Record == nil {
					t.Fatalf("%s: %+v is leased, want offset %d", name, d, next)
				}
				next++
				n++
			}
			if loads := work(); loads > c.most {
				t.Errorf("%s: %d records are read ahead, want at most %d", name, loads, c.most)
			}
			most = max(most, n)
			ack(q, ds...)
			work()
		}
		if most > c.most || most < min(c.most, 3) {
			t.Errorf("%s: the longest run has %d messages, want up to %d", name, most, c.most)
		}
	}
}
