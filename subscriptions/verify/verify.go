// Package verify accounts for every offset of the topics of a subscription: it is settled
// in the position, stored, waiting, or lost.
//
// It reads positions, stored messages, skips and dead letters, not records, so it is cheap and
// may run beside the subscription. It proves what the stored state proves at this moment:
// offsets that a topic deleted unread are found by the position, and once the owner has moved
// it past them, by the skip that the owner has stored before. Whether the consumer did what it
// acknowledged is not visible here.
//
// # Premises
//
//   - It relies on positions that only the subscription commits. One without its metadata is reported
//     (BadPosition), and the settled offsets behind it are not known.
//   - It relies on topic ids. The position of another topic of the name is reported (OtherTopic), and
//     settles nothing.
//   - It relies on brokers that keep the records that they have acknowledged. If records are lost,
//     the position is beyond their end (BeyondEnd).
//   - It relies on owners that store the offsets that they pass over. What another program skips, by
//     a commit of its own, is a bad position, not a skip.
//
// It is a part of the program, and may change in any version.
package verify

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/topiclist"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/internal/deadletter"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/internal/position"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/store"
)

// Config of Check. All fields are required.
type Config struct {
	Store       *store.Store
	DeadLetters *dlq.Store
	Kafka       *kadm.Client
}

// Kind is a kind of problem.
type Kind string

// The kinds of problems.
const (
	// Lost: the topic has deleted records that were not settled.
	Lost Kind = "lost"
	// BeyondEnd: the position is beyond the end of the partition, as after a loss of
	// records or a topic that was created again.
	BeyondEnd Kind = "beyond_end"
	// Skipped: records that the topic had deleted before they were delivered were passed over.
	// It is reported until an operator acknowledges it; Report.Skips contains it for ever.
	Skipped Kind = "skipped"
	// BadPosition: the metadata of the position is not readable.
	BadPosition Kind = "bad_position"
	// OtherTopic: the position is that of a deleted topic of the name. The next owner ignores
	// it and reads the topic like a new one.
	OtherTopic Kind = "other_topic"
	// Undelivered: a dead letter is claimed for a replay that is not stored.
	Undelivered Kind = "undelivered"
)

// Problem is a finding.
type Problem struct {
	Kind      Kind   `json:"kind"`
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	// Offset is the first offset, Count their number.
	Offset     int64       `json:"offset"`
	Count      int64       `json:"count"`
	DeadLetter *gocql.UUID `json:"dead_letter,omitempty"`
}

// Counts are numbers of offsets.
type Counts struct {
	// Settled offsets are acknowledged, dead-lettered, filtered or purged, before the
	// beginning of the subscription, or without a record.
	Settled int64 `json:"settled"`
	// Waiting offsets are neither settled nor stored; Stored messages were delivered or
	// wait behind another one of their key.
	Waiting int64 `json:"waiting"`
	Stored  int64 `json:"stored"`
	Lost    int64 `json:"lost"`
}

// Partition is the account of a partition.
type Partition struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	// Start and End are the offsets of the topic, End only of committed records.
	Start int64 `json:"start"`
	End   int64 `json:"end"`
	// Committed is -1 without a position.
	Committed int64 `json:"committed"`
	Counts
}

// Report is the account of a subscription.
type Report struct {
	Subscription string      `json:"subscription"`
	Partitions   []Partition `json:"partitions"`
	// Counts are the sums.
	Counts
	// DeadLetters is the number of open dead letters.
	DeadLetters int64 `json:"dead_letters"`
	// Skips are the ranges that were passed over. Lost contains their counts.
	Skips    []subscriptions.Skip `json:"skips,omitempty"`
	Problems []Problem            `json:"problems"`
}

type place struct {
	topic  string
	number int32
}

// Check returns the account of a subscription. Errors wrap subscriptions.ErrNotFound if it
// does not exist; otherwise nothing is known after an error.
func Check(ctx context.Context, c Config, name string) (*Report, error) {
	r, err := c.Store.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	k := check{Config: c, resource: r, report: &Report{Subscription: name, Partitions: []Partition{}, Problems: []Problem{}}}
	if err := k.partitions(ctx); err != nil {
		return nil, fmt.Errorf("verify subscription %q: %w", name, err)
	}
	if err := k.skips(ctx); err != nil {
		return nil, fmt.Errorf("verify subscription %q: %w", name, err)
	}
	if err := k.deadLetters(ctx); err != nil {
		return nil, fmt.Errorf("verify the dead letters of subscription %q: %w", name, err)
	}
	return k.report, nil
}

// skips adds the offsets that were passed over, which the positions do not show any more.
func (k *check) skips(ctx context.Context) (err error) {
	if k.report.Skips, err = k.Store.Skips(ctx, k.resource.Incarnation()); err != nil {
		return err
	}
	for i := range k.report.Skips {
		s := &k.report.Skips[i]
		k.report.Lost += s.Count
		if i := slices.IndexFunc(k.report.Partitions, func(p Partition) bool { return p.Topic == s.Topic && p.Partition == s.Partition }); i >= 0 {
			k.report.Partitions[i].Lost += s.Count
		}
		if s.AcknowledgedAt.IsZero() {
			k.report.Problems = append(k.report.Problems, Problem{Kind: Skipped, Topic: s.Topic, Partition: s.Partition, Offset: s.From, Count: s.Count})
		}
	}
	return nil
}

type check struct {
	Config
	resource store.Resource
	report   *Report
}

// partitions accounts for the partitions of the topics and for all claimed partitions. The
// starts are listed before the positions are read: a record below a start that is not
// settled later was deleted before it was settled. Rows are read last, so that a message is
// not counted as lost while it is stored.
func (k *check) partitions(ctx context.Context) error {
	topics, err := k.topics(ctx)
	if err != nil {
		return err
	}
	if len(topics) == 0 {
		return nil
	}
	begin, err := k.resource.StartTime(k.resource.CreatedAt)
	if err != nil {
		return err
	}
	names := slices.Sorted(maps.Keys(topics))
	ends, err1 := k.Kafka.ListCommittedOffsets(ctx, names...)
	starts, err2 := k.Kafka.ListStartOffsets(ctx, names...)
	begins, err3 := starts, error(nil)
	if !begin.IsZero() {
		begins, err3 = k.Kafka.ListOffsetsAfterMilli(ctx, begin.UnixMilli(), names...)
	}
	positions, err4 := k.Kafka.FetchOffsets(ctx, k.resource.Incarnation())
	if errors.Is(err4, kerr.GroupIDNotFound) {
		err4 = nil // no instance has run it yet
	}
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return err
	}
	for _, l := range starts.Offsets().Sorted() {
		end, ok := ends.Lookup(l.Topic, l.Partition)
		first, ok2 := begins.Lookup(l.Topic, l.Partition)
		if !ok || !ok2 || end.Err != nil || first.Err != nil {
			return fmt.Errorf("the offsets of %s/%d are not listed: %w", l.Topic, l.Partition, errors.Join(end.Err, first.Err))
		}
		p := Partition{Topic: l.Topic, Partition: l.Partition, Start: l.At, End: end.Offset, Committed: -1}
		metadata := ""
		if o, ok := positions.Lookup(p.Topic, p.Partition); ok {
			if o.Err != nil {
				return fmt.Errorf("the position of %s/%d: %w", p.Topic, p.Partition, o.Err)
			}
			p.Committed, metadata = o.At, o.Metadata
		}
		if err := k.partition(ctx, &p, metadata, min(first.Offset, p.End), topics[p.Topic]); err != nil {
			return err
		}
	}
	return nil
}

// topics returns the ids of the topics that the subscription selects or has read, and that
// exist.
func (k *check) topics(ctx context.Context) (map[string][16]byte, error) {
	all, err := topiclist.All(ctx, k.Kafka)
	if err != nil {
		return nil, err
	}
	claimed, err := k.Store.Partitions(ctx, k.resource.Incarnation())
	if err != nil {
		return nil, err
	}
	out := make(map[string][16]byte)
	for _, t := range all {
		if k.resource.SelectsTopic(t.Topic) || slices.ContainsFunc(claimed, func(p store.Partition) bool { return p.Topic == t.Topic }) {
			out[t.Topic] = t.ID
		}
	}
	return out, nil
}

// partition accounts for one partition, which is read from first without a position.
func (k *check) partition(ctx context.Context, p *Partition, metadata string, first int64, id [16]byte) error {
	problem := func(kind Kind, offset, count int64) {
		k.report.Problems = append(k.report.Problems, Problem{Kind: kind, Topic: p.Topic, Partition: p.Partition, Offset: offset, Count: count})
	}
	a := account{committed: p.Committed, stored: make(map[int64]bool)}
	if p.Committed < 0 {
		a.committed = first
	} else if set, of, err := position.Decode(p.Committed, metadata); err != nil {
		problem(BadPosition, p.Committed, 1)
	} else if of.TopicID != id {
		problem(OtherTopic, p.Committed, 1)
		a.committed = first
	} else {
		a.settled = set
	}
	rows, err := k.Store.Messages(ctx, k.id(p.Topic, p.Partition))
	if err != nil {
		return err
	}
	inTopic := int64(0)
	for i := range rows {
		o := rows[i].Offset
		a.stored[o] = true
		if o >= p.Start && o < p.End {
			inTopic++
		}
	}
	p.Stored = int64(len(rows))
	p.Waiting, _ = a.findUnsettled(p.Start, p.End)
	p.Settled = p.End - p.Start - p.Waiting - inTopic
	lost := int64(0)
	if p.Lost, lost = a.findUnsettled(0, p.Start); p.Lost > 0 {
		problem(Lost, lost, p.Lost)
	}
	if p.Committed > p.End {
		problem(BeyondEnd, p.End, p.Committed-p.End)
	}
	k.report.Partitions = append(k.report.Partitions, *p)
	k.report.Settled += p.Settled
	k.report.Waiting += p.Waiting
	k.report.Stored += p.Stored
	k.report.Lost += p.Lost
	return nil
}

// account is the state of the offsets of a partition.
type account struct {
	committed int64
	settled   position.Set // at and after committed
	stored    map[int64]bool
}

// findUnsettled returns the number of offsets in a range that are neither settled nor stored,
// and the first of them.
func (a *account) findUnsettled(from, to int64) (n, first int64) {
	from = max(from, a.committed)
	if to <= from {
		return 0, 0
	}
	window := min(to, a.committed+position.Window) // nothing is settled after it
	n, first = to-from, -1
	for o := from; o < window; o++ {
		if a.settled.Has(o) && !a.stored[o] {
			n--
		}
	}
	for o := range a.stored {
		if o >= from && o < to {
			n--
		}
	}
	for o := from; first < 0 && n > 0; o++ {
		if !a.settled.Has(o) && !a.stored[o] {
			first = o
		}
	}
	return n, first
}

func (k *check) id(topic string, number int32) store.Partition {
	return store.Partition{Subscription: k.resource.Incarnation(), Topic: topic, Number: number}
}

// deadLetters counts the open dead letters and finds replays that nobody delivers: claimed
// ones without a request and without a row. They are read in the order in which a replay
// passes them, and the dead letter again at the end.
func (k *check) deadLetters(ctx context.Context) error {
	table, incarnation := k.resource.DeadLetterTable(), k.resource.Incarnation()
	var claimed []gocql.UUID
	err := k.DeadLetters.Chains(ctx, table, func(e dlq.ChainEntry) error {
		k.report.DeadLetters++
		if e.Status == dlq.Processing && e.ClaimedBy == incarnation {
			claimed = append(claimed, e.EventID)
		}
		return nil
	})
	if err != nil || len(claimed) == 0 {
		return err
	}
	requests, err := k.DeadLetters.Requests(ctx, table, nil)
	if err != nil {
		return err
	}
	rows := make(map[place]map[gocql.UUID]bool)
	for _, id := range claimed {
		if slices.ContainsFunc(requests, func(r dlq.Request) bool { return r.EventID == id }) {
			continue
		}
		l, err := k.DeadLetters.Read(ctx, id)
		if err != nil {
			return err
		}
		at, err := deadletter.ReadPlace(&l)
		in := place{at.Topic, at.Partition}
		if err == nil && rows[in] == nil {
			stored, err := k.Store.Messages(ctx, k.id(in.topic, in.number))
			if err != nil {
				return err
			}
			ids := make(map[gocql.UUID]bool, len(stored))
			for i := range stored {
				ids[stored[i].DeadLetter] = true
			}
			rows[in] = ids
		}
		if rows[in][id] {
			continue
		}
		if l, err = k.DeadLetters.Read(ctx, id); err != nil {
			return err
		}
		if l.Status == dlq.Processing && l.ClaimedBy == incarnation {
			k.report.Problems = append(k.report.Problems, Problem{Kind: Undelivered, Topic: in.topic, Partition: in.number, Offset: at.Offset, Count: 1, DeadLetter: &id})
		}
	}
	return nil
}
