package admin

import (
	"bytes"
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
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
)

const (
	// liveQueue is the number of events that a listener may lag behind before it is
	// disconnected.
	liveQueue = 32
	// liveWrite bounds the writing of one event.
	liveWrite = 10 * time.Second
	// liveBeat is the interval of heartbeats on an idle stream.
	liveBeat = 15 * time.Second
	// liveLife is the lifetime of a stream; then the client reconnects and authenticates
	// again.
	liveLife = time.Hour
	// liveDeadLetters is the number of latest dead letters that are polled for changes.
	liveDeadLetters = 200
	// livePatience bounds one poll of the database, and probePatience that of the smallest read: a
	// database that does not answer it cannot be reached.
	livePatience  = 30 * time.Second
	probePatience = 3 * time.Second
)

// live notifies listeners of changes. While there are listeners, one goroutine polls for
// all of them.
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

// listener is a stream. The goroutine that removes it from live's set closes events.
type listener struct {
	give   func() // gives its place back
	events chan []byte
	why    string // set before events is closed
}

// liveSources are the sources that the event stream reads.
type liveSources struct {
	deadLetters *deadLetterEndpoints
	jobs        *jobs.Store
	status      *statusEndpoints
	// probe is a read of one row.
	probe func(context.Context) error
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

// join adds a listener of a holder of places and sends it the latest events.
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
		l.done.Go(func() { l.poll(ctx) })
	}
	return one, nil
}

// leave removes a listener; the last one stops the polling.
func (l *live) leave(one *listener, why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.removeLocked(one, why)
}

// removeLocked is leave with the lock held.
func (l *live) removeLocked(one *listener, why string) {
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

// close ends all streams and refuses new ones.
func (l *live) close() {
	l.mu.Lock()
	l.closed = true
	for one := range l.listeners {
		l.removeLocked(one, "the server is stopping")
	}
	l.mu.Unlock()
	l.done.Wait()
}

// recordChanged records dead letters that this server changed, so that listeners are notified
// whatever their age.
func (l *live) recordChanged(ids ...gocql.UUID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.listeners) == 0 {
		return
	}
	for _, id := range ids {
		l.own[id] = struct{}{}
	}
}

// notify sends an event to all listeners. One whose queue is full is disconnected; it
// reconnects and receives the current state.
func (l *live) notify(ctx context.Context, name string, keep bool, data any) {
	b, err := json.Marshal(httpapi.Milliseconds(data))
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
			l.removeLocked(one, "too slow")
		}
	}
}

// poll polls for changes until ctx ends, and beside it probes the database: a poll, which reads much,
// may take long where each read does.
func (l *live) poll(ctx context.Context) {
	d := &databaseState{l: l}
	v := poller{l: l, database: d}
	l.done.Go(func() {
		l.every(ctx, func() {
			work, cancel := context.WithTimeout(ctx, probePatience)
			defer cancel()
			d.report(ctx, byProbe, l.sources.probe(work))
		})
	})
	l.every(ctx, func() { v.poll(ctx) })
}

// every calls f at the interval until ctx ends.
func (l *live) every(ctx context.Context, f func()) {
	t := time.NewTicker(l.interval)
	defer t.Stop()
	for {
		f()
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}

// The reads that show whether the database can be reached.
const (
	byPoll = iota
	byProbe
)

// databaseState is whether the database can be reached. It is safe for concurrent use.
type databaseState struct {
	l    *live
	mu   sync.Mutex
	down [byProbe + 1]bool
}

// report records the result of a read, and notifies listeners of a change.
func (d *databaseState) report(ctx context.Context, by int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	before := d.down[byPoll] || d.down[byProbe]
	d.down[by] = err != nil
	if down := d.down[byPoll] || d.down[byProbe]; down != before {
		if down {
			d.l.log.Warn("failed to poll for changes", "err", err)
		}
		d.l.notify(ctx, "database", true, map[string]bool{"reachable": !down})
	}
}

// poller is the state of the last poll.
type poller struct {
	l           *live
	database    *databaseState
	status      []byte               // without its time
	jobs        map[gocql.UUID]int64 // versions of the open ones
	deadLetters map[gocql.UUID]int64 // versions
}

// poll reads all sources once.
func (v *poller) poll(ctx context.Context) {
	work, cancel := context.WithTimeout(ctx, livePatience)
	defer cancel()
	var errs []error
	// The status is last: a listener that has it is notified of every later change.
	for _, part := range []func(work, ctx context.Context) error{v.pollDeadLetters, v.pollJobs, v.pollStatus} {
		errs = append(errs, part(work, ctx))
	}
	v.database.report(ctx, byPoll, errors.Join(errs...))
}

func (v *poller) pollStatus(work, ctx context.Context) error {
	b, err := v.l.sources.status.read(work, livePartPatience)
	if err != nil {
		return err
	}
	timeless := b
	timeless.At, timeless.DeadLetters.At = time.Time{}, time.Time{}
	text, err := json.Marshal(timeless)
	if err != nil {
		return err
	}
	if !bytes.Equal(v.status, text) {
		v.status = text
		v.l.notify(ctx, "status", true, b)
	}
	return nil
}

// pollJobs notifies listeners of changed jobs that are open or were open at the last
// poll.
func (v *poller) pollJobs(work, ctx context.Context) error {
	open, err := v.l.sources.jobs.ListOpen(work)
	if err != nil {
		return err
	}
	now := make(map[gocql.UUID]int64, len(open))
	for _, j := range open {
		now[j.ID] = j.Version
		if before, known := v.jobs[j.ID]; !known || before != j.Version {
			v.l.notify(ctx, "job", false, newJobBody(j))
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
		v.l.notify(ctx, "job", false, newJobBody(j))
	}
	v.jobs = now
	return nil
}

// pollDeadLetters notifies listeners of changed dead letters: dead letters that this server changed,
// and those among the latest ones.
func (v *poller) pollDeadLetters(work, ctx context.Context) error {
	now := make(map[gocql.UUID]int64, liveDeadLetters)
	var ids []string
	latest, _, err := v.l.sources.deadLetters.store.ListFirst(work, dlq.Filter{}, liveDeadLetters)
	if err != nil {
		return err
	}
	for i := range latest {
		l := &latest[i]
		if before, known := v.deadLetters[l.EventID]; v.deadLetters != nil && (!known || before != l.Version) {
			ids = append(ids, l.EventID.String())
		}
		now[l.EventID] = l.Version
	}
	v.l.mu.Lock()
	if ctx.Err() != nil {
		v.l.mu.Unlock()
		return nil // the last listener left; the changes are for the new ones
	}
	for id := range v.l.own {
		if text := id.String(); !slices.Contains(ids, text) {
			ids = append(ids, text)
		}
	}
	clear(v.l.own)
	v.l.mu.Unlock()
	v.deadLetters = now
	if len(ids) > 0 {
		v.l.notify(ctx, "dead_letters", false, map[string]any{"event_ids": ids})
	}
	return nil
}
