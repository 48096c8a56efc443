package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/scylla-outbox/scylla-outbox/internal/kafkarecord"
	"github.com/scylla-outbox/scylla-outbox/internal/topicreader"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/rows"
)

const (
	// topicsMargin is how long before the event the search for its record starts, because
	// clocks differ.
	topicsMargin = time.Minute
	// topicsRecords and topicsTime bound how much of the topics is read.
	topicsRecords = 100_000
	topicsTime    = 8 * time.Second
)

// readTopics searches the topics for the event's record, from about the time when it was
// stored. Errors become gaps: the rest of the biography does not need the broker.
func (b *biographer) readTopics(ctx context.Context) {
	if b.kafka == nil {
		b.gap("The topics were not read, because no broker is configured.")
		return
	}
	if b.at.IsZero() {
		b.gap("The topics were not read, because the time of the event is unknown.")
		return
	}
	ctx, cancel := context.WithTimeout(ctx, topicsTime)
	defer cancel()
	if err := b.searchTopics(ctx); err != nil {
		b.gap("Its record was not found: %v.", err)
	}
}

// selectTopics returns the statement that reads the topics of a relay's table.
func selectTopics(keyspace string) string {
	return "SELECT topic FROM " + keyspace + ".relay_topics WHERE relay = ? AND table_name = ?"
}

// topics returns the topics that the relay has ever published to, sorted.
func (b *biographySources) topics(ctx context.Context) ([]string, error) {
	found := make([][]string, len(b.tables))
	g, gctx := errgroup.WithContext(ctx)
	for i, table := range b.tables {
		g.Go(func() error {
			iter := b.session.Query(selectTopics(b.keyspace), b.relay, table.String()).WithContext(gctx).Idempotent(true).Iter()
			for topic := ""; iter.Scan(&topic); {
				found[i] = append(found[i], topic)
			}
			if err := iter.Close(); err != nil {
				return fmt.Errorf("read the topics of relay %s: %w", b.relay, err)
			}
			return nil
		})
	}
	err := g.Wait()
	topics := slices.Concat(found...)
	slices.Sort(topics)
	return slices.Compact(topics), err
}

// startTopics starts to read topics, and returns what waits for them.
func (b *biographySources) startTopics(ctx context.Context) func() ([]string, error) {
	read := make(chan struct{})
	var names []string
	var err error
	go func() {
		defer close(read)
		names, err = b.topics(ctx)
	}()
	return func() ([]string, error) { <-read; return names, err }
}

func (b *biographer) searchTopics(ctx context.Context) error {
	from, records, found := b.at.Add(-topicsMargin), 0, false
	spans, topics, err := b.readSince(ctx, b.startTopics(ctx), from, math.MaxInt64, func(r *kgo.Record) error {
		if b.is(r) {
			b.found(r)
			found = true
			return errStopReading
		}
		if records++; records > topicsRecords {
			return fmt.Errorf("it is not among the first %d records since %s, which is the limit", records, from.Format(time.RFC3339))
		}
		return nil
	})
	b.unread = err != nil && records <= topicsRecords && !errors.Is(err, errNoTopics)
	switch {
	case found:
		return nil
	case err != nil && ctx.Err() != nil && spans != nil:
		return fmt.Errorf("timed out after %d records since %s", records, from.Format(time.RFC3339))
	case err != nil:
		return err
	}
	return fmt.Errorf("it is not in %d topics since %s", topics, from.Format(time.RFC3339))
}

var errNoTopics = errors.New("has published to no topic yet")

// errStopReading ends a read of topics.
var errStopReading = errors.New("enough")

// readSince calls each for the records since a time in some topics, such as startTopics lists, about
// the newest up to a number. An error of each ends it, and errStopReading is no error of readSince. It
// returns the spans of all records, nil if they are unknown.
func (b *biographySources) readSince(ctx context.Context, topicNames func() ([]string, error), from time.Time, most int64, each func(*kgo.Record) error) (all topicreader.Spans, topics int, err error) {
	names, err := topicNames()
	if err != nil {
		return nil, 0, err
	}
	if len(names) == 0 {
		return nil, 0, fmt.Errorf("relay %s %w", b.relay, errNoTopics)
	}
	client, err := b.kafka.Client()
	if err != nil {
		return nil, 0, err
	}
	defer client.Close()
	if all, err = topicreader.List(ctx, client, from, names...); err != nil {
		return nil, 0, err
	}
	for batch, err := range (&topicreader.Reader{Client: client}).Read(ctx, all.Newest(most)) {
		if err != nil {
			return all, len(names), err
		}
		for _, r := range batch.Records {
			if err := each(r); errors.Is(err, errStopReading) {
				return all, len(names), nil
			} else if err != nil {
				return all, len(names), err
			}
		}
	}
	return all, len(names), nil
}

// is reports whether the record is that of the event.
func (b *biographer) is(r *kgo.Record) bool {
	for _, h := range r.Headers {
		if h.Key == outbox.HeaderID {
			return string(h.Value) == b.text || rows.IDOf(h.Value) == b.id
		}
	}
	return false
}

// found adds the step of the event's record.
func (b *biographer) found(r *kgo.Record) {
	b.out, b.record = true, r
	if e, err := outbox.FromRecord(r.Key, r.Value, r.Headers); err == nil {
		b.body.AggregateID, b.body.EventType, b.body.Sequence = e.AggregateID.String(), e.Type, e.Sequence
		b.aggregateType, b.body.EditOf = e.AggregateType, ""
		if !e.OriginalID.IsZero() {
			b.body.EditOf = e.OriginalID.String()
		}
	}
	b.add(BiographyStep{
		Kind: "published", What: "published", At: when(kafkarecord.At(r)), Source: formatPlace(r), Topic: r.Topic, Partition: &r.Partition, Offset: &r.Offset,
		Detail: fmt.Sprintf("%d bytes, key %q; %s", len(r.Value), string(r.Key), b.describeWay(r)),
	})
}

func formatPlace(r *kgo.Record) string {
	return fmt.Sprintf("record in %s, partition %d, offset %d", r.Topic, r.Partition, r.Offset)
}

// describeWay reads the headers about capture, attempts and breaker, and returns a text about
// the publication.
func (b *biographer) describeWay(r *kgo.Record) string {
	said := make(map[string]string)
	for _, h := range r.Headers {
		switch h.Key {
		case outbox.HeaderCaptured, outbox.HeaderAttempts, outbox.HeaderBreaker, outbox.HeaderBackfill:
			said[h.Key] = string(h.Value)
		}
	}
	_, scanned := said[outbox.HeaderBackfill]
	if by := said[outbox.HeaderCaptured]; by != "" {
		b.foundBy(by, formatPlace(r))
	} else if scanned {
		b.foundBy(rows.CapturedBackfill, formatPlace(r))
	}
	if scanned && b.captured != nil {
		b.captured.Detail = "the CDC log no longer contained it; a scan of the outbox table found it"
	}
	// A record of an earlier version has none of these headers except the backfill's.
	if delete(said, outbox.HeaderBackfill); len(said) == 0 {
		what := "the attempt and the state of the breaker"
		if b.captured == nil && b.deadLetter == nil {
			what = "the reader, " + what
		}
		b.gap("Its record does not contain %s: an earlier version of the relay wrote it.", what)
		return b.attemptsOfDeadLetter()
	}
	b.body.Attempts, b.body.Breaker = 1, cmp.Or(said[outbox.HeaderBreaker], "closed")
	if n, err := strconv.Atoi(said[outbox.HeaderAttempts]); err == nil {
		b.body.Attempts = n
	}
	return fmt.Sprintf("attempt %d, breaker %s", b.body.Attempts, b.body.Breaker)
}

// attemptsOfDeadLetter uses the attempts of the dead letter where the record of its
// replay does not contain them, and returns them as text.
func (b *biographer) attemptsOfDeadLetter() string {
	if b.deadLetter == nil {
		return "attempts unknown"
	}
	b.body.Attempts, b.body.Breaker = b.deadLetter.Attempts+1, ""
	return fmt.Sprintf("attempt %d", b.body.Attempts)
}

// readReplay reads the record of a replay and returns a text about the publication.
func (b *biographer) readReplay(ctx context.Context, topic string, partition int32, offset int64) string {
	r, err := b.recordAt(ctx, topic, partition, offset)
	switch {
	case err != nil:
		b.gap("The state of the breaker is unknown: %v.", err)
	case r == nil || !b.is(r):
		b.gap("The state of the breaker is unknown: its record is no longer in its topic.")
	default:
		b.record = r
		return b.describeWay(r)
	}
	return b.attemptsOfDeadLetter()
}

// recordAt returns the record at an offset, or nil if there is none.
func (b *biographer) recordAt(ctx context.Context, topic string, partition int32, offset int64) (*kgo.Record, error) {
	if b.kafka == nil {
		return nil, errors.New("the topics were not read, because no broker is configured")
	}
	ctx, cancel := context.WithTimeout(ctx, topicsTime)
	defer cancel()
	client, err := b.kafka.Client()
	if err != nil {
		return nil, err
	}
	defer client.Close()
	all, err := topicreader.List(ctx, client, time.Time{}, topic)
	if span, ok := all[topic][partition]; err != nil || !ok || offset < span.From || offset >= span.End {
		return nil, err
	}
	own := topicreader.Spans{topic: {partition: {From: offset, End: offset + 1}}}
	for batch, err := range (&topicreader.Reader{Client: client, MaxBytes: 1}).Read(ctx, own) {
		if err != nil {
			return nil, err
		}
		for _, r := range batch.Records {
			return r, nil
		}
	}
	return nil, nil //nolint:nilnil // compaction has removed it
}
