package readback

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/dedup"
)

// readBackGather is the maximum wait of a shard for the other starting shards of its
// process before it reads the topics back.
const readBackGather = time.Second

// readBackSpread is the maximum difference between the start times of shards that read
// together. A shard held by a row of days ago therefore delays no other shard.
const readBackSpread = 10 * time.Minute

// Group lets the shards of one table that start in one process at about the same time
// share one reading of the topics; each takes its own events. All of them get the same
// Group. It is safe for concurrent use; the zero value is ready.
//
// The guarantees of read-back are unchanged. Reading starts when all participants own
// their shards and continues until none of their events has arrived for
// Config.ReadBackQuiet. A shard with more events than its limit reads alone, as
// without a Group. A shard that has to read much further back reads concurrently. If
// the reading shard ends, another one restarts the reading.
type Group struct {
	mu      sync.Mutex
	coming  int           // number of started shards that may still join
	waiting []*backReader // for the next reading
	asked   bool          // one of them was requested to read for all
}

// Ticket belongs to a started relay that may join a reading. nil reads alone.
type Ticket struct {
	all  *Group
	once sync.Once
}

// Announce registers a relay that has started.
func (a *Group) Announce() *Ticket {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.coming++
	return &Ticket{all: a}
}

// Withdraw unregisters the relay, so that other relays do not wait for it.
func (t *Ticket) Withdraw() {
	if t == nil {
		return
	}
	t.once.Do(func() {
		t.all.mu.Lock()
		defer t.all.mu.Unlock()
		t.all.coming--
		t.all.begin(t.all.coming == 0)
	})
}

// backReader is a relay that wants to read.
type backReader struct {
	r      *Reader
	topics []string
	since  time.Time

	lead chan struct{} // requests it to read for the waiting ones
	done chan error    // receives the result of a reading by another one
	gone bool          // it no longer waits; guarded by the lock of the Group

	// Set when the reading is done.
	t     *Topics
	found dedup.Found
	ours  bool // an event of this relay's source was found
	alone bool // it has to read for itself
}

// begin requests the first waiting one to read if now is set. It is called with the lock.
func (a *Group) begin(now bool) {
	if now && !a.asked && len(a.waiting) > 0 {
		a.asked = true
		a.waiting[0].lead <- struct{}{}
	}
}

// read shares a reading with others. w contains the result.
func (t *Ticket) read(ctx context.Context, w *backReader) error {
	a := t.all
	w.lead, w.done = make(chan struct{}, 1), make(chan error, 1)
	a.mu.Lock()
	a.waiting = append(a.waiting, w)
	a.mu.Unlock()
	t.Withdraw() // it is no longer to come
	gather := time.NewTimer(readBackGather)
	defer gather.Stop()
	for {
		select {
		case <-w.lead:
			return a.readFor(ctx, w)
		case err := <-w.done:
			return err
		case <-gather.C:
			a.mu.Lock()
			a.begin(true)
			a.mu.Unlock()
		case <-ctx.Done():
			a.leave(w)
			return context.Cause(ctx)
		}
	}
}

// leave removes a waiting one; if it was requested to read, another one is instead.
func (a *Group) leave(w *backReader) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w.gone = true
	a.waiting = slices.DeleteFunc(a.waiting, func(o *backReader) bool { return o == w })
	select {
	case <-w.lead:
		a.asked = false
		a.begin(true)
	default:
	}
}

// readFor reads for all waiting ones within readBackSpread of w. The others read
// concurrently.
func (a *Group) readFor(ctx context.Context, w *backReader) error {
	near := func(o *backReader) bool { return o.since.Sub(w.since).Abs() <= readBackSpread }
	a.mu.Lock()
	party := slices.DeleteFunc(slices.Clone(a.waiting), func(o *backReader) bool { return !near(o) })
	a.waiting, a.asked = slices.DeleteFunc(a.waiting, near), false
	a.begin(true)
	a.mu.Unlock()
	err := w.readWith(ctx, party)
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, o := range party {
		o.r.follow(nil)
		switch {
		case o == w, o.gone:
		case ctx.Err() != nil: // its reader ended
			a.waiting = append(a.waiting, o)
		default:
			o.done <- err
		}
	}
	a.begin(ctx.Err() != nil)
	return err
}

// readWith reads once for a party, of which w is one.
func (w *backReader) readWith(ctx context.Context, party []*backReader) error {
	if len(party) == 1 {
		w.alone = true
		return nil
	}
	var topics []string
	var owns []*cdclog.Portion
	since := w.since
	for _, o := range party {
		o.r.follow(w.r)
		o.found, o.alone = dedup.NewFound(), false
		topics, owns = append(topics, o.topics...), append(owns, o.r.Own)
		if o.since.Before(since) {
			since = o.since
		}
	}
	slices.Sort(topics)
	t := w.r.NewTopics()
	t.owns = owns
	w.r.Sink = func(e *Event) { party[e.owner].take(e) }
	err := w.r.Read(ctx, t, slices.Compact(topics), since)
	w.r.Sink = nil
	for _, o := range party {
		o.t = t
	}
	return err
}

// take records an event while the limit is not exceeded.
func (w *backReader) take(e *Event) {
	if w.alone {
		return
	}
	w.ours = w.ours || e.Ours
	e.addTo(&w.found, w.r.Epoch)
	n := w.found.Size()
	if n > w.r.Most() {
		w.alone, w.found, n = true, dedup.Found{}, 0
	}
	w.r.cfg.Share.Hold(n)
}
