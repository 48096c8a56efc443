package readback

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
)

// proofTries is the maximum number of attempts to read partitions; the caller retries
// after that.
const proofTries = 5

// readWide reads all topics of the relay back to when the oldest of the rows was written.
func (d *Proofs) readWide(ctx context.Context, batch []*proofAsk) error {
	var asked []string
	oldest := batch[0].since
	for _, a := range batch {
		oldest = min(oldest, a.since)
		if a.topic != "" {
			asked = append(asked, a.topic)
		}
	}
	topics, saved, err := d.relayTopics(ctx, asked)
	if err != nil {
		return err
	}
	found := make(map[eventKey]bool)
	for _, a := range batch {
		found[a.eventKey()] = false
	}
	var t *Topics
	for margin := d.margin(); ; {
		t = d.newTopics(saved, func(e *Event) {
			key := eventKey{e.ID, e.Aggregate}
			if _, ok := found[key]; ok {
				found[key] = true
			}
		})
		err = d.readAll(ctx, t, topics, time.UnixMicro(oldest).Add(-margin))
		covered := margin
		if margin = t.clock.covering(covered, d.cfg.ReadBackMargin); err != nil || margin <= covered {
			break
		}
		d.setClock(t.clock)
	}
	for topic, why := range t.Denied {
		d.logRefusal(topic, why)
	}
	if err != nil {
		return err
	}
	starts, err := d.starts(ctx, t)
	if err != nil {
		return err
	}
	sinces := make(map[*Partition]int64)
	for _, a := range batch {
		answer := proofAnswer{result: ProofPublished}
		if !found[a.eventKey()] {
			if answer.result, err = d.absent(ctx, a, t, starts, sinces); err != nil {
				answer = proofAnswer{err: err}
			}
		}
		a.reply(answer)
	}
	return nil
}

// relayTopics returns the topics to which the relay publishes or has published, with others, and
// the saved ones, which are known to have existed.
func (d *Proofs) relayTopics(ctx context.Context, others []string) (topics, saved []string, err error) {
	if saved, err = d.store.Topics(ctx); err != nil {
		return nil, nil, err
	}
	topics = slices.AppendSeq(slices.Concat(saved, others), maps.Values(d.cfg.Topics))
	slices.Sort(topics)
	return slices.Compact(topics), saved, nil
}

// idAge is how far back FindIDOfAnother reads.
const idAge = 10 * time.Minute

// FindIDOfAnother reports whether the records of the last idAge in the relay's topics contain
// another event with the id of an event, one of another aggregate or number, and not the event.
func (d *Proofs) FindIDOfAnother(ctx context.Context, f *cdclog.StoredEvent) (bool, error) {
	ask := d.newAsk(f, 0)
	if ask.topic == "" || d.cfg.ReadBackMargin < 0 {
		return false, nil
	}
	own, other := false, false
	err := d.readSince(ctx, []string{ask.topic}, time.Now().Add(-idAge), func(e *Event) {
		if e.ID == ask.event.ID.UUID() {
			same := e.Aggregate == ask.event.AggregateID.UUID() && e.Sequence == ask.event.Sequence
			own, other = own || same, other || !same
		}
	})
	return other && !own, err
}

// FindRecords returns the events, by id with their numbers, that the records of the relay's topics since
// then contain. A topic that may not be read contains none, nor do records that retention has removed.
func (d *Proofs) FindRecords(ctx context.Context, events map[gocql.UUID]int64, since time.Time) (map[gocql.UUID]struct{}, error) {
	found := make(map[gocql.UUID]struct{})
	if d.cfg.ReadBackMargin < 0 {
		return found, nil
	}
	err := d.readSince(ctx, nil, since, func(e *Event) {
		if n, ok := events[e.ID]; ok && n == e.Sequence {
			found[e.ID] = struct{}{}
		}
	})
	return found, err
}

// readSince calls take, which is not called concurrently, for each event in the relay's topics and others
// since then.
func (d *Proofs) readSince(ctx context.Context, others []string, since time.Time, take func(*Event)) error {
	topics, saved, err := d.relayTopics(ctx, others)
	if err != nil {
		return err
	}
	return d.readAll(ctx, d.newTopics(saved, take), topics, since.Add(-d.margin()))
}

// newTopics returns topics to be read for proofs; saved are the topics that are known to have existed.
// take is called for each event, and not concurrently.
func (d *Proofs) newTopics(saved []string, take func(*Event)) *Topics {
	var mu sync.Mutex
	return &Topics{
		Client: d.client, Admin: d.admin, Source: d.cfg.Source, cfg: d.cfg,
		Parts: make(map[string]map[int32]*Partition), Denied: make(map[string]error),
		unknown: d.unknown, expects: func(topic string) bool { return slices.Contains(saved, topic) },
		Take: func(events []Event) {
			mu.Lock()
			defer mu.Unlock()
			for i := range events {
				take(&events[i])
			}
		},
	}
}

// readAll reads the topics since then up to their ends. It waits until the brokers agree about
// unknown topics.
func (d *Proofs) readAll(ctx context.Context, t *Topics, topics []string, since time.Time) error {
	began := time.Now()
	for attempt := 1; ; attempt++ {
		var pending []*Partition
		d.Reads.Inc()
		err := t.Locate(ctx, topics, since)
		if err == nil {
			err = t.FindEnds(ctx)
		}
		if err == nil {
			err = t.Read(ctx)
			t.each(func(p *Partition) {
				switch {
				case p.err != nil && !isDenied(p.err):
					err = errors.Join(err, p.err)
				case !p.done():
					pending = append(pending, p)
				}
			})
		}
		if err == nil && len(pending) > 0 {
			err = unread(pending)
		}
		patient := errors.Is(err, errUnknownTopic) && time.Since(began) < 2*agreeFor
		if err == nil || attempt >= proofTries && !patient {
			return err
		}
		if err := retry.Wait(ctx, retry.Required(d.cfg.RetryMin, d.cfg.RetryMax, attempt)); err != nil {
			return err
		}
	}
}

// starts returns where the partitions of the topics that were read begin.
func (d *Proofs) starts(ctx context.Context, t *Topics) (kadm.ListedOffsets, error) {
	var topics []string
	for topic := range t.Parts {
		if t.Denied[topic] == nil {
			topics = append(topics, topic)
		}
	}
	if len(topics) == 0 {
		return nil, nil
	}
	starts, err := d.admin.ListStartOffsets(ctx, topics...)
	if err != nil {
		return nil, fmt.Errorf("look up where topics begin: %w", err)
	}
	return starts, nil
}

// firstFetches is the maximum number of reads for the first record of the relay in a partition.
const firstFetches = 64

// since returns the time in milliseconds from which a partition, which was read, has every record of
// the relay: that of the first one that it retains, or 0 if none was deleted. Records of others prove
// nothing, because a copy of a topic keeps the times of its records. If none of the relay is found, it
// returns the end of time.
func (d *Proofs) since(ctx context.Context, p *Partition, starts kadm.ListedOffsets) (at int64, err error) {
	start, ok := starts.Lookup(p.topic, p.partition)
	switch {
	case !ok:
		return 0, fmt.Errorf("the broker did not return where partition %d of topic %s begins", p.partition, p.topic)
	case start.Err != nil:
		return 0, fmt.Errorf("look up where partition %d of topic %s begins: %w", p.partition, p.topic, start.Err)
	case start.Offset == 0:
		return 0, nil
	}
	at = math.MaxInt64
	first := *p
	first.next = start.Offset
	scanner := d.cfg.newScanner()
	for n := 0; n < firstFetches && first.next < p.end && at == math.MaxInt64; n++ {
		before := first.next
		err := d.fetch(ctx, scanner, p.leader, []*Partition{&first}, func(e Event) {
			if at == math.MaxInt64 && !e.misdated {
				at = e.at
			}
		})
		if err = cmp.Or(err, first.err); err != nil {
			return 0, fmt.Errorf("read the first records of partition %d of topic %s: %w", p.partition, p.topic, err)
		}
		if first.next == before {
			break // it cannot be read
		}
	}
	return at, nil
}

// absent returns what follows for an event that is in none of the topics.
//
// Only the partition of the event's key decides, in the topic that the event has now. Another
// partition, one that the key had before partitions were added, and a topic that another name
// had, prove nothing where they were trimmed: a duplicate is better than a loss. sinces contains the
// results of since for the batch.
func (d *Proofs) absent(ctx context.Context, a *proofAsk, t *Topics, starts kadm.ListedOffsets, sinces map[*Partition]int64) (ProofResult, error) {
	parts := len(t.Parts[a.topic])
	switch {
	case t.Denied[a.topic] != nil:
		return ProofUnproven, nil
	case parts == 0: // the topic does not exist
		return ProofUnpublished, nil
	}
	p := t.Parts[a.topic][keyPartition(a.topic, a.key, parts)]
	if p == nil {
		return ProofUnpublished, fmt.Errorf("a partition of topic %s is unknown", a.topic)
	}
	since, known := sinces[p]
	if !known {
		var err error
		if since, err = d.since(ctx, p, starts); err != nil {
			return ProofUnpublished, err
		}
		sinces[p] = since
	}
	if since > 0 && since >= a.written/1000-d.margin().Milliseconds() {
		return ProofPublished, nil
	}
	return ProofUnpublished, nil
}
