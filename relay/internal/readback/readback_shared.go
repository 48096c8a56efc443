package readback

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/publish"
)

// readBackGather is how long a shard waits at most for the others of its process that
// begin as well, before it reads the topics back.
const readBackGather = time.Second

// readBackSpread is how much further back than another one a shard may want to read to
// do it together. One that is held by a row of days ago keeps nobody else waiting.
const readBackSpread = 10 * time.Minute

// Group lets the shards of one table that begin in one process at about the same
// time read the topics back together: once, and each takes what is its own. All of them
// get the same one as Config.ReadBacks. It is safe for concurrent use; the zero value
// is ready.
//
// The promise of a read-back stays what it is. Reading begins when every one that takes
// part is there, and so owns its shard, and goes on until nothing of theirs has come for
// Config.ReadBackQuiet. Whoever has more to remember than it may reads for itself, as
// without this; whoever has to read much further back than the others does so beside
// them. If the one that reads for the others ends, another one begins anew.
type Group struct {
	mu      sync.Mutex
	coming  int           // have begun, and have not said whether they read
	waiting []*backReader // for the next reading
	asked   bool          // one of them was asked to read for all
}

// Ticket is a relay that has begun and may come to read. nil reads alone.
type Ticket struct {
	all  *Group
	once sync.Once
}

// Announce says that a relay has begun.
func (a *Group) Announce() *Ticket {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.coming++
	return &Ticket{all: a}
}

// Withdraw says that the relay will not read any more. Whoever waits for it need not.
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
	most   int

	lead chan struct{} // tells it to read, for those that wait
	done chan error    // tells it that this was done for it
	gone bool          // it waits no more; under the lock of all

	// Set when it was done.
	t      *Topics
	denied []string
	found  publish.Found
	ours   bool // one of them is of this relay
	alone  bool // it has to read for itself
}

// begin lets the first that waits read, if all are there or it is time. Called locked.
func (a *Group) begin(now bool) {
	if now && !a.asked && len(a.waiting) > 0 {
		a.asked = true
		a.waiting[0].lead <- struct{}{}
	}
}

// read reads together with others. w says what came of it.
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

// leave takes one away that waits; if it was asked to read, another one is.
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

// readFor reads for all that wait and want the same as w, or nearly. The others read
// beside it.
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
		case ctx.Err() != nil: // it was given up, for a reason of its reader's
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
	var topics, denied []string
	var owns []*cdclog.Portion
	since := w.since
	for _, o := range party {
		o.r.follow(w.r)
		o.found, o.alone = publish.NewFound(), false
		topics, owns = append(topics, o.topics...), append(owns, o.r.Own)
		if o.since.Before(since) {
			since = o.since
		}
	}
	slices.Sort(topics)
	t := w.r.NewTopics()
	t.owns = owns
	t.Refuse = func(topic string, _ error) { denied = append(denied, topic) }
	w.r.Sink = func(e *Event) { party[e.owner].take(e) }
	err := w.r.Read(ctx, t, slices.Compact(topics), since)
	w.r.Sink = nil
	for _, o := range party {
		o.t, o.denied = t, slices.Clone(denied)
	}
	return err
}

// take keeps an event, as long as there is room.
func (w *backReader) take(e *Event) {
	if w.alone {
		return
	}
	w.ours = w.ours || e.Ours
	if e.addTo(&w.found); w.found.Size() > w.most {
		w.alone, w.found = true, publish.Found{}
	}
}
