// Package redeliver delivers a slice of the settled messages of a subscription once more, after a
// fault of its consumer: those of one key, of a filter or of a time range. Seek moves whole
// partitions.
//
// A redelivery is a replay: Write makes a dead letter of each message, of the class
// dlq.ClassRedelivery, which blocks nothing, and a job replays them. So its message is delivered to
// the subscription alone, one at a time of its key, with deliveries counted from zero, is durable,
// and its dead letter is resolved by the acknowledgement, or waits for an operator after
// max_receive failures.
//
// A message that the subscription will deliver anyway is left out: one that is not settled in the
// position of its partition, or is stored. So is one whose dead letter is open: replay that. But a
// suspended one of the class dlq.ClassRedelivery is of a redelivery that no job has replayed: the
// next one of the slice takes it over, in the order of the partitions.
//
// # Premises
//
//   - The topics contain the records of the slice. What they have deleted cannot be redelivered.
//   - A settled offset was delivered, filtered, purged, or passed over by a start or a seek: the
//     position does not tell these apart. Those that the subscription does not select now are
//     left out, the others are delivered.
//   - The state of the messages is that of the moment at which it is read. A message that is settled
//     or stored concurrently is left out or delivered twice, as after a lost acknowledgement.
//
// It is a part of the program, and may change in any version.
package redeliver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/dlq/jobs"
	"github.com/scylla-outbox/scylla-outbox/internal/filter"
	"github.com/scylla-outbox/scylla-outbox/internal/kafkarecord"
	"github.com/scylla-outbox/scylla-outbox/internal/registry"
	"github.com/scylla-outbox/scylla-outbox/internal/self"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/internal/deadletter"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/internal/position"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/store"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/trace"
)

// stall is the time without progress after which reading the topics fails.
const stall = time.Minute

// MaxMessages is the maximum number of messages of a redelivery: a job names its dead letters.
const MaxMessages = jobs.MaxIDs

// Config of Find. All fields but Schemas are required.
type Config struct {
	Store       *store.Store
	DeadLetters *dlq.Store
	// Kafka opens a client of the brokers.
	Kafka func(...kgo.Opt) (*kgo.Client, error)
	// Schemas decodes payloads for filters; nil for none.
	Schemas *registry.Registry
}

// Slice selects messages by all criteria that are set. Key, Filter or Since is required.
type Slice struct {
	// Topic limits it to one topic of the subscription.
	Topic string `json:"topic,omitempty"`
	// Key is the key of the records.
	Key string `json:"key,omitempty"`
	// Filter is an expression as in the filter of a subscription.
	Filter string `json:"filter,omitempty"`
	// Since and Until bound the times of the records; Until itself is not in.
	Since time.Time `json:"since,omitzero"`
	Until time.Time `json:"until,omitzero"`
}

// Validate returns an error that names the field.
func (s *Slice) Validate() error {
	switch {
	case s.Key == "" && s.Filter == "" && s.Since.IsZero():
		return errors.New("no slice is selected: name a key, a filter or a time since which; seek moves whole partitions")
	case !s.Until.IsZero() && !s.Since.IsZero() && !s.Since.Before(s.Until):
		return fmt.Errorf("since %s is not before until %s", s.Since.Format(time.RFC3339), s.Until.Format(time.RFC3339))
	}
	return filter.Check(s.Filter, "")
}

// Plan is the preview of a redelivery.
type Plan struct {
	Subscription string `json:"subscription"`
	Slice        Slice  `json:"slice"`
	// Records is the number of records that were read, Messages that of those to redeliver, and
	// Keys that of their keys.
	Records  int64 `json:"records"`
	Messages int   `json:"messages"`
	Keys     int   `json:"keys"`
	// ByTopic divides the messages.
	ByTopic map[string]int `json:"by_topic"`
	// Interrupted is the number of the messages that an interrupted redelivery has written.
	Interrupted int `json:"interrupted"`
	// Waiting messages of the slice are delivered anyway, and DeadLetters have an open dead letter:
	// they are left out.
	Waiting     int `json:"waiting"`
	DeadLetters int `json:"dead_letters"`
	// First and Last are the times of the first and the last of the messages.
	First time.Time `json:"first,omitzero"`
	Last  time.Time `json:"last,omitzero"`

	found []message
}

// place is the place of a record.
type place struct {
	topic     string
	partition int32
	offset    int64
}

// message is a message to redeliver, for the number-th time. A written one has its dead letter.
type message struct {
	place
	key     string
	at      time.Time
	number  int
	written bool
}

// Redelivery reads a slice of one subscription.
type Redelivery struct {
	Config
	resource store.Resource
	slice    Slice
	filter   *filter.Expression
	parts    map[part]*partition
	stall    time.Duration // without progress, after which reading fails
}

type part struct {
	topic  string
	number int32
}

// partition is the part of a slice in a partition, and which of its offsets are settled.
type partition struct {
	next, end, committed int64
	settled              position.Set // at and after committed
	stored               map[int64]bool
	origin               position.Origin
}

// isSettled reports whether the message of an offset is settled.
func (p *partition) isSettled(offset int64) bool {
	return (offset < p.committed || p.settled.Has(offset)) && !p.stored[offset]
}

// Find returns the messages of a slice. Errors wrap subscriptions.ErrNotFound if the subscription
// does not exist. It is an error if there are more than MaxMessages.
func Find(ctx context.Context, c Config, name string, slice Slice) (*Redelivery, *Plan, error) {
	if err := slice.Validate(); err != nil {
		return nil, nil, err
	}
	resource, err := c.Store.Get(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	r := &Redelivery{Config: c, resource: resource, slice: slice, parts: make(map[part]*partition), stall: stall}
	if slice.Filter != "" {
		if r.filter, err = filter.Compile(slice.Filter); err != nil {
			return nil, nil, err
		}
	}
	plan := &Plan{Subscription: name, Slice: slice, ByTopic: make(map[string]int)}
	if err := r.bounds(ctx); err != nil {
		return nil, nil, fmt.Errorf("redeliver messages of subscription %q: %w", name, err)
	}
	err = r.scan(ctx, func(rec *kgo.Record) error {
		plan.Records++
		in, err := r.selects(ctx, rec)
		switch p := r.parts[part{rec.Topic, rec.Partition}]; {
		case err != nil || !in:
			return err
		case !p.isSettled(rec.Offset):
			plan.Waiting++
			return nil
		case len(plan.found) == MaxMessages:
			return fmt.Errorf("the slice has more than %d messages: select a shorter time, a key or a filter, or seek the partitions", MaxMessages)
		}
		plan.found = append(plan.found, message{place: place{rec.Topic, rec.Partition, rec.Offset}, key: string(rec.Key), at: rec.Timestamp})
		return nil
	})
	if err == nil {
		err = r.withoutOpen(ctx, plan)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("redeliver messages of subscription %q: %w", name, err)
	}
	plan.count()
	return r, plan, nil
}

// count counts the messages of the plan.
func (p *Plan) count() {
	keys := make(map[string]bool)
	for i := range p.found {
		m := &p.found[i]
		keys[m.key] = true
		p.ByTopic[m.topic]++
		if m.written {
			p.Interrupted++
		}
		if p.First.IsZero() || m.at.Before(p.First) {
			p.First = m.at
		}
		if m.at.After(p.Last) {
			p.Last = m.at
		}
	}
	p.Messages, p.Keys = len(p.found), len(keys)
}

// withoutOpen removes the messages with an open dead letter from the plan, and sets the numbers of
// the others.
func (r *Redelivery) withoutOpen(ctx context.Context, plan *Plan) error {
	undecided := make([]*message, len(plan.found))
	for i := range plan.found {
		undecided[i] = &plan.found[i]
	}
	open := make(map[place]bool)
	for number := 0; len(undecided) > 0; number++ {
		ids := make([]gocql.UUID, len(undecided))
		for i, m := range undecided {
			at := r.deadLetterPlace(m)
			ids[i] = at.ID(0, number)
		}
		have, err := r.DeadLetters.ReadMany(ctx, ids)
		if err != nil {
			return err
		}
		var closed []*message
		for i, m := range undecided {
			switch l, ok := have[ids[i]]; {
			case ok && number > 0 && l.Status == dlq.Suspended && l.ErrorClass == dlq.ClassRedelivery:
				m.number, m.written = number, true
			case ok && l.Status.Open():
				open[m.place] = true
			case ok || number == 0: // it was a dead letter, or redelivered, before
				closed = append(closed, m)
			default:
				m.number = number
			}
		}
		undecided = closed
	}
	plan.DeadLetters = len(open)
	plan.found = slices.DeleteFunc(plan.found, func(m message) bool { return open[m.place] })
	return nil
}

// deadLetterPlace returns the place that the dead letter of a message has.
func (r *Redelivery) deadLetterPlace(m *message) deadletter.Place {
	of := r.parts[part{m.topic, m.partition}].origin
	return deadletter.Place{Incarnation: r.resource.Incarnation(), Topic: m.topic, TopicID: of.TopicID, Partition: m.partition, Generation: of.Generation, Offset: m.offset}
}

// Write writes the dead letters of the messages of a plan, unless they are written, and returns
// their ids, in the order of the partitions. After an error some may be written: the next plan of
// the slice has them.
func (r *Redelivery) Write(ctx context.Context, plan *Plan, by dlq.Actor) (ids []gocql.UUID, err error) {
	todo := make(map[place]*message, len(plan.found))
	for _, p := range r.parts {
		p.next = p.end
	}
	for i := range plan.found {
		m := &plan.found[i]
		todo[m.place] = m
		p := r.parts[part{m.topic, m.partition}]
		p.next = min(p.next, m.offset)
	}
	err = r.scan(ctx, func(rec *kgo.Record) error {
		m := todo[place{rec.Topic, rec.Partition, rec.Offset}]
		if m == nil {
			return nil
		}
		if m.written {
			at := r.deadLetterPlace(m)
			ids = append(ids, at.ID(0, m.number))
			return nil
		}
		l := deadletter.New(&deadletter.Message{
			Table: r.resource.DeadLetterTable(), Incarnation: r.resource.Incarnation(), Record: rec, Origin: r.parts[part{rec.Topic, rec.Partition}].origin,
			Redelivery: m.number, At: time.Now(), Name: r.resource.DeadLetter.Name, Class: dlq.ClassRedelivery, Error: "redelivery requested by " + by.Name + ": " + by.Reason, Host: self.Host(),
		})
		l.Unblocked = true
		if _, err := r.DeadLetters.Write(ctx, l); err != nil {
			return err
		}
		ids = append(ids, l.EventID)
		return nil
	})
	if err == nil && len(ids) < len(plan.found) {
		err = fmt.Errorf("%d of %d records are not in their topics any more; the others are written", len(plan.found)-len(ids), len(plan.found))
	}
	return ids, err
}

// selects reports whether the subscription and the slice select a record.
func (r *Redelivery) selects(ctx context.Context, rec *kgo.Record) (bool, error) {
	if r.slice.Key != "" && string(rec.Key) != r.slice.Key {
		return false, nil
	}
	if at := rec.Timestamp; at.Before(r.slice.Since) || !r.slice.Until.IsZero() && !at.Before(r.slice.Until) {
		return false, nil
	}
	e := kafkarecord.Decode(rec)
	err := r.Schemas.Decode(ctx, &e)
	if errors.Is(err, registry.ErrUnavailable) {
		return false, err
	}
	if !trace.Selects(&r.resource.Subscription, rec, &e, true) {
		return false, nil
	}
	if r.filter == nil {
		return true, nil
	}
	in, err := r.filter.Holds(&e)
	if err != nil {
		return false, fmt.Errorf("filter, for the record %s/%d at offset %d: %w", rec.Topic, rec.Partition, rec.Offset, err)
	}
	return in, nil
}

// bounds reads the offsets of the slice, and then what of them is settled.
func (r *Redelivery) bounds(ctx context.Context) error {
	client, err := r.Kafka()
	if err != nil {
		return err
	}
	defer client.Close()
	adm := kadm.NewClient(client)
	all, err := adm.ListTopics(ctx)
	if err != nil {
		return err
	}
	topics := make(map[string][16]byte)
	for _, t := range all {
		if r.resource.SelectsTopic(t.Topic) && (r.slice.Topic == "" || r.slice.Topic == t.Topic) {
			topics[t.Topic] = t.ID
		}
	}
	if len(topics) == 0 {
		if r.slice.Topic != "" {
			return fmt.Errorf("topic %q is none of the subscription, or does not exist", r.slice.Topic)
		}
		return errors.New("no topic of the subscription exists")
	}
	names := slices.Sorted(maps.Keys(topics))
	ends, err1 := adm.ListCommittedOffsets(ctx, names...)
	starts, err2 := adm.ListStartOffsets(ctx, names...)
	if !r.slice.Since.IsZero() {
		starts, err2 = adm.ListOffsetsAfterMilli(ctx, r.slice.Since.UnixMilli(), names...)
	}
	positions, err3 := adm.FetchOffsets(ctx, r.resource.Incarnation())
	if errors.Is(err3, kerr.GroupIDNotFound) {
		err3 = nil // no instance has run it yet
	}
	if err := errors.Join(err1, err2, err3, ends.Error(), starts.Error()); err != nil {
		return err
	}
	for _, end := range ends.Offsets().Sorted() {
		first, _ := starts.Lookup(end.Topic, end.Partition)
		p := &partition{next: first.Offset, end: end.At, stored: make(map[int64]bool)}
		if o, ok := positions.Lookup(end.Topic, end.Partition); ok {
			if o.Err != nil {
				return fmt.Errorf("the position of %s/%d: %w", end.Topic, end.Partition, o.Err)
			}
			settled, of, err := position.Decode(o.At, o.Metadata)
			if err != nil {
				return fmt.Errorf("the position of %s/%d: %w", end.Topic, end.Partition, err)
			}
			if of.TopicID == topics[end.Topic] { // else it is of a deleted topic, and nothing is delivered
				p.committed, p.settled, p.origin = o.At, settled, of
			}
		}
		if p.next >= p.end {
			continue
		}
		rows, err := r.Store.Messages(ctx, store.Partition{Subscription: r.resource.Incarnation(), Topic: end.Topic, Number: end.Partition})
		if err != nil {
			return err
		}
		for i := range rows {
			p.stored[rows[i].Offset] = true
		}
		r.parts[part{end.Topic, end.Partition}] = p
	}
	return nil
}

// scan calls each with the committed records of the partitions from next to end. It fails without
// progress: retention can remove the rest of a partition after its end was read.
func (r *Redelivery) scan(ctx context.Context, each func(*kgo.Record) error) error {
	from := make(map[string]map[int32]kgo.Offset)
	next, left := make(map[part]int64), 0
	for at, p := range r.parts {
		next[at] = p.next
		if p.next >= p.end {
			continue
		}
		left++
		if from[at.topic] == nil {
			from[at.topic] = make(map[int32]kgo.Offset)
		}
		from[at.topic][at.number] = kgo.NewOffset().At(p.next)
	}
	if left == 0 {
		return nil
	}
	client, err := r.Kafka(kgo.ConsumePartitions(from), kgo.KeepControlRecords(), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		return err
	}
	defer client.Close()
	for progress := time.Now(); left > 0; {
		polling, cancel := context.WithDeadline(ctx, progress.Add(r.stall))
		fetches := client.PollFetches(polling)
		stalled := polling.Err() != nil
		cancel()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		for _, e := range fetches.Errors() {
			if !stalled || !errors.Is(e.Err, context.DeadlineExceeded) {
				return fmt.Errorf("read %s/%d: %w", e.Topic, e.Partition, e.Err)
			}
		}
		advanced := false // in a partition that is not at its end
		fetches.EachPartition(func(f kgo.FetchTopicPartition) {
			if len(f.Records) == 0 { // also that of the deadline, of no topic
				return
			}
			at := part{f.Topic, f.Partition}
			end := r.parts[at].end
			for _, rec := range f.Records {
				if rec.Offset >= end || err != nil {
					break
				}
				if !rec.Attrs.IsControl() {
					err = each(rec)
				}
			}
			if next[at] < end {
				advanced = true
				if next[at] = f.Records[len(f.Records)-1].Offset + 1; next[at] >= end {
					left--
				}
			}
		})
		switch {
		case err != nil:
			return err
		case advanced:
			progress = time.Now()
		case stalled:
			return fmt.Errorf("no progress for %s in reading %s, such as since their records were deleted: run it again, to read what there is now", r.stall, r.unread(next))
		}
	}
	return nil
}

// unread names the partitions that are not read up to their end.
func (r *Redelivery) unread(next map[part]int64) string {
	var out []string
	for at, p := range r.parts {
		if next[at] < p.end {
			out = append(out, fmt.Sprintf("%s/%d from offset %d to %d", at.topic, at.number, next[at], p.end))
		}
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}
