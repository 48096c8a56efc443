package subscribing

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/test/sim/trouble"
)

// maxMaxReceive is the highest max_receive that operators set.
const maxMaxReceive = 5

// database lets the database fail until ctx ends.
func (w *world) database(ctx context.Context, rnd *rand.Rand) {
	d := trouble.Database{
		Node: w.node, Rnd: rnd, Calm: 25 * time.Second, Long: 12 * time.Second, Often: []float64{0.2, 0.6, 1}, Timeout: 2 * time.Second,
		Each: func() { w.counts.troubles.Add(1) },
	}
	d.Run(ctx)
}

// brokers lets the broker fail until ctx ends.
func (w *world) brokers(ctx context.Context, rnd *rand.Rand) {
	for retry.Wait(ctx, time.Duration(rnd.Int64N(int64(20*time.Second)))) == nil {
		f, end := kfake.Fault{Count: -1}, func() {}
		switch rnd.IntN(4) {
		case 0: // a partition without a leader
			f.Keys, f.Err = []kmsg.Key{kmsg.Produce, kmsg.Fetch, kmsg.ListOffsets}, kerr.NotLeaderForPartition
			f.Topic, f.Partitions = topics[rnd.IntN(len(topics))], []int32{rnd.Int32N(partitions)}
			w.slow.Add(1)
			end = func() { w.slow.Add(-1) }
		case 1: // no coordinator
			f.Keys, f.Err = []kmsg.Key{kmsg.OffsetCommit, kmsg.OffsetFetch, kmsg.FindCoordinator}, kerr.CoordinatorNotAvailable
		case 2: // commits fail now and then
			f.Keys, f.Err = []kmsg.Key{kmsg.OffsetCommit}, kerr.RequestTimedOut
			f.When = func(kmsg.Request) bool { return rnd.IntN(2) == 0 }
		default: // members are sent away
			f.Keys, f.Err, f.Count = []kmsg.Key{kmsg.Heartbeat}, kerr.UnknownMemberID, 1+rnd.IntN(3)
		}
		h := w.broker.Fault(f)
		w.counts.troubles.Add(1)
		_ = retry.Wait(ctx, time.Duration(rnd.Int64N(int64(10*time.Second))))
		h.Remove()
		end()
	}
}

// beforeRequest runs before each request to the broker. It delays fetches while a partition
// has no leader or its topic is another one: the client repeats them immediately, and the time
// would not advance.
func (w *world) beforeRequest(req kmsg.Request) (kmsg.Response, error, bool) {
	w.broker.KeepControl()
	switch r := req.(type) {
	case *kmsg.FetchRequest:
		if w.slow.Load() > 0 {
			w.broker.SleepControl(func() { time.Sleep(20 * time.Millisecond) })
		}
	case *kmsg.SyncGroupRequest:
		w.seen(r.Group, r.MemberID)
		w.mu.Lock()
		w.mu.assigned = append(w.mu.assigned, time.Now())
		w.mu.Unlock()
	case *kmsg.HeartbeatRequest:
		w.seen(r.Group, r.MemberID)
	}
	return nil, nil, false
}

// assigned reports whether a group assigned its partitions anew between two times.
func (w *world) assigned(from, to time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.mu.assigned, func(t time.Time) bool { return t.After(from) && !t.After(to) })
}

type member struct{ group, id string }

func (w *world) seen(group, id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.members[member{group, id}] = time.Now()
}

// expireMembers removes members of groups that have sent nothing for a minute, until ctx
// ends. The embedded broker does not do so if their connections were closed before its
// response to JoinGroup or SyncGroup.
func (w *world) expireMembers(ctx context.Context) {
	for retry.Wait(ctx, 5*time.Second) == nil {
		groups, err := w.admin.DescribeGroups(ctx)
		if err != nil {
			continue
		}
		w.mu.Lock()
		for _, g := range groups {
			for _, m := range g.Members {
				if one := (member{g.Group, m.MemberID}); w.mu.members[one].IsZero() {
					w.mu.members[one] = time.Now()
				}
			}
		}
		var silent []member
		for m, at := range w.mu.members {
			if time.Since(at) > time.Minute {
				silent = append(silent, m)
				delete(w.mu.members, m)
			}
		}
		w.mu.Unlock()
		for _, m := range silent {
			req := kmsg.NewPtrLeaveGroupRequest()
			req.Group, req.MemberID = m.group, m.id
			one := kmsg.NewLeaveGroupRequestMember()
			one.MemberID = m.id
			req.Members = append(req.Members, one)
			_, _ = req.RequestWith(ctx, w.producer) // most have left
		}
	}
}

// networks freezes processes, and cuts their connections, until ctx ends.
func (w *world) networks(ctx context.Context, rnd *rand.Rand) {
	for retry.Wait(ctx, time.Duration(rnd.Int64N(int64(25*time.Second)))) == nil {
		p := w.any(rnd)
		if p == nil {
			continue
		}
		if rnd.IntN(3) == 0 {
			p.reset()
			continue
		}
		w.counts.frozen.Add(1)
		p.freeze(time.Duration(1+rnd.IntN(25))*time.Second, rnd.IntN(2) == 0)
	}
}

// operators change the subscription until ctx ends. Their actions depend on the seed, so that most
// seeds keep the checks that a seek or a purge makes impossible.
func (w *world) operators(ctx context.Context, rnd *rand.Rand, l *ledger, recreates bool) {
	// A seek to an offset of a former topic, and the number of partitions, concern one topic.
	seeks, purges, resizes := rnd.IntN(3) == 0 && !recreates, rnd.IntN(3) == 0, rnd.IntN(3) == 0 && !recreates
	moved := place{topics[rnd.IntN(len(l.Topics))], rnd.Int32N(partitions)}
	for retry.Wait(ctx, time.Duration(rnd.Int64N(int64(8*time.Second)))) == nil {
		p := w.any(rnd)
		if p == nil {
			continue
		}
		switch n := rnd.IntN(8); {
		case n == 0:
			if p.Pause(ctx, l.Name, "op") == nil {
				_ = retry.Wait(ctx, time.Duration(rnd.Int64N(int64(6*time.Second))))
			}
			for _, err := w.store.Resume(w.t.Context(), l.Name, "op"); err != nil; _, err = w.store.Resume(w.t.Context(), l.Name, "op") {
				_ = retry.Wait(w.t.Context(), time.Second)
			}
		case n == 1 && seeks:
			w.seek(ctx, rnd, p, l, moved)
		case n == 2 && purges:
			before := time.Now()
			l.mu.Lock()
			l.mu.purged = before
			l.mu.Unlock()
			w.counts.purges.Add(1)
			_, _ = p.Purge(ctx, l.Name, subscriptions.Purge{Before: before, DryRun: rnd.IntN(4) == 0}, "op")
		case n == 3 && resizes:
			if _, err := w.admin.CreatePartitions(ctx, 1, l.Topics[0]); err == nil {
				w.counts.resizes.Add(1)
			}
		case n == 4:
			s := l.Subscription
			s.MaxReceive, s.Backoff = 2+rnd.IntN(maxMaxReceive-1), time.Duration(100+rnd.IntN(2000))*time.Millisecond
			_, _ = p.Put(ctx, s, "op")
		case n == 5:
			w.deleteRecords(ctx, l)
		default:
			w.replay(ctx, rnd, l, 3)
		}
	}
}

// seek moves one partition.
func (w *world) seek(ctx context.Context, rnd *rand.Rand, p *process, l *ledger, at place) {
	ends, err := w.admin.ListEndOffsets(ctx, at.topic)
	end, ok := ends.Lookup(at.topic, at.partition)
	if err != nil || !ok || end.Err != nil {
		return
	}
	s := seek{at: time.Now(), offset: rnd.Int64N(end.Offset + 1)}
	l.mu.Lock()
	if s.offset < l.mu.deleted[at] {
		s.offset = l.mu.deleted[at]
	}
	n := len(l.mu.seeks[at])
	l.mu.seeks[at] = append(l.mu.seeks[at], s)
	l.mu.Unlock()
	w.counts.seeks.Add(1)
	if p.Seek(ctx, l.Name, subscriptions.Seek{To: "offset", Topic: at.topic, Partition: at.partition, Offset: s.offset}, "op") == nil {
		l.mu.Lock()
		l.mu.seeks[at][n].ok = true
		l.mu.Unlock()
	}
}

// deleteRecords removes the settled records of a topic, as retention does.
func (w *world) deleteRecords(ctx context.Context, l *ledger) {
	r, err := w.store.Get(ctx, l.Name)
	if err != nil {
		return
	}
	committed, err := w.admin.FetchOffsets(ctx, r.Incarnation())
	if err != nil {
		return
	}
	upTo := make(kadm.Offsets)
	for _, o := range committed.Offsets().Sorted() {
		if o.At > 0 && o.Topic == l.Topics[0] {
			upTo.Add(kadm.Offset{Topic: o.Topic, Partition: o.Partition, At: o.At, LeaderEpoch: -1})
		}
	}
	deleted, err := w.admin.DeleteRecords(ctx, upTo)
	if err != nil {
		return
	}
	w.counts.deleted.Add(1)
	for _, o := range w.subscriptions {
		o.mu.Lock()
		for _, d := range deleted.Sorted() {
			at := place{d.Topic, d.Partition}
			o.mu.deleted[at] = max(o.mu.deleted[at], d.LowWatermark)
		}
		o.mu.Unlock()
	}
}

// replay replays or discards up to n dead letters.
func (w *world) replay(ctx context.Context, rnd *rand.Rand, l *ledger, n int) {
	_ = w.deadLetters.Chains(ctx, l.DeadLetterTable(), func(c dlq.ChainEntry) error {
		if c.Status != dlq.Suspended || n == 0 {
			return nil
		}
		n--
		full, err := w.deadLetters.Read(ctx, c.EventID)
		if err != nil {
			return err
		}
		name, now, by := full.Headers["name"], time.Now(), dlq.Actor{Name: "op", Reason: "test"}
		l.mu.Lock()
		if rnd.IntN(4) == 0 {
			l.mu.dropped[name] = now
			l.mu.Unlock()
			_ = w.deadLetters.Discard(ctx, c.EventID, by)
			return nil
		}
		l.mu.replayed[name] = append(l.mu.replayed[name], now)
		l.mu.Unlock()
		w.counts.replays.Add(1)
		_ = w.deadLetters.Replay(ctx, c.EventID, by)
		return nil
	})
}
