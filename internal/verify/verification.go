package verify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"github.com/scylla-outbox/scylla-outbox/internal/dbclock"
	"github.com/scylla-outbox/scylla-outbox/internal/topiclist"
	"github.com/scylla-outbox/scylla-outbox/internal/topicreader"
	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// clockSkew is the maximum difference of the clocks of writers, broker and this machine.
const clockSkew = time.Minute

// Verification verifies that every event of an outbox table is in its topic, once and in
// order.
type Verification struct {
	// Scan reads the table. Its Since is set from Window. Required.
	Scan *Scan
	// Keyspace and Table are the names of the table, for the schema. Required.
	Keyspace, Table string
	// Mapping maps its columns. The zero value is that of outbox_messages.
	Mapping outbox.Mapping
	// Kafka connects to the topics. Required.
	Kafka Kafka
	// Source is the ce_source of the table's records: a record of another source is another
	// event, also with the same table and id. Empty means that every source is this one.
	Source string
	// Topics are read in addition to the topics of the rows' events.
	Topics []string
	// DeadLetters, if not nil, are read once for the missing or unreadable events, after
	// the topics are read, unless no event is missing or unreadable.
	DeadLetters DeadLetters
	// Window bounds the events that must be in the topics. Until is required.
	Window Window
	// State is a file from which an interrupted verification resumes. It is removed at
	// the end. Empty disables it.
	State string

	ledger  *Ledger
	journal *journal
	done    map[int]bool
	next    map[string]map[int32]int64
	ids     map[string]string
	phase   atomic.Int32
	records atomic.Int64
	total   atomic.Int64
	resumed bool
	began   time.Time // when Run began

	stall time.Duration // instead of topicStall; tests shorten it
}

// Kafka creates clients of the broker with the topics.
type Kafka interface {
	// Client returns a client with further options. The caller closes it.
	Client(more ...kgo.Opt) (*kgo.Client, error)
}

// Progress is the progress of a verification.
type Progress struct {
	// Reading reports that the scan is complete and the topics are being read.
	Reading bool
	// Done of Total ranges are scanned, or records are read.
	Done, Total int64
	// Rows were scanned in this run.
	Rows int64
}

// Progress may be called at any time.
func (v *Verification) Progress() Progress {
	p := Progress{Rows: v.Scan.Rows(), Done: v.Scan.Done(), Total: int64(v.Scan.rangeCount())}
	if v.phase.Load() > 0 {
		p.Reading, p.Done, p.Total = true, v.records.Load(), v.total.Load()
	}
	return p
}

// Resumed reports, after Run, whether it resumed from a state file. Window is then that
// of the interrupted run.
func (v *Verification) Resumed() bool { return v.resumed }

// Ledger returns the ledger after Run.
func (v *Verification) Ledger() *Ledger { return v.ledger }

// Run reads the table and the topics into the ledger. After an error or the end of ctx, a
// Verification with the same State resumes.
func (v *Verification) Run(ctx context.Context) (err error) {
	v.began = time.Now()
	v.ledger, v.done, v.next = NewLedger(), make(map[int]bool), make(map[string]map[int32]int64)
	h, err := v.head(ctx)
	if err != nil {
		return err
	}
	if v.State != "" {
		if v.journal, err = openJournal(v.State, func(b blockData) error { return v.replay(&h, b) }); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, v.journal.close(err == nil)) }()
		if !v.resumed {
			if err := v.journal.add(blockData{Head: &h}); err != nil {
				return err
			}
		}
	}
	v.Scan.Since = v.Window.Since
	if err := v.Scan.Run(ctx, v.done, v.takeRange); err != nil {
		return err
	}
	if err := v.readTopics(ctx); err != nil {
		return err
	}
	if err := v.readDeadLetters(ctx); err != nil {
		return err
	}
	err = v.lookUp(ctx)
	if !v.Window.Alive.IsZero() {
		// Rows that were read late may have expired since the begin.
		v.Window.Alive = v.Window.Alive.Add(time.Since(v.began) + clockSkew)
	}
	return err
}

// head returns the description of the table from the database.
func (v *Verification) head(ctx context.Context) (head, error) {
	h := head{Version: journalVersion, Table: v.Keyspace + "." + v.Table, Ranges: v.Scan.rangeCount(), Until: v.Window.Until.UnixMicro()}
	if !v.Window.Since.IsZero() {
		h.Since = v.Window.Since.UnixMicro()
	}
	var id gocql.UUID
	var ttl int
	err := v.Scan.Session.Query("SELECT id, default_time_to_live FROM system_schema.tables WHERE keyspace_name = ? AND table_name = ?",
		v.Keyspace, v.Table).WithContext(ctx).Scan(&id, &ttl)
	if errors.Is(err, gocql.ErrNotFound) {
		return h, fmt.Errorf("table %s does not exist", h.Table)
	} else if err != nil {
		return h, fmt.Errorf("look up table %s: %w", h.Table, err)
	}
	h.TableID = id.String()
	if err := v.findColumns(ctx); err != nil {
		return h, fmt.Errorf("table %s is no outbox that can be verified: %w", h.Table, err)
	}
	if ttl == 0 {
		v.Window.FromFirst = true // rows do not expire
	} else {
		var clock dbclock.Clock // by which rows expire
		if err := clock.Measure(ctx, v.Scan.Session); err != nil {
			return h, err
		}
		v.Window.Alive = clock.Now().Add(-time.Duration(ttl) * time.Second)
	}
	return h, nil
}

// ErrUnnumbered reports a table whose events cannot be found by their numbers.
var ErrUnnumbered = errors.New("it has no sequence numbers")

// findColumns finds the columns of the table.
func (v *Verification) findColumns(ctx context.Context) error {
	columns, err := outbox.ReadColumns(ctx, v.Scan.Session, v.Keyspace, v.Table)
	if err != nil {
		return err
	}
	t, err := v.Mapping.Table(v.Keyspace, v.Table, columns)
	if err == nil && !t.Numbered() {
		err = ErrUnnumbered
	}
	v.Scan.table = t
	return err
}

// replay adds a block of the state file.
func (v *Verification) replay(h *head, b blockData) error {
	switch {
	case b.Head != nil:
		if b.Head.Version != h.Version || b.Head.Table != h.Table || b.Head.TableID != h.TableID || b.Head.Ranges != h.Ranges {
			return fmt.Errorf("%w: it is of table %s (%s) in %d ranges, this is %s (%s) in %d",
				ErrOtherState, b.Head.Table, b.Head.TableID, b.Head.Ranges, h.Table, h.TableID, h.Ranges)
		}
		*h, v.resumed = *b.Head, true
		v.Window.Until, v.Window.Since = time.UnixMicro(b.Head.Until), time.Time{}
		if b.Head.Since != 0 {
			v.Window.Since = time.UnixMicro(b.Head.Since)
		}
	case b.Range != nil:
		v.done[b.Range.Number] = true
		v.ledger.AddUnreadable(b.Range.Unreadable...)
		return v.ledger.AddRows(b.Range.Rows...)
	case b.Read != nil:
		v.ids = b.Read.IDs
	case b.Batch != nil:
		if v.next[b.Batch.Topic] == nil {
			v.next[b.Batch.Topic] = make(map[int32]int64)
		}
		v.next[b.Batch.Topic][b.Batch.Partition] = b.Batch.Next
		return v.ledger.addBatch(b.Batch)
	}
	return nil
}

func (v *Verification) takeRange(r Range) error {
	v.ledger.AddUnreadable(r.Unreadable...)
	if err := v.ledger.AddRows(r.Rows...); err != nil {
		return err
	}
	return v.journal.add(blockData{Range: &r})
}

// readTopics reads the topics to their current ends.
func (v *Verification) readTopics(ctx context.Context) error {
	topics := slices.Concat(v.ledger.Topics(), v.Topics)
	slices.Sort(topics)
	topics = slices.Compact(topics)
	if len(topics) == 0 {
		return nil
	}
	admin, err := v.Kafka.Client()
	if err != nil {
		return err
	}
	defer admin.Close()
	if err := v.sameTopics(ctx, admin, topics); err != nil {
		return err
	}
	spans, err := v.spans(ctx, admin, topics)
	if err != nil {
		return err
	}
	v.phase.Store(1)
	return v.read(ctx, admin, spans, func(b *topicreader.Batch) error {
		events := v.origin().batch(b, nil, time.Now())
		if err := v.ledger.addBatch(&events); err != nil {
			return err
		}
		v.records.Add(int64(len(b.Records)))
		return v.journal.add(blockData{Batch: &events})
	})
}

// sameTopics reports whether the topics are the ones of the interrupted run.
func (v *Verification) sameTopics(ctx context.Context, client *kgo.Client, topics []string) error {
	details, err := topiclist.List(ctx, client, topics...)
	if err != nil {
		return err
	}
	ids := make(map[string]string, len(details))
	for name, d := range details {
		if d.Err == nil {
			ids[name] = d.ID.String()
		}
		if before, ok := v.ids[name]; ok && before != ids[name] {
			return fmt.Errorf("%w: topic %s was made anew since", ErrOtherState, name)
		}
	}
	v.ids = ids
	return v.journal.add(blockData{Read: &readTopics{IDs: ids}})
}

// checkRecords is the number of records before and after the start of a partition whose times show
// whether the clock that dates them is behind the clocks of the writers.
const checkRecords = 100

// behind returns by how much the clock that dates records is behind the clocks of the writers, at
// most maxBehind, by the records about an offset of each partition. It is a broker's with
// LogAppendTime, and the relay's otherwise.
func (v *Verification) behind(ctx context.Context, client *kgo.Client, at, starts, ends kadm.ListedOffsets) (behind time.Duration, err error) {
	spans := make(topicreader.Spans)
	ends.Each(func(end kadm.ListedOffset) {
		o, _ := at.Lookup(end.Topic, end.Partition)
		start, _ := starts.Lookup(end.Topic, end.Partition)
		if v.ids[end.Topic] == "" || errors.Join(o.Err, start.Err, end.Err) != nil {
			return
		}
		spans.Add(end.Topic, end.Partition, topicreader.Span{
			From: max(o.Offset-checkRecords, start.Offset), End: min(max(o.Offset, start.Offset)+checkRecords, end.Offset),
		})
	})
	err = v.read(ctx, client, spans, func(b *topicreader.Batch) error {
		for _, r := range b.Records {
			if e, _, ok := v.origin().event(r); ok {
				behind = clockBehind(behind, &e, r)
			}
		}
		return nil
	})
	return behind, err
}

// read calls take with the records of spans. The relay publishes without transactions: an open one of
// another program hides its records from consumers, and they are published nevertheless.
func (v *Verification) read(ctx context.Context, client *kgo.Client, spans topicreader.Spans, take func(*topicreader.Batch) error) error {
	r := topicreader.Reader{Client: client, Uncommitted: true, Stall: cmp.Or(v.stall, topicStall)}
	for b, err := range r.Read(ctx, spans) {
		if err == nil {
			err = take(&b)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (v *Verification) origin() origin { return origin{v.Source, v.Keyspace + "." + v.Table} }

// spans returns the parts of the topics to read. A topic that does not exist has none.
func (v *Verification) spans(ctx context.Context, client *kgo.Client, topics []string) (topicreader.Spans, error) {
	adm := kadm.NewClient(client)
	starts, err := adm.ListStartOffsets(ctx, topics...)
	if err != nil {
		return nil, fmt.Errorf("list the starts of the topics: %w", err)
	}
	oldest, err := adm.ListOffsetsAfterMilli(ctx, 0, topics...)
	if err != nil {
		return nil, fmt.Errorf("list the first records of the topics: %w", err)
	}
	since, t := starts, latest(v.Window.Since, v.Window.Alive)
	after := func(margin time.Duration) (err error) {
		if since, err = adm.ListOffsetsAfterMilli(ctx, t.Add(-margin).UnixMilli(), topics...); err != nil {
			return fmt.Errorf("find %s in the topics: %w", t.Format(time.RFC3339), err)
		}
		return nil
	}
	if !t.IsZero() {
		if err := after(clockSkew); err != nil {
			return nil, err
		}
	}
	// The ends are listed last, so that concurrently published events are read too.
	ends, err := adm.ListEndOffsets(ctx, topics...)
	if err != nil {
		return nil, fmt.Errorf("list the ends of the topics: %w", err)
	}
	behind, err := v.behind(ctx, client, since, starts, ends)
	if err == nil && !t.IsZero() && behind > 0 {
		err = after(behind + clockSkew)
	}
	if err != nil {
		return nil, err
	}
	out := make(topicreader.Spans)
	var errs []error
	ends.Each(func(end kadm.ListedOffset) {
		if v.ids[end.Topic] == "" {
			return // there is no such topic
		}
		start, _ := starts.Lookup(end.Topic, end.Partition)
		first, _ := since.Lookup(end.Topic, end.Partition)
		if err := errors.Join(start.Err, first.Err, end.Err); err != nil {
			errs = append(errs, fmt.Errorf("offsets of %s[%d]: %w", end.Topic, end.Partition, err))
			return
		}
		at := max(first.Offset, start.Offset)
		if start.Offset > 0 && at == start.Offset {
			// Older records are deleted. A partition without any may have had
			// one of just before the end of the window.
			horizon := v.Window.Until
			if o, ok := oldest.Lookup(end.Topic, end.Partition); ok && o.Err == nil && o.Timestamp > 0 {
				horizon = time.UnixMilli(o.Timestamp).Add(behind)
			}
			errs = append(errs, v.ledger.Cut(end.Topic, horizon))
		}
		span := topicreader.Span{From: max(at, v.next[end.Topic][end.Partition]), End: end.Offset}
		out.Add(end.Topic, end.Partition, span)
		v.total.Add(max(0, span.End-span.From))
	})
	return out, errors.Join(errs...)
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// lookUp reads the rows of events that are in a topic and were not scanned: those written
// before the window and published within it.
func (v *Verification) lookUp(ctx context.Context) error {
	since := latest(v.Window.Since, v.Window.Alive)
	from := int64(0)
	if !since.IsZero() {
		from = since.UnixMicro()
	}
	limit := rate.NewLimiter(rate.Inf, 1)
	if v.Scan.Rate > 0 {
		limit.SetLimit(rate.Limit(v.Scan.Rate))
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(cmp.Or(v.Scan.Parallel, DefaultParallel))
	for _, r := range v.ledger.unknownSince(from) {
		if err := limit.Wait(ctx); err != nil {
			return errors.Join(context.Cause(ctx), g.Wait())
		}
		g.Go(func() error { return v.lookUpRow(ctx, r) })
	}
	return g.Wait()
}

// lookUpRow adds the row of an event, if there is one.
func (v *Verification) lookUpRow(ctx context.Context, r Row) error {
	written, ok, err := v.Scan.find(ctx, &r)
	if err == nil && ok {
		r.Written = written
		err = v.ledger.AddRows(r)
	}
	if err != nil {
		return fmt.Errorf("look up event %s: %w", r.Event, err)
	}
	return nil
}
