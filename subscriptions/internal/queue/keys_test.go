package queue

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"pgregory.net/rapid"
)

// pair returns two queues of one subscription; turn lets them continue with the keys that they
// have received.
func pair(cfg Config) (a, b *Queue, turn func()) {
	keys := NewKeys()
	var turns []func()
	open := func(q **Queue) *Queue {
		*q = New(cfg, Start{Keys: keys, Turn: func(key string) { turns = append(turns, func() { (*q).Turn(key) }) }})
		return *q
	}
	a, b = open(&a), open(&b)
	return a, b, func() {
		for len(turns) > 0 {
			next := turns[0]
			turns = turns[1:]
			next()
		}
	}
}

func addAt(q *Queue, key string, offset int64, written time.Time) {
	q.Add(Record{Record: &kgo.Record{Offset: offset, Timestamp: written}, Key: key})
}

func ack(q *Queue, ds ...Delivery) {
	for _, d := range ds {
		q.Settle(d.Offset, d.Lease, Ack, start, 0, "", Waiter{})
	}
	q.ConfirmPosition(q.Position())
}

// The messages of a key in two partitions are delivered one at a time, the oldest first.
func TestKeys_OneAtATimeOverPartitions(t *testing.T) {
	t.Parallel()
	a, b, turn := pair(strict)
	addAt(b, "k", 0, start.Add(2*time.Second))
	addAt(a, "k", 0, start.Add(time.Second))
	addAt(a, "k", 1, start.Add(3*time.Second))
	addAt(a, "other", 2, start)
	wantOffsets(t, "another key of the first", lease(a, start), 2)
	first := lease(b, start)
	wantOffsets(t, "the message that was read first", first, 0)
	ack(b, first...)
	turn()
	second := lease(a, start)
	wantOffsets(t, "the oldest of the others", second, 0)
	addAt(b, "k", 1, start.Add(2*time.Second))
	wantOffsets(t, "while it is in flight", lease(b, start))
	ack(a, second...)
	turn()
	wantOffsets(t, "a younger one of the same partition", lease(a, start))
	third := lease(b, start)
	wantOffsets(t, "the older one of the other partition", third, 1)
	ack(b, third...)
	turn()
	wantOffsets(t, "the last one", lease(a, start), 1)
}

// A failed delivery, and with strict order a dead letter, blocks its key in all partitions.
func TestKeys_FailureBlocksAllPartitions(t *testing.T) {
	t.Parallel()
	a, b, turn := pair(strict)
	addAt(a, "k", 0, start)
	addAt(b, "k", 0, start)
	d := lease(a, start)[0]
	q := a
	for attempt := 1; attempt <= 2; attempt++ {
		q.Settle(0, d.Lease, Nack, start, time.Second, "bad", Waiter{})
		store(a)
		turn()
		wantOffsets(t, "while the failed one is deferred", lease(b, start))
		if attempt == 1 {
			a.Expire(start.Add(time.Second))
			store(a)
			d = lease(a, start.Add(time.Second))[0]
		}
	}
	store(a)
	a.ConfirmPosition(a.Position())
	store(a)
	turn()
	wantOffsets(t, "behind the dead letter of another partition", lease(b, start))
	b.keys.Free("k")
	b.Turn("k")
	wantOffsets(t, "after it is closed", lease(b, start), 0)
}

// A closed queue leaves its keys to the others.
func TestKeys_LeftByAClosedQueue(t *testing.T) {
	t.Parallel()
	a, b, turn := pair(strict)
	addAt(a, "k", 0, start)
	addAt(b, "k", 0, start)
	wantOffsets(t, "the first", lease(a, start), 0)
	a.Close()
	turn()
	wantOffsets(t, "after the close", lease(b, start), 0)
	ack(b, Delivery{Offset: 0, Lease: 1})
	if len(b.keys.keys) != 0 {
		t.Errorf("%d keys are left", len(b.keys.keys))
	}
}

// In any order of events one queue has a key at a time, and every message is delivered.
func TestKeys_KeepTheirPromise(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b, turn := pair(Config{Ordered: true, MaxReceive: 1 << 20, Backoff: func(int) time.Duration { return time.Second }})
		queues := []*Queue{a, b}
		var next [2]int64
		type flight struct {
			q int
			Delivery
		}
		var flying []flight
		now, left := start, 0
		leaseSome := func(i, n, run int) {
			for _, d := range queues[i].Lease(nil, n, run, now, now.Add(time.Hour), "") {
				key := string(d.Record.Key)
				for _, f := range flying {
					if string(f.Record.Key) == key && f.q != i {
						t.Fatalf("key %s is in flight in both partitions", key)
					}
				}
				flying = append(flying, flight{i, d})
			}
		}
		settle := func(at int, a Action) {
			f := flying[at]
			switch o := queues[f.q].Settle(f.Offset, f.Lease, a, now, 0, "", Waiter{}); {
			case o == OutOfOrder:
				return
			case a == Ack && o == Pending:
				left--
			}
			flying = slices.DeleteFunc(slices.Clone(flying), func(g flight) bool { // with the rest of its run
				return g.Lease == f.Lease && g.q == f.q || a != Ack && g.q == f.q && g.Offset > f.Offset && string(g.Record.Key) == string(f.Record.Key)
			})
		}
		steps := rapid.IntRange(1, 80).Draw(t, "steps")
		for range steps {
			i := rapid.IntRange(0, 1).Draw(t, "queue")
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0, 1:
				key := strconv.Itoa(rapid.IntRange(0, 2).Draw(t, "key"))
				queues[i].Add(Record{Record: &kgo.Record{Offset: next[i], Key: []byte(key), Timestamp: start.Add(time.Duration(rapid.IntRange(0, 9).Draw(t, "written")) * time.Second)}, Key: key})
				next[i]++
				left++
			case 2:
				leaseSome(i, 5, rapid.IntRange(1, 3).Draw(t, "run"))
			case 3:
				if len(flying) > 0 {
					settle(rapid.IntRange(0, len(flying)-1).Draw(t, "flight"), rapid.SampledFrom([]Action{Ack, Ack, Nack, Release}).Draw(t, "action"))
				}
			case 4:
				queues[i].ConfirmPosition(queues[i].Position())
			case 5:
				turn()
			}
		}
		for range 1000 {
			for i, q := range queues {
				q.Expire(now)
				for q.HasWork() {
					w := q.Work(100)
					for _, r := range w.Save {
						q.ConfirmSave(r.Offset, nil)
					}
					for _, o := range w.Load {
						q.ConfirmLoad(o, Record{Record: &kgo.Record{Offset: o, Timestamp: start, Key: []byte(q.messages[o].key)}, Key: q.messages[o].key}, nil)
					}
					for _, o := range w.Remove {
						q.ConfirmRemoval(o, nil)
					}
				}
				turn()
				leaseSome(i, 100, 3)
			}
			for len(flying) > 0 {
				n := len(flying)
				settle(0, Ack)
				if len(flying) == n { // its lease had ended, or its turn had not come
					flying = append(flying[1:], flying[0])
				}
			}
			for _, q := range queues {
				q.ConfirmPosition(q.Position())
			}
			turn()
			now = now.Add(time.Minute)
		}
		if left != 0 || len(a.keys.keys) != 0 || len(a.lanes)+len(b.lanes) != 0 {
			t.Fatalf("%d messages, %d keys, %d lanes are left", left, len(a.keys.keys), len(a.lanes)+len(b.lanes))
		}
	})
}
