package queue

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/subscriptions/internal/position"
)

// handOver hands a queue over to its next owner, which begins at a time with the durable state.
func handOver(q *Queue, at time.Time, with func(*Start)) *Queue {
	p := q.Position()
	settled, of, err := position.Decode(p.Offset, p.Metadata)
	if err != nil {
		panic(err)
	}
	s := Start{At: at, Offset: p.Offset, Settled: settled, Origin: of, HandOver: q.HandOver(at)}
	if with != nil {
		with(&s)
	}
	return New(q.cfg, s)
}

// from lets the next owner begin at an offset, with rows.
func from(offset int64, rows ...Row) func(*Start) {
	return func(s *Start) { s.Offset, s.Settled, s.Rows = offset, position.Set{}, rows }
}

// Nothing that happens to a queue after its hand-over has an effect or a result: the next owner
// decides.
func TestQueue_HandOverIsFinal(t *testing.T) {
	t.Parallel()
	q, got := New(strict, Start{}), results{}
	for i, key := range []string{"a", "b", "c", "d"} {
		add(q, key, int64(i))
	}
	ds := lease(q, start)
	q.Settle(0, ds[0].Lease, Ack, start, 0, "", Waiter{got, 0})
	q.Settle(1, ds[1].Lease, Nack, start, 0, "", Waiter{got, 1})
	w, at := q.Work(10), q.Position()
	if h := q.HandOver(start); len(h.Leases) != 4 {
		t.Fatalf("%+v are handed over, want all four", h.Leases)
	}
	if got[0] != Moved || got[1] != Moved {
		t.Errorf("the outcomes are %v, want moved", got)
	}
	clear(got)
	q.ConfirmPosition(at)
	q.ConfirmSave(w.Save[0].Offset, nil)
	q.DeadLettered(1, nil)
	add(q, "e", 4)
	if q.Expire(start.Add(time.Hour)) != 0 || q.HasWork() || len(got) != 0 || !q.Next().IsZero() {
		t.Errorf("the queue changes; outcomes %v", got)
	}
	q.Purge(start, start.Add(time.Hour), 9, false)
	for _, a := range []Action{Ack, Nack, Release, Reject} {
		if o := q.Settle(2, ds[2].Lease, a, start, 0, "", Waiter{got, 2}); o != Expired {
			t.Errorf("action %v has the outcome %v", a, o)
		}
	}
	if h := q.HandOver(start); len(h.Leases) != 0 {
		t.Errorf("a second hand-over has %+v", h.Leases)
	}
}

// A purge settles no message that is leased, whether its record was read or not: its consumer
// decides, and the message is not lost if the owner dies before.
func TestQueue_HandOverAndPurge(t *testing.T) {
	t.Parallel()
	for name, front := range map[string]bool{"the first one of the window": false, "after another one": true} {
		q := New(strict, Start{})
		add(q, "a", 0)
		add(q, "b", 1)
		ds := lease(q, start)
		n := handOver(q, start, nil)
		at := int64(0)
		if !front {
			n.Settle(0, ds[0].Lease, Ack, start, 0, "", Waiter{})
			at = 1
		}
		n.Purge(start, start.Add(time.Hour), 100, false)
		add(n, "a", 0)
		add(n, "b", 1)
		add(n, "c", 2) // purged
		p := n.Position()
		settled, _, err := position.Decode(p.Offset, p.Metadata)
		if err != nil || p.Offset != at || settled.Has(1) || !settled.Has(2) {
			t.Errorf("%s: the position is %d with %v (%v), want %d without 1 and with 2", name, p.Offset, settled, err, at)
		}
		wantOffsets(t, name+": leased and purged", lease(n, start))
		got := results{}
		for i := at; i < 2; i++ {
			n.Settle(i, ds[i].Lease, Ack, start, 0, "", Waiter{got, int(i)})
		}
		n.ConfirmPosition(n.Position())
		if p := n.Position(); p.Offset != 3 || got[1] != OK {
			t.Errorf("%s: the position is %d at the end, outcomes %v", name, p.Offset, got)
		}
	}
}

// A message whose end is durable is not leased by the next owner, which confirms the action.
func TestQueue_HandOverAfterADurableEnd(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		action Action
		with   func(*Start)
		again  Outcome
		dead   int // dead letters that are written
	}{
		"a committed acknowledgement":  {Ack, from(1), OK, 0},
		"the row of a rejection":       {Reject, from(1, Row{Offset: 0, Key: "a", DeadLettering: true, Rejected: true, Attempts: 1}), OK, 1},
		"the row of the last failure":  {Nack, from(1, Row{Offset: 0, Key: "a", DeadLettering: true, Attempts: 1}), OK, 1},
		"a dead letter":                {Reject, func(s *Start) { s.Blocked = []Blocked{{"a", 0, start}} }, Expired, 0},
		"a dead letter before its row": {Reject, func(s *Start) { s.Blocked = []Blocked{{"a", 0, start}}; s.Offset = 1 }, Expired, 0},
		"a dead letter, and its row left": {Reject, func(s *Start) {
			from(1, Row{Offset: 0, Key: "a", Attempts: 1, RecordAt: start})(s)
			s.Blocked = []Blocked{{"a", 0, start}}
		}, Expired, 0},
	} {
		q := New(Config{Ordered: true, Strict: true, MaxReceive: 1}, Start{})
		add(q, "a", 0)
		d := lease(q, start)[0]
		q.Settle(0, d.Lease, tt.action, start, 0, "bad", Waiter{})
		n := handOver(q, start, tt.with)
		if ls := n.Leases(); len(ls) != 0 {
			t.Errorf("%s: %+v are leased", name, ls)
		}
		if o := n.Settle(0, d.Lease, tt.action, start, 0, "bad", Waiter{}); o != tt.again {
			t.Errorf("%s: the outcome of the repetition is %v, want %v", name, o, tt.again)
		}
		add(n, "a", 0)
		dead := 0
		for range 5 {
			n.Expire(start.Add(time.Hour))
			dead += len(store(n).DeadLetters)
			wantOffsets(t, name, lease(n, start.Add(time.Hour)))
			n.ConfirmPosition(n.Position())
		}
		if dead != tt.dead || n.Position().Offset != 1 {
			t.Errorf("%s: %d dead letters are written, want %d; the position is %d", name, dead, tt.dead, n.Position().Offset)
		}
	}
}

// A failed delivery counts although its row is not stored, also if it was the last one and if the
// end of its lease was the failure. Whichever owner has the message next, it is delivered
// MaxReceive times.
func TestQueue_HandOverOfFailedDeliveries(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(q *Queue, d Delivery, now time.Time){
		"nack":              func(q *Queue, d Delivery, now time.Time) { q.Settle(0, d.Lease, Nack, now, 0, "bad", Waiter{}) },
		"expired":           func(q *Queue, _ Delivery, now time.Time) { q.Expire(now.Add(time.Minute)) },
		"the timer is late": func(*Queue, Delivery, time.Time) {},
		"nack and a save begins": func(q *Queue, d Delivery, now time.Time) {
			q.Settle(0, d.Lease, Nack, now, 0, "bad", Waiter{})
			q.Work(1)
		},
	} {
		for _, read := range []bool{true, false} { // before the next owner ends the lease
			q, now, delivered := New(Config{Ordered: true, MaxReceive: 3, Backoff: func(int) time.Duration { return time.Second }}, Start{}), start, 0
			var rows []Row
			var dead []DeadLetter
			add(q, "a", 0)
			for range 5 {
				for _, d := range lease(q, now) {
					if delivered++; d.Attempt != delivered {
						t.Errorf("%s, %v: delivery %d is attempt %d", name, read, delivered, d.Attempt)
					}
					fail(q, d, now)
				}
				if len(dead) > 0 {
					break
				}
				now = now.Add(2 * time.Minute)
				q = handOver(q, now, from(int64(len(rows)), rows...)) // this failure is not stored
				if read {
					add(q, "a", 0)
				}
				q.Expire(now.Add(time.Minute))
				add(q, "a", 0)
				now = now.Add(time.Hour)
				for range 4 {
					q.Expire(now)
					w := store(q)
					for _, r := range w.Save {
						r.Record = nil
						rows = []Row{r}
					}
					dead = append(dead, w.DeadLetters...)
				}
			}
			if delivered != 3 || len(dead) != 1 || dead[0].Attempts != 3 {
				t.Errorf("%s, %v: %d deliveries and the dead letters %+v, want 3 and one of 3 attempts", name, read, delivered, dead)
			}
		}
	}
}

// A run that was extended after an acknowledgement of its first message ends by the extension,
// wherever its messages are settled.
func TestQueue_HandOverOfAnExtendedRun(t *testing.T) {
	t.Parallel()
	q := ofOneKey(3)
	ds := run(q, 3, start)
	q.Settle(0, ds[0].Lease, Ack, start, 0, "", Waiter{})
	q.Extend(1, ds[1].Lease, start, start.Add(time.Hour))
	n := handOver(q, start.Add(time.Second), from(0))
	if got := n.Expire(start.Add(59 * time.Minute)); got != 0 || len(n.Leases()) != 3 {
		t.Fatalf("%d leases ended before the end of the extension; %+v", got, n.Leases())
	}
	n.Settle(0, ds[0].Lease, Ack, start.Add(59*time.Minute), 0, "", Waiter{})
	if next := n.Next(); !next.Equal(start.Add(time.Hour)) {
		t.Errorf("after the acknowledgement the run ends at %v, want the end of the extension", next.Sub(start))
	}
	if o := n.Settle(1, ds[1].Lease, Ack, start.Add(59*time.Minute), 0, "", Waiter{}); o != Pending {
		t.Errorf("the outcome of the second one is %v", o)
	}
}

// A lease has its remaining time at the next owner, whatever its clock and however long no owner
// was there; but its message is leased for at most MaxDelivery, however often it is handed over.
func TestQueue_HandOverBetweenClocks(t *testing.T) {
	t.Parallel()
	for _, skew := range []time.Duration{0, time.Hour, -time.Hour, 10 * time.Minute} {
		q := New(strict, Start{})
		add(q, "a", 0)
		d := lease(q, start)[0]
		s := Start{At: start.Add(skew), HandOver: q.HandOver(start.Add(20 * time.Second))}
		n := New(strict, s)
		if next := n.Next(); !next.Equal(s.At.Add(40 * time.Second)) {
			t.Errorf("with a clock %s ahead the lease ends after %s, want 40s", skew, next.Sub(s.At))
		}
		if age := s.At.Sub(n.LeasedAt(0, d.Lease)); age < 20*time.Second {
			t.Errorf("with a clock %s ahead the lease is %s old, want at least 20s", skew, age)
		}
	}
	for _, skew := range []time.Duration{0, time.Minute, -time.Minute} { // of every second owner
		q := New(strict, Start{})
		add(q, "a", 0)
		lease(q, start)
		handOvers := 0
		for now := start; ; now = now.Add(30 * time.Minute) { // nobody is there meanwhile
			own := now
			if handOvers%2 == 1 {
				own = now.Add(skew)
			}
			if q.Expire(own); len(q.Leases()) == 0 {
				break
			}
			if handOvers++; handOvers > 26 {
				t.Fatalf("with a clock %s ahead the message is leased after %s", skew, now.Sub(start))
			}
			h := q.HandOver(own)
			at := now.Add(30 * time.Minute)
			if handOvers%2 == 1 {
				at = at.Add(skew)
			}
			q = New(strict, Start{At: at, HandOver: h})
		}
		if handOvers < 20 {
			t.Errorf("with a clock %s ahead the lease ended after %d hand-overs", skew, handOvers)
		}
	}
}

// A key that another partition has is leased there alone: messages that the former owner had leased
// of it wait for their turn, and no lease of a run is continued without the ones before.
func TestQueue_HandOverOfATakenKey(t *testing.T) {
	t.Parallel()
	for name, rows := range map[string][]Row{"records": nil, "rows": {{Offset: 0, Key: "k", Behind: true}, {Offset: 1, Key: "k", Attempts: 1, NextAt: start}}} {
		former := ofOneKey(2)
		ds := run(former, 2, start)
		h := former.HandOver(start)
		keys := NewKeys()
		var turns []string
		other := New(strict, Start{Keys: keys, Turn: func(string) {}})
		addAt(other, "k", 7, start)
		d := lease(other, start)
		wantOffsets(t, name+": the other partition", d, 7)
		n := New(strict, Start{At: start, HandOver: h, Keys: keys, Held: true, Rows: rows, Turn: func(key string) { turns = append(turns, key) }})
		n.Begin()
		if ls := n.Leases(); len(ls) != 0 {
			t.Fatalf("%s: %+v are leased while another partition has the key", name, ls)
		}
		for i := range int64(2) {
			addAt(n, "k", i, start)
		}
		if o := n.Settle(0, ds[0].Lease, Ack, start, 0, "", Waiter{}); o != Expired {
			t.Errorf("%s: the outcome of a lease that was not continued is %v", name, o)
		}
		wantOffsets(t, name+": before the turn", lease(n, start))
		ack(other, d...)
		for _, key := range turns {
			n.Turn(key)
		}
		n.Expire(start)
		store(n)
		wantOffsets(t, name+": after the turn", lease(n, start), 0)
	}
}

// Leases of many keys keep their order and their consumers through hand-overs.
func TestQueue_HandOverKeepsLeases(t *testing.T) {
	t.Parallel()
	q := New(strict, Start{})
	for i := range int64(20) {
		q.Add(Record{Record: &kgo.Record{Offset: i, Timestamp: start}, Key: "k" + strconv.FormatInt(i, 10), MaxReceive: 7})
	}
	lease(q, start)
	byOffset := func(a, b Lease) int { return int(a.Offset - b.Offset) }
	want := q.Leases()
	n := handOver(handOver(q, start, nil), start, nil)
	got := n.Leases()
	slices.SortFunc(want, byOffset)
	slices.SortFunc(got, byOffset)
	for i := range want {
		want[i].Record = nil
	}
	if !slices.EqualFunc(got, want, func(a, b Lease) bool { return a == b }) {
		t.Errorf("the leases are %+v, want %+v", got, want)
	}
}

// Leases of one key that were given without an order live on one by one at an owner with order:
// each is settled, extended and ends on its own. Nothing of their key is delivered before all of
// them have ended, then in order.
func TestQueue_HandOverBetweenOrders(t *testing.T) {
	t.Parallel()
	unordered := strict
	unordered.Ordered, unordered.Strict = false, false
	for name, moves := range map[string]int{"once": 0, "again": 1} {
		for _, rows := range []bool{false, true} {
			former := New(unordered, Start{})
			for i := range int64(4) {
				add(former, "k", i)
			}
			ds := lease(former, start)
			var all []Row
			if rows { // all but the last one
				for i := range int64(3) {
					all = append(all, Row{Offset: i, Key: "k", Attempts: 1, NextAt: start, FirstAt: start})
				}
			}
			h := former.HandOver(start)
			n := New(Config{Ordered: true, MaxReceive: 3, Backoff: strict.Backoff}, Start{At: start, HandOver: h, Rows: all})
			for range moves {
				n = New(n.cfg, Start{At: start, HandOver: n.HandOver(start), Rows: all})
			}
			for i := range int64(5) {
				add(n, "k", i)
			}
			wantOffsets(t, name+": at the begin", lease(n, start))
			got := results{}
			n.Settle(3, ds[3].Lease, Ack, start, 0, "", Waiter{got, 3})
			if end := n.Extend(1, ds[1].Lease, start, start.Add(time.Hour)); !end.Equal(start.Add(time.Hour)) {
				t.Errorf("%s, %t: extended to %v", name, rows, end)
			}
			n.Settle(2, ds[2].Lease, Nack, start, time.Second, "bad", Waiter{got, 2})
			store(n)
			n.ConfirmPosition(n.Position())
			if got[3] != OK || got[2] != OK {
				t.Errorf("%s, %t: the outcomes are %v", name, rows, got)
			}
			if expired := n.Expire(start.Add(30 * time.Minute)); expired != 1 || len(n.Leases()) != 1 {
				t.Errorf("%s, %t: %d leases ended after the visibility timeout, %+v are left; want that of offset 1", name, rows, expired, n.Leases())
			}
			wantOffsets(t, name+": while one is leased", lease(n, start.Add(30*time.Minute)))
			n.Settle(1, ds[1].Lease, Ack, start.Add(30*time.Minute), 0, "", Waiter{got, 1})
			n.ConfirmPosition(n.Position())
			var delivered []int64
			for now := start.Add(time.Hour); len(delivered) < 3 && now.Before(start.Add(2*time.Hour)); now = now.Add(time.Minute) {
				n.Expire(now)
				for range 4 {
					store(n)
				}
				for _, d := range lease(n, now) {
					delivered = append(delivered, d.Offset)
					n.Settle(d.Offset, d.Lease, Ack, now, 0, "", Waiter{})
				}
				n.ConfirmPosition(n.Position())
			}
			if !slices.Equal(delivered, []int64{0, 2, 4}) {
				t.Errorf("%s, %t: %v follow, want 0, 2, 4", name, rows, delivered)
			}
		}
	}
}
