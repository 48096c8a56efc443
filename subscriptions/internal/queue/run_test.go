package queue

import (
	"errors"
	"slices"
	"testing"
	"time"
)

// run leases a run of up to n messages.
func run(q *Queue, n int, now time.Time) []Delivery {
	return q.Lease(nil, n, n, now, now.Add(time.Minute), "me")
}

func ofOneKey(n int64) *Queue {
	q := New(Config{Ordered: true, MaxReceive: 2, Backoff: func(int) time.Duration { return time.Second }}, Start{})
	for i := range n {
		add(q, "k", i)
	}
	return q
}

// A run has the messages of a key in order; the next run follows when it has ended.
func TestQueue_Run(t *testing.T) {
	t.Parallel()
	q := ofOneKey(10)
	add(q, "other", 10)
	first := q.Lease(nil, 100, 4, start, start.Add(time.Minute), "me")
	wantOffsets(t, "a run of four, and another key", first, 0, 1, 2, 3, 10)
	for _, d := range first[:3] {
		if o := q.Settle(d.Offset, d.Lease, Ack, start, 0, "", Waiter{}); o != Pending {
			t.Fatalf("the outcome of %d is %v", d.Offset, o)
		}
	}
	q.ConfirmPosition(q.Position())
	wantOffsets(t, "before the end of the run", run(q, 100, start))
	ack(q, first[3])
	wantOffsets(t, "the next run", run(q, 100, start), 4, 5, 6, 7, 8, 9)
}

// An acknowledgement is refused while an earlier message of the run is leased.
func TestQueue_RunIsAcknowledgedInOrder(t *testing.T) {
	t.Parallel()
	q := ofOneKey(3)
	ds := run(q, 3, start)
	for _, i := range []int{1, 2} {
		if o := q.Settle(ds[i].Offset, ds[i].Lease, Ack, start, 0, "", Waiter{}); o != OutOfOrder {
			t.Errorf("the outcome of %d is %v, want %v", i, o, OutOfOrder)
		}
	}
	for i := range ds {
		if o := q.Settle(ds[i].Offset, ds[i].Lease, Ack, start, 0, "", Waiter{}); o != Pending {
			t.Errorf("the outcome of %d in order is %v", i, o)
		}
	}
}

// What ends the lease of a message ends the leases of the later ones of its run: they are
// delivered again, in order, and these deliveries do not count. Earlier ones stay leased.
func TestQueue_EndOfARun(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(q *Queue, d Delivery){
		"nack":    func(q *Queue, d Delivery) { q.Settle(d.Offset, d.Lease, Nack, start, 0, "bad", Waiter{}) },
		"release": func(q *Queue, d Delivery) { q.Settle(d.Offset, d.Lease, Release, start, 0, "", Waiter{}) },
	} {
		q := ofOneKey(5)
		ds := run(q, 5, start)
		end(q, ds[2])
		for _, d := range ds[3:] {
			if o := q.Settle(d.Offset, d.Lease, Ack, start, 0, "", Waiter{}); o != Expired {
				t.Errorf("%s: %d can be acknowledged: %v", name, d.Offset, o)
			}
		}
		store(q)
		later := start.Add(10 * time.Second)
		q.Expire(later)
		store(q)
		wantOffsets(t, name+": while the first ones are leased", run(q, 5, later))
		ack(q, ds[:2]...)
		q.Expire(later)
		store(q)
		again := run(q, 5, later)
		if len(again) == 1 && again[0].Offset == 2 { // the record of 2 was loaded alone
			ack(q, again...)
			store(q)
			again = append(again, run(q, 5, later)...)
		}
		wantOffsets(t, name+": again", again, 2, 3, 4)
		if got := []int{again[0].Attempt, again[1].Attempt, again[2].Attempt}; !slices.Equal(got[1:], []int{1, 1}) || (got[0] == 2) != (name == "nack") {
			t.Errorf("%s: the deliveries are %v", name, got)
		}
	}
}

// When the lease of a run expires, the delivery of its first message has failed, and the
// others are delivered again without a count. An extension of one is that of the run.
func TestQueue_RunExpires(t *testing.T) {
	t.Parallel()
	q := ofOneKey(3)
	ds := run(q, 3, start)
	if q.Extend(2, ds[2].Lease, start, start.Add(time.Hour)).IsZero() {
		t.Fatal("a lease of the run is not extended")
	}
	if n := q.Expire(start.Add(2 * time.Minute)); n != 0 {
		t.Fatalf("%d leases expired before the end of the extension", n)
	}
	ack(q, ds[0])
	end := start.Add(time.Hour)
	if n := q.Expire(end); n != 2 {
		t.Errorf("%d leases expired, want 2", n)
	}
	if p := q.Progress(1); p.Phase != Deferred || p.Attempts != 1 {
		t.Errorf("the first one is %+v", p)
	}
	if p := q.Progress(2); p.Phase != Waiting || p.Attempts != 0 {
		t.Errorf("the second one is %+v", p)
	}
}

// A run ends before a message that cannot be delivered.
func TestQueue_RunEndsBeforeADeadLetter(t *testing.T) {
	t.Parallel()
	q := ofOneKey(2)
	q.Add(Record{Record: record(2), Key: "k", Undecidable: errors.New("no field total")})
	add(q, "k", 3)
	ds := run(q, 10, start)
	wantOffsets(t, "before the undecidable one", ds, 0, 1)
	ack(q, ds...)
	store(q)
	q.ConfirmPosition(q.Position())
	wantOffsets(t, "after it", run(q, 10, start), 3)
}
