package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/dlq/jobs"
	"github.com/scylla-outbox/scylla-outbox/internal/access"
)

const (
	// liveQueue is how many events a listener may be behind before it is dropped.
	liveQueue = 32
	// liveWrite bounds the writing of one event.
	liveWrite = 10 * time.Second
	// liveBeat is how often a stream on which nothing happens says that it is there.
	liveBeat = 15 * time.Second
	// liveLife is how long a stream lives: its reader then comes again, and is
	// asked again for its token.
	liveLife = time.Hour
	// liveLetters is of how many letters, those that died last, changes are seen.
	liveLetters = 200
	// livePatience bounds one look at the database.
	livePatience = 30 * time.Second
)

// live tells listeners what changes. One goroutine looks for all of them, while
// there are any.
type live struct {
	interval time.Duration
	sources  liveSources
	metrics  *metrics
	log      *slog.Logger
	places   *access.Places // of listeners

	mu        sync.Mutex
	listeners map[*listener]struct{}
	closed    bool
	stop      context.CancelFunc // of the goroutine; nil without
	own       map[gocql.UUID]struct{}
	last      map[string][]byte // by name: the event that a new listener is to have
	done      sync.WaitGroup
}

// listener is a stream. Whoever removes it from live's set closes events.
type listener struct {
	give   func() // gives its place back
	events chan []byte
	why    string // set before events is closed
}

// liveSources are what the event stream reads.
type liveSources struct {
	deadLetters *deadLetterEndpoints
	jobs        *jobs.Store
	relays      *relayEndpoints
	reactions   *reactionEndpoints
}

func newLive(cfg *Config, m *metrics, sources liveSources) *live {
	return &live{
		interval: cfg.LiveInterval, sources: sources, metrics: m, log: cfg.Logger, places: access.NewPlaces(cfg.MaxListeners),
		listeners: make(map[*listener]struct{}), own: make(map[gocql.UUID]struct{}), last: make(map[string][]byte),
	}
}

var (
	errTooMany = errors.New("too many listeners")
	errClosing = errors.New("the server is stopping")
)

// join adds a listener of a holder of places, which first gets what is known.
func (l *live) join(holder string) (*listener, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return nil, errClosing
	}
	give, ok := l.places.Take(holder)
	if !ok {
		return nil, errTooMany
	}
	one := &listener{give: give, events: make(chan []byte, liveQueue)}
	l.listeners[one] = struct{}{}
	l.metrics.listeners.Set(float64(len(l.listeners)))
	for _, name := range slices.Sorted(maps.Keys(l.last)) {
		one.events <- l.last[name] // fewer names than the queue has places
	}
	if l.stop == nil {
		var ctx context.Context
		ctx, l.stop = context.WithCancel(context.Background())
		l.done.Go(func() { l.look(ctx) })
	}
	return one, nil
}

// leave removes a listener; the last one stops the looking.
func (l *live) leave(one *listener, why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remove(one, why)
}

// remove is leave. Called locked.
func (l *live) remove(one *listener, why string) {
	if _, there := l.listeners[one]; !there {
		return
	}
	delete(l.listeners, one)
	one.give()
	one.why = why
	close(one.events)
	l.metrics.listeners.Set(float64(len(l.listeners)))
	if len(l.listeners) == 0 && l.stop != nil {
		l.stop()
		l.stop = nil
		clear(l.last) // it would be old when the next one comes
	}
}

// close ends all streams, for good.
func (l *live) close() {
	l.mu.Lock()
	l.closed = true
	for one := range l.listeners {
		l.remove(one, "the server is stopping")
	}
	l.mu.Unlock()
	l.done.Wait()
}

// changed notes letters that this server changed, so that listeners hear of them
// whatever their age.
func (l *live) changed(ids ...gocql.UUID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.listeners) == 0 {
		return
	}
	for _, id := range ids {
		l.own[id] = struct{}{}
	}
}

// repeated says that deliveries are to be made again.
func (l *live) repeated(ctx context.Context) {
	l.tell(context.WithoutCancel(ctx), "deliveries", false, map[string]any{})
}

// tell sends an event to all. One that is too far behind is dropped: it comes
// again and gets what is then.
func (l *live) tell(ctx context.Context, name string, keep bool, data any) {
	b, err := json.Marshal(data)
	if err != nil {
		panic(fmt.Sprintf("admin: marshal an event of plain fields: %v", err))
	}
	event := []byte("event: " + name + "\ndata: " + string(b) + "\n\n")
	l.mu.Lock()
	defer l.mu.Unlock()
	if ctx.Err() != nil {
		return // the last listener left, and last is that of others
	}
	if keep {
		l.last[name] = event
	}
	for one := range l.listeners {
		select {
		case one.events <- event:
		default:
			l.metrics.dropped.Inc()
			l.remove(one, "too slow")
		}
	}
}

// look looks for changes until ctx ends.
func (l *live) look(ctx context.Context) {
	v := viewed{l: l}
	t := time.NewTicker(l.interval)
	defer t.Stop()
	for {
		v.look(ctx)
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}

// viewed is what was last seen.
type viewed struct {
	l       *live
	stats   *statsBody
	relays  []relayBody
	rules   []reactionBody
	jobs    map[gocql.UUID]int64 // versions of those that were open
	letters map[gocql.UUID]int64 // versions
	down    bool
}

// look looks once at everything. While the database is away it says so, once.
func (v *viewed) look(ctx context.Context) {
	work, cancel := context.WithTimeout(ctx, livePatience)
	defer cancel()
	var errs []error
	// Stats come last: who has them hears of every letter that changes from then on.
	for _, part := range []func(work, ctx context.Context) error{v.lookAtLetters, v.lookAtJobs, v.lookAtRelays, v.lookAtReactions, v.lookAtStats} {
		errs = append(errs, part(work, ctx))
	}
	err := errors.Join(errs...)
	if ctx.Err() != nil {
		return
	}
	if down := err != nil; down != v.down {
		v.down = down
		if down {
			v.l.log.Warn("failed to poll for changes", "err", err)
		}
		v.l.tell(ctx, "database", true, map[string]bool{"reachable": !down})
	}
}

func (v *viewed) lookAtStats(work, ctx context.Context) error {
	b, err := v.l.sources.deadLetters.stats.get(work)
	if err != nil {
		return err
	}
	if v.stats == nil || !v.stats.same(&b) {
		v.stats = &b
		v.l.tell(ctx, "stats", true, b)
	}
	return nil
}

func (v *viewed) lookAtRelays(work, ctx context.Context) error {
	relays, err := v.l.sources.relays.read(work)
	if err != nil {
		return err
	}
	if v.relays == nil || !sameRelays(v.relays, relays) {
		v.relays = relays
		v.l.tell(ctx, "relays", true, map[string]any{"relays": relays})
	}
	return nil
}

func (v *viewed) lookAtReactions(work, ctx context.Context) error {
	rules, err := v.l.sources.reactions.read(work)
	if err != nil {
		return err
	}
	if v.rules == nil || !sameReactions(v.rules, rules) {
		v.rules = rules
		v.l.tell(ctx, "reactions", true, map[string]any{"rules": rules})
	}
	return nil
}

// lookAtJobs tells of each job that is open, or was until just now, when it changed.
func (v *viewed) lookAtJobs(work, ctx context.Context) error {
	open, err := v.l.sources.jobs.ListOpen(work)
	if err != nil {
		return err
	}
	now := make(map[gocql.UUID]int64, len(open))
	for _, j := range open {
		now[j.ID] = j.Version
		if before, known := v.jobs[j.ID]; !known || before != j.Version {
			v.l.tell(ctx, "job", false, jobOf(j))
		}
	}
	for id := range v.jobs {
		if _, still := now[id]; still {
			continue
		}
		j, err := v.l.sources.jobs.Read(work, id)
		if errors.Is(err, jobs.ErrNoJob) {
			continue // somebody has removed its row
		}
		if err != nil {
			return err
		}
		v.l.tell(ctx, "job", false, jobOf(j))
	}
	v.jobs = now
	return nil
}

// lookAtLetters tells which letters changed: those that this server changed, and
// the latest ones.
func (v *viewed) lookAtLetters(work, ctx context.Context) error {
	now := make(map[gocql.UUID]int64, liveLetters)
	var ids []string
	err := v.l.sources.deadLetters.store.List(work, dlq.Filter{}, func(l *dlq.Letter) error {
		if len(now) == liveLetters {
			return dlq.ErrStop
		}
		if before, known := v.letters[l.EventID]; v.letters != nil && (!known || before != l.Version) {
			ids = append(ids, l.EventID.String())
		}
		now[l.EventID] = l.Version
		return nil
	})
	if err != nil {
		return err
	}
	v.l.mu.Lock()
	if ctx.Err() != nil {
		v.l.mu.Unlock()
		return nil // the last listener left, and what is there is for those that came since
	}
	for id := range v.l.own {
		if text := id.String(); !slices.Contains(ids, text) {
			ids = append(ids, text)
		}
	}
	clear(v.l.own)
	v.l.mu.Unlock()
	v.letters = now
	if len(ids) > 0 {
		v.l.tell(ctx, "letters", false, map[string]any{"event_ids": ids})
	}
	return nil
}
