// Package redeliver delivers a slice of the settled messages of a subscription once more, after a
// fault of its consumer: the messages of one key, of a filter or of a time range. Seek moves
// whole partitions.
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
//   - The topics contain the records of the slice. Deleted records cannot be redelivered.
//   - A settled offset was delivered, filtered, purged, or passed over by a start or a seek: the
//     position does not tell these apart. Messages that the subscription does not select now
//     are left out, the others are delivered.
//   - The state of the messages is that of the moment at which it is read. A message that is settled
//     or stored concurrently is left out or delivered twice, as after a lost acknowledgement.
//
// It is a part of the program, and may change in any version.
package redeliver

import (
	"cmp"
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
	"github.com/scylla-outbox/scylla-outbox/internal/topiclist"
	"github.com/scylla-outbox/scylla-outbox/internal/topicreader"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/internal/deadletter"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/internal/position"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/store"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/trace"
)

// The limits of one redelivery.
const (
	// MaxMessages is the maximum number of its messages: a job names its dead letters.
	MaxMessages = jobs.MaxIDs
	// MaxRecords is the maximum number of records that are read to find them.
	MaxRecords = 10_000_000
	// MaxTime bounds that reading for a job, and PreviewTime for a preview, which is then incomplete.
	MaxTime     = 30 * time.Minute
	PreviewTime = 20 * time.Second
	// stall is the time without progress after which reading the topics fails.
	stall = time.Minute
)

// sampled is the number of messages in a preview.
const sampled = 10

// Config of Find. All fields but Schemas are required.
type Config struct {
	Store       *store.Store
	DeadLetters *dlq.Store
	// Kafka opens a client of the brokers.
	Kafka func(...kgo.Opt) (*kgo.Client, error)
	// Schemas decodes payloads for filters; nil for none.
	Schemas *registry.Registry
}

// Service redelivers slices of subscriptions for an API and its jobs.
type Service struct{ conf Config }

// New returns a Service.
func New(c Config) *Service { return &Service{c} }

// Check returns a *jobs.SliceError for an invalid slice, and an error with
// subscriptions.ErrNotFound in its chain for a subscription that does not exist. It reads no topic.
func (s *Service) Check(ctx context.Context, r *jobs.Redelivery) error {
	if err := validate(&r.Slice); err != nil {
		return err
	}
	_, err := s.conf.Store.Get(ctx, r.Subscription)
	return err
}

// Preview returns what a redelivery would deliver, of what can be read in PreviewTime.
func (s *Service) Preview(ctx context.Context, r *jobs.Redelivery) (*Plan, error) {
	ctx, cancel := context.WithTimeout(ctx, PreviewTime+5*time.Second) // a console waits for 30 s
	defer cancel()
	slice := r.Slice
	if slice.Until.IsZero() { // that of a job which is created now
		slice.Until = time.Now().UTC().Truncate(time.Millisecond)
	}
	_, plan, err := find(ctx, s.conf, r.Subscription, slice, options{time: PreviewTime, records: MaxRecords, partial: true, stall: stall})
	return plan, err
}

// Redeliver implements jobs.Redeliverer.
func (s *Service) Redeliver(ctx context.Context, of *jobs.Redelivery, by dlq.Actor, seen func(jobs.Reading)) ([]gocql.UUID, error) {
	r, plan, err := find(ctx, s.conf, of.Subscription, of.Slice, options{time: MaxTime, records: MaxRecords, stall: stall, seen: seen})
	switch {
	case errors.Is(err, subscriptions.ErrNotFound):
		return nil, &jobs.SliceError{Field: "subscription", Problem: err.Error()}
	case err != nil:
		return nil, err
	case plan.Problem != "":
		return nil, &jobs.SliceError{Problem: plan.Problem}
	}
	return r.Write(ctx, plan, by)
}

// validate returns a *jobs.SliceError for an invalid slice.
func validate(s *jobs.Slice) error {
	switch {
	case s.Key == "" && s.Filter == "" && s.Since.IsZero():
		return &jobs.SliceError{Problem: "no slice is selected: name a key, a filter or a time since which; seek moves whole partitions"}
	case s.Since.After(time.Now()):
		return &jobs.SliceError{Field: "since", Problem: s.Since.Format(time.RFC3339) + " is in the future; name an earlier time"}
	case !s.Until.IsZero() && !s.Since.IsZero() && !s.Since.Before(s.Until):
		return &jobs.SliceError{Field: "since", Problem: fmt.Sprintf("%s is not before until %s", s.Since.Format(time.RFC3339), s.Until.Format(time.RFC3339))}
	}
	if s.Filter == "" {
		return nil
	}
	if _, err := filter.Compile(s.Filter); err != nil {
		return &jobs.SliceError{Field: "filter", Problem: err.Error()}
	}
	return nil
}

// Plan is the preview of a redelivery.
type Plan struct {
	jobs.Redelivery
	// Records is the number of records that were read, Messages that of those to redeliver, and
	// Keys that of their keys.
	Records  int64 `json:"records" doc:"Records that were read"`
	Messages int   `json:"messages" doc:"Messages to redeliver"`
	Keys     int   `json:"keys" doc:"Number of their keys"`
	// Truncated reports that the time was too short to read all records; a job reads them.
	Truncated bool `json:"truncated" doc:"The topics have more records than were read within 20 seconds; a job reads them"`
	// Problem states why there are no messages, and a fix.
	Problem string `json:"problem,omitempty" doc:"Why there is no message, and what to change"`
	// Partitions divides the messages.
	Partitions []PartitionPlan `json:"partitions" nullable:"false" doc:"The messages by partition"`
	// Interrupted is the number of the messages that an interrupted redelivery has written.
	Interrupted int `json:"interrupted" doc:"Messages among them whose dead letter an interrupted redelivery has written"`
	// Waiting messages of the slice are delivered anyway, and DeadLetters have an open dead letter:
	// they are left out.
	Waiting     int `json:"waiting" doc:"Messages of the slice that are not settled: they are delivered anyway, and left out"`
	DeadLetters int `json:"dead_letters" doc:"Messages of the slice with an open dead letter, which a replay delivers: they are left out"`
	// First and Last are the times of the first and the last of the messages.
	First time.Time `json:"first,omitempty,omitzero" doc:"Time of the first message"`
	Last  time.Time `json:"last,omitempty,omitzero" doc:"Time of the last message"`
	// Sample contains the first of the messages that were read, at most 10.
	Sample []Sample `json:"sample" nullable:"false" doc:"The first messages that were read, at most 10"`
	// Paused reports that the subscription delivers nothing until it is resumed.
	Paused bool `json:"paused,omitempty" doc:"The subscription is paused: it delivers the messages once it is resumed"`

	found []message
	keyed bool // a record has the key
}

// PartitionPlan is the part of a plan in a partition: the number of its messages, and the offsets
// of the first and the last one.
type PartitionPlan struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Messages  int    `json:"messages"`
	First     int64  `json:"first_offset"`
	Last      int64  `json:"last_offset"`
}

// Sample is a message of a plan.
type Sample struct {
	Topic     string    `json:"topic"`
	Partition int32     `json:"partition"`
	Offset    int64     `json:"offset"`
	Key       string    `json:"key"`
	EventID   string    `json:"event_id,omitempty"`
	Type      string    `json:"type,omitempty"`
	At        time.Time `json:"at"`
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
	key, event, kind string
	at               time.Time
	number           int
	written          bool
}

// Redelivery reads a slice of one subscription.
type Redelivery struct {
	Config
	options
	resource store.Resource
	slice    jobs.Slice
	filter   *filter.Expression
	selector *trace.Selector
	parts    map[part]*partition
	reading  jobs.Reading
}

// options are how Find reads the topics.
type options struct {
	time    time.Duration      // to read the records of the slice
	records int64              // to read at most
	partial bool               // keeps the messages that were found when it ends
	stall   time.Duration      // without progress, after which reading fails
	seen    func(jobs.Reading) // receives the progress; nil for none
}

type part struct {
	topic  string
	number int32
}

// partition is the part of a slice in a partition, and which of its offsets are settled.
type partition struct {
	committed int64
	settled   position.Set // at and after committed
	stored    map[int64]bool
	origin    position.Origin
}

// isSettled reports whether the message of an offset is settled.
func (p *partition) isSettled(offset int64) bool {
	return (offset < p.committed || p.settled.Has(offset)) && !p.stored[offset]
}

// Find returns the messages of a slice. Errors wrap subscriptions.ErrNotFound if the subscription
// does not exist, a *jobs.SliceError if the slice is invalid or too large, and jobs.ErrTopics.
func Find(ctx context.Context, c Config, name string, slice jobs.Slice) (*Redelivery, *Plan, error) {
	return find(ctx, c, name, slice, options{time: MaxTime, records: MaxRecords, stall: stall})
}

func find(ctx context.Context, c Config, name string, slice jobs.Slice, o options) (*Redelivery, *Plan, error) {
	if err := validate(&slice); err != nil {
		return nil, nil, err
	}
	resource, err := c.Store.Get(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	r := &Redelivery{Config: c, options: o, resource: resource, slice: slice, selector: trace.NewSelector(&resource.Subscription), parts: make(map[part]*partition)}
	if slice.Filter != "" {
		if r.filter, err = filter.Compile(slice.Filter); err != nil {
			return nil, nil, err
		}
	}
	plan := &Plan{Redelivery: jobs.Redelivery{Subscription: name, Slice: slice}, Partitions: []PartitionPlan{}, Sample: []Sample{}, Paused: resource.Paused}
	spans, err := r.listSpans(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("redeliver messages of subscription %q: %w", name, err)
	}
	reading, cancel := context.WithTimeoutCause(ctx, o.time, errTime)
	defer cancel()
	err = r.scan(reading, spans, func(rec *kgo.Record) error {
		if plan.Records++; plan.Records > o.records {
			return &jobs.SliceError{Field: "since", Problem: fmt.Sprintf("there are more than %d records to read: name a later time, or a topic", o.records)}
		}
		r.reading.Records++
		r.report()
		m, in, err := r.selects(ctx, rec, plan)
		switch p := r.parts[part{rec.Topic, rec.Partition}]; {
		case err != nil || !in:
			return err
		case !p.isSettled(rec.Offset):
			plan.Waiting++
			return nil
		case len(plan.found) == MaxMessages:
			return &jobs.SliceError{Problem: fmt.Sprintf("the slice has more than %d messages: select a shorter time, a key or a filter, or seek the partitions", MaxMessages)}
		}
		plan.found = append(plan.found, m)
		return nil
	})
	switch {
	case !errors.Is(err, errTime):
	case o.partial:
		plan.Truncated, err = true, nil
	default:
		err = &jobs.SliceError{Field: "since", Problem: fmt.Sprintf("after %s the end of the topics is not reached: name a later time, or a topic", o.time)}
	}
	if err == nil {
		err = r.withoutOpen(ctx, plan)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("redeliver messages of subscription %q: %w", name, err)
	}
	plan.count()
	r.reading.Messages = plan.Messages
	r.report()
	return r, plan, nil
}

// errTime ends reading after its time.
var errTime = errors.New("the time to read the topics has passed")

// report reports the progress.
func (r *Redelivery) report() {
	if r.seen != nil {
		r.seen(r.reading)
	}
}

// count counts the messages of the plan.
func (p *Plan) count() {
	keys, parts := make(map[string]bool), make(map[part]*PartitionPlan)
	for i := range p.found {
		m := &p.found[i]
		keys[m.key] = true
		of := parts[part{m.topic, m.partition}]
		if of == nil {
			of = &PartitionPlan{Topic: m.topic, Partition: m.partition, First: m.offset}
			parts[part{m.topic, m.partition}] = of
		}
		of.Messages++
		of.Last = m.offset
		if m.written {
			p.Interrupted++
		}
		if p.First.IsZero() || m.at.Before(p.First) {
			p.First = m.at
		}
		if m.at.After(p.Last) {
			p.Last = m.at
		}
		if len(p.Sample) < sampled {
			p.Sample = append(p.Sample, Sample{Topic: m.topic, Partition: m.partition, Offset: m.offset, Key: m.key, EventID: m.event, Type: m.kind, At: m.at})
		}
	}
	for _, of := range parts {
		p.Partitions = append(p.Partitions, *of)
	}
	slices.SortFunc(p.Partitions, func(a, b PartitionPlan) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	p.Messages, p.Keys = len(p.found), len(keys)
	if p.Messages == 0 && !p.Truncated {
		p.Problem = p.explainNothing()
	}
}

// explainNothing returns why a plan has no messages.
func (p *Plan) explainNothing() string {
	switch {
	case p.Waiting+p.DeadLetters > 0:
		return fmt.Sprintf("there is nothing to redeliver: %d messages are not settled, so they are delivered anyway, and %d have an open dead letter: replay it", p.Waiting, p.DeadLetters)
	case p.Records == 0:
		return "since: the topics contain no record from then on; they may have deleted those that you mean"
	case p.Key != "" && !p.keyed:
		return fmt.Sprintf("key: none of %d records has the key %q; name the whole key, as the topic contains it", p.Records, p.Key)
	}
	return fmt.Sprintf("there is nothing to redeliver: the subscription and the slice select none of %d records", p.Records)
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
	spans := make(topicreader.Spans)
	for _, of := range plan.Partitions {
		spans.Add(of.Topic, of.Partition, topicreader.Span{From: of.First, End: of.Last + 1})
	}
	for i := range plan.found {
		todo[plan.found[i].place] = &plan.found[i]
	}
	err = r.scan(ctx, spans, func(rec *kgo.Record) error {
		m := todo[place{rec.Topic, rec.Partition, rec.Offset}]
		if m == nil {
			return nil
		}
		r.reading.Written++
		r.report()
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

// selects returns the message of a record that the subscription and the slice select.
func (r *Redelivery) selects(ctx context.Context, rec *kgo.Record, plan *Plan) (m message, in bool, err error) {
	if r.slice.Key != "" && string(rec.Key) != r.slice.Key {
		return m, false, nil
	}
	plan.keyed = true
	if at := rec.Timestamp; at.Before(r.slice.Since) || !r.slice.Until.IsZero() && !at.Before(r.slice.Until) {
		return m, false, nil
	}
	e := kafkarecord.Decode(rec)
	err = r.Schemas.Decode(ctx, &e)
	if errors.Is(err, registry.ErrUnavailable) {
		return m, false, fmt.Errorf("%w: %w", jobs.ErrTopics, err)
	}
	if !r.selector.Selects(rec, &e, true) {
		return m, false, nil
	}
	if r.filter != nil {
		if in, err = r.filter.Holds(&e); err != nil {
			return m, false, &jobs.SliceError{Field: "filter", Problem: fmt.Sprintf("it fails for the record %s/%d at offset %d: %v; test for what is missing, such as by has(data.total)", rec.Topic, rec.Partition, rec.Offset, err)}
		}
		if !in {
			return m, false, nil
		}
	}
	return message{place: place{rec.Topic, rec.Partition, rec.Offset}, key: string(rec.Key), event: e.ID, kind: e.Type, at: rec.Timestamp.UTC()}, true, nil
}

// listSpans returns the spans of the slice, and then reads which of their messages are settled.
func (r *Redelivery) listSpans(ctx context.Context) (topicreader.Spans, error) {
	client, err := r.Kafka()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", jobs.ErrTopics, err)
	}
	defer client.Close()
	adm := kadm.NewClient(client)
	all, err := topiclist.All(ctx, adm)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", jobs.ErrTopics, err)
	}
	topics := make(map[string][16]byte)
	for _, t := range all {
		if r.resource.SelectsTopic(t.Topic) && (r.slice.Topic == "" || r.slice.Topic == t.Topic) {
			topics[t.Topic] = t.ID
		}
	}
	if len(topics) == 0 {
		if r.slice.Topic != "" {
			return nil, &jobs.SliceError{Field: "topic", Problem: fmt.Sprintf("%q is none of the subscription, or does not exist: its topics are %s", r.slice.Topic, strings.Join(r.resource.Topics, ", "))}
		}
		return nil, &jobs.SliceError{Field: "topic", Problem: "no topic of the subscription exists"}
	}
	names := slices.Sorted(maps.Keys(topics))
	spans, err1 := topicreader.List(ctx, client, r.slice.Since, names...)
	positions, err2 := adm.FetchOffsets(ctx, r.resource.Incarnation())
	if errors.Is(err2, kerr.GroupIDNotFound) {
		err2 = nil // no instance has run it yet
	}
	if err := errors.Join(err1, err2); err != nil {
		return nil, fmt.Errorf("%w: %w", jobs.ErrTopics, err)
	}
	for topic, partitions := range spans {
		for number, span := range partitions {
			if span.From >= span.End {
				continue
			}
			p := &partition{stored: make(map[int64]bool)}
			if o, ok := positions.Lookup(topic, number); ok {
				if o.Err != nil {
					return nil, fmt.Errorf("%w: the position of %s/%d: %w", jobs.ErrTopics, topic, number, o.Err)
				}
				settled, of, err := position.Decode(o.At, o.Metadata)
				if err != nil {
					return nil, fmt.Errorf("the position of %s/%d: %w", topic, number, err)
				}
				if of.TopicID == topics[topic] { // else it is of a deleted topic, and nothing is delivered
					p.committed, p.settled, p.origin = o.At, settled, of
				}
			}
			rows, err := r.Store.Messages(ctx, store.Partition{Subscription: r.resource.Incarnation(), Topic: topic, Number: number})
			if err != nil {
				return nil, err
			}
			for i := range rows {
				p.stored[rows[i].Offset] = true
			}
			r.parts[part{topic, number}] = p
		}
	}
	return spans, nil
}

// scan calls each with the committed records of spans. It fails without progress, and if retention
// removes records after their offsets were listed.
func (r *Redelivery) scan(ctx context.Context, spans topicreader.Spans, each func(*kgo.Record) error) error {
	client, err := r.Kafka()
	if err != nil {
		return fmt.Errorf("%w: %w", jobs.ErrTopics, err)
	}
	defer client.Close()
	reader := topicreader.Reader{Client: client, Stall: r.stall}
	for batch, err := range reader.Read(ctx, spans) {
		switch {
		case err != nil && ctx.Err() != nil:
			return err
		case err != nil:
			return fmt.Errorf("%w: %w; repeated, a redelivery reads what there is now", jobs.ErrTopics, err)
		}
		for _, rec := range batch.Records {
			if err := each(rec); err != nil {
				return err
			}
		}
	}
	return nil
}
