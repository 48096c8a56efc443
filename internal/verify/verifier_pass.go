package verify

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/internal/verify/internal/compact"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/rows"
)

// topicSource reads topics for a pass. sink receives the id and aggregate of every event;
// its error ends the read.
type topicSource interface {
	// begin discards earlier results and reads the known topics.
	begin(ctx context.Context, sink func(id gocql.UUID, aggregate outbox.ID, seq int64) error) error
	// topic reads a topic unless it was read since begin. It returns the time, in
	// microseconds, before which the absence of an event proves nothing.
	topic(ctx context.Context, name string, sink func(id gocql.UUID, aggregate outbox.ID, seq int64) error) (horizon int64, err error)
	// more reads the records that were added to the topics since.
	more(ctx context.Context, sink func(id gocql.UUID, aggregate outbox.ID, seq int64) error) error
	// records returns the approximate number of records of the known topics.
	records() int64
}

// rowSource reads the rows of a table for a pass.
type rowSource interface {
	// read calls each for the readable rows with tokens above after and up to upTo, in
	// the order of tokens; the error of each ends it.
	read(ctx context.Context, after, upTo int64, each func(*Row) error) error
	// exists reports whether the row still exists with its event.
	exists(ctx context.Context, r *Row) (bool, error)
}

// pass is one pass over a table.
type pass struct {
	v      *Verifier
	t      *VerifierTable
	table  int
	topics topicSource
	rows   rowSource

	// confirmed are the missing events of this pass.
	confirmed map[gocql.UUID]bool
	all       int // ranges
	checked   int64
	lostAll   int
	// until is the write time up to which all segments were checked.
	until time.Time

	// The current segment.
	set         *compact.Set
	after, upTo int64
	limit       int64 // rows written at or after it are pending
	suspects    map[gocql.UUID]suspect
	oldest      time.Time // when the first of them was seen
	waiting     outbox.ID // aggregate
}

// suspect is a row whose event was not in the topics.
type suspect struct {
	Row
	seen time.Time
}

func (v *Verifier) newPass(table int, topics topicSource, rows rowSource) *pass {
	t := &v.cfg.Tables[table]
	return &pass{v: v, t: t, table: table, topics: topics, rows: rows, confirmed: make(map[gocql.UUID]bool), all: t.Scan.rangeCount()}
}

func (p *pass) count(result string, n int) {
	p.v.metrics.rows.WithLabelValues(p.t.name(), result).Add(float64(n))
}

// errFull means that a segment has more events than fit in memory.
var errFull = errors.New("too many events for one segment")

func (p *pass) run(ctx context.Context) error {
	for from, size := p.resume(), p.all; from < p.all; {
		n, err := p.segment(ctx, from, min(size, p.all-from))
		switch {
		case errors.Is(err, errFull) && n > 1:
			size = max(1, n/2)
		case err != nil:
			return err
		default:
			from += n
		}
	}
	p.v.mu.Lock()
	known := p.v.missing[p.table]
	for id := range known {
		if !p.confirmed[id] {
			delete(known, id) // its row was deleted, or it is a dead letter
		}
	}
	n := len(known)
	p.v.mu.Unlock()
	m, table := p.v.metrics, p.t.name()
	m.missing.WithLabelValues(table).Set(float64(n))
	took := time.Since(p.v.progress[table].Began)
	m.duration.WithLabelValues(table).Set(took.Seconds())
	p.v.log.Info("verification pass finished", "table", table, "rows_checked", p.checked, "missing", n, "verified_until", p.until.UTC(), "took", took.Round(time.Second))
	return p.recordFinished(ctx, n)
}

// segment checks ranges and returns their number, which is lower than requested if the
// topics have too many events for all. With errFull it has checked none.
func (p *pass) segment(ctx context.Context, from, ranges int) (n int, err error) {
	passed, err := p.t.Relay.Passed(ctx)
	if err != nil {
		return 0, fmt.Errorf("read the relay's position: %w", err)
	}
	if passed.IsZero() {
		return 0, errNotKnown
	}
	// The position is read before the ends of the topics, so that they include every
	// event before the position.
	if young := time.Now().Add(-p.v.cfg.Window); young.Before(passed) {
		passed = young
	}
	if want := p.topics.records()/int64(p.v.cfg.maxEvents)*11/10 + 1; want > 1 {
		ranges = min(ranges, max(1, p.all/int(min(want, int64(p.all)))))
	}
	p.limit, p.set, p.suspects, p.waiting = passed.UnixMicro(), new(compact.Set), make(map[gocql.UUID]suspect), outbox.ID{}
	p.after, _ = bounds(from, p.all)
	_, p.upTo = bounds(from+ranges-1, p.all)
	if err := p.topics.begin(ctx, p.add); err != nil {
		return ranges, err
	}
	for i := from; i < from+ranges; i++ {
		if err := p.readRange(ctx, i); err != nil {
			return ranges, err
		}
		if err := p.confirmDue(ctx); err != nil {
			return ranges, err
		}
		if err := p.recordVerified(ctx, i+1); err != nil {
			return ranges, err
		}
	}
	if err := p.confirm(ctx); err != nil {
		return ranges, err
	}
	p.until = p.earliest(passed)
	return ranges, nil
}

// eventKey identifies an event in a set: a defective writer may give one id to several events, of
// which one has that number in the aggregate of that token. The others are in no topic.
func eventKey(id gocql.UUID, token, seq int64) gocql.UUID {
	binary.LittleEndian.PutUint64(id[:8], binary.LittleEndian.Uint64(id[:8])^uint64(token)^uint64(seq)<<32)
	return id
}

// token returns the token of an aggregate in the table.
func (p *pass) token(aggregate outbox.ID) int64 { return rows.Token(p.t.Scan.table, aggregate) }

// has reports whether the topics contain the event of a row.
func (p *pass) has(r *Row) bool {
	return p.set.Has(eventKey(r.Event.UUID(), p.token(r.Aggregate), r.Seq))
}

// add adds an event of a topic.
func (p *pass) add(id gocql.UUID, aggregate outbox.ID, seq int64) error {
	token := p.token(aggregate)
	if token <= p.after || token > p.upTo {
		return nil
	}
	if p.set.Len() >= p.v.cfg.maxEvents {
		return errFull
	}
	p.set.Add(eventKey(id, token, seq))
	return nil
}

// readRange checks the rows of a range. After an error it continues with the current
// aggregate.
func (p *pass) readRange(ctx context.Context, n int) error {
	after, upTo := bounds(n, p.all)
	for attempt := 1; ; attempt++ {
		var own error
		err := p.rows.read(ctx, after, upTo, func(r *Row) error {
			after = max(after, p.token(r.Aggregate)-1)
			own = p.row(ctx, r)
			return own
		})
		switch {
		case err == nil, own != nil, ctx.Err() != nil:
			return err
		case attempt == scanAttempts || isRefused(err):
			return fmt.Errorf("scan %s: %w", p.t.name(), err)
		}
		if err := retry.Wait(ctx, retry.Backoff(scanRetryMin, scanRetryMax, attempt)); err != nil {
			return err
		}
	}
}

// row checks a row.
func (p *pass) row(ctx context.Context, r *Row) error {
	horizon, err := p.topics.topic(ctx, r.Topic, p.add)
	if err != nil {
		return err
	}
	switch {
	case p.has(r):
		p.checked++
		p.count("published", 1)
		p.found(r)
	case r.Written >= p.limit, r.Aggregate == p.waiting:
		p.waiting = r.Aggregate // later events of the aggregate wait for it
		p.count("pending", 1)
	case r.Written < horizon:
		p.count("unverifiable", 1)
	default:
		p.checked++
		if len(p.suspects) == 0 {
			p.oldest = time.Now()
		}
		if _, ok := p.suspects[r.Event.UUID()]; !ok {
			p.suspects[r.Event.UUID()] = suspect{*r, time.Now()}
		}
		if len(p.suspects) >= confirmBatch {
			return p.confirm(ctx)
		}
	}
	return nil
}

// confirmDue confirms the suspects that are old enough.
func (p *pass) confirmDue(ctx context.Context) error {
	if len(p.suspects) == 0 || time.Since(p.oldest) < max(2*p.v.cfg.Window, time.Minute) {
		return nil
	}
	return p.confirm(ctx)
}

// confirm waits until each suspect is a window old, in which the relay must have
// published it if its row was late, and checks it again.
func (p *pass) confirm(ctx context.Context) error {
	if len(p.suspects) == 0 {
		return nil
	}
	var last time.Time
	for _, s := range p.suspects {
		if s.seen.After(last) {
			last = s.seen
		}
	}
	select {
	case <-time.After(time.Until(last.Add(p.v.cfg.Window))):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	began := time.Now()
	if err := p.topics.more(ctx, p.add); err != nil {
		return err
	}
	missing := make(map[gocql.UUID]Row)
	var ids []gocql.UUID
	for id, s := range p.suspects {
		if p.has(&s.Row) {
			p.count("published", 1)
			p.found(&s.Row)
			continue
		}
		there, err := p.rows.exists(ctx, &s.Row)
		if err != nil {
			return fmt.Errorf("read event %s again: %w", id, err)
		}
		if there {
			missing[id] = s.Row
			ids = append(ids, id)
		}
	}
	if p.t.DeadLetters != nil && len(ids) > 0 {
		if err := p.t.DeadLetters.Read(ctx, began, ids, func(l DeadLetter) {
			if r, ok := missing[l.Event]; ok && l.mayBelongTo(r.Aggregate.UUID()) {
				delete(missing, l.Event)
				p.count("dead_letter", 1)
			}
		}); err != nil {
			return fmt.Errorf("read the dead letters: %w", err)
		}
	}
	p.suspects = make(map[gocql.UUID]suspect)
	if len(missing) == 0 {
		return nil
	}
	rows := make([]Row, 0, len(missing))
	for _, r := range missing {
		rows = append(rows, r)
	}
	return p.lost(ctx, rows)
}
