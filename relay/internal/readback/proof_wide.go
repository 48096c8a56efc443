package readback

import (
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
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/scylla-outbox/scylla-outbox/internal/retry"
)

// proofTries is the maximum number of attempts to read partitions; the caller retries
// after that.
const proofTries = 5

// readWide reads all topics of the relay back to when the oldest of the rows was written.
func (d *Proofs) readWide(ctx context.Context, batch []*proofAsk) error {
	topics, err := d.store.Topics(ctx)
	if err != nil {
		return err
	}
	oldest := batch[0].since
	for _, a := range batch {
		oldest = min(oldest, a.since)
		if a.topic != "" {
			topics = append(topics, a.topic)
		}
	}
	topics = slices.AppendSeq(topics, maps.Values(d.cfg.Topics))
	slices.Sort(topics)
	topics = slices.Compact(topics)
	denied := make(map[string]bool)
	details, err := d.details(ctx, topics)
	if err != nil {
		return err
	}
	var there []string
	for _, topic := range topics {
		switch err := kerr.ErrorForCode(details[topic].ErrorCode); {
		case isDenied(err):
			denied[topic] = true
			d.refused(topic, err)
		case !errors.Is(err, kerr.UnknownTopicOrPartition):
			there = append(there, topic)
		}
	}
	var mu sync.Mutex // guards found
	found := make(map[gocql.UUID]bool)
	for _, a := range batch {
		found[a.event.ID] = false
	}
	t := &Topics{
		Client: d.client, Admin: d.admin, Source: d.cfg.Source, owns: nil,
		Parts: make(map[string]map[int32]*Partition), Denied: make(map[string]error),
		Take: func(events []Event) {
			mu.Lock()
			defer mu.Unlock()
			for i := range events {
				if _, ok := found[events[i].ID]; ok {
					found[events[i].ID] = true
				}
			}
		},
	}
	err = d.readAll(ctx, t, there, time.UnixMicro(oldest).Add(-d.cfg.ReadBackMargin))
	for topic, why := range t.Denied {
		denied[topic] = true
		d.refused(topic, why)
	}
	if err != nil {
		return err
	}
	retained, err := d.retention(ctx, slices.DeleteFunc(there, func(topic string) bool { return denied[topic] }))
	if err != nil {
		return err
	}
	for _, a := range batch {
		answer := proofAnswer{result: ProofPublished}
		if !found[a.event.ID] {
			answer.result = d.absent(a, denied, retained)
		}
		a.reply(answer)
	}
	return nil
}

// readAll reads the topics since then up to their ends.
func (d *Proofs) readAll(ctx context.Context, t *Topics, topics []string, since time.Time) error {
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
		if err == nil || attempt == proofTries {
			return err
		}
		if err := retry.Wait(ctx, retry.Required(d.cfg.RetryMin, d.cfg.RetryMax, attempt)); err != nil {
			return err
		}
	}
}

// retention returns the time in milliseconds from which each topic has every record, 0 if
// none was deleted.
func (d *Proofs) retention(ctx context.Context, topics []string) (map[string]int64, error) {
	out := make(map[string]int64)
	if len(topics) == 0 {
		return out, nil
	}
	starts, err := d.admin.ListStartOffsets(ctx, topics...)
	if err == nil {
		err = starts.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("look up where topics begin: %w", err)
	}
	firsts, err := d.admin.ListOffsetsAfterMilli(ctx, 0, topics...)
	if err == nil {
		err = firsts.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("look up the first records of topics: %w", err)
	}
	starts.Each(func(start kadm.ListedOffset) {
		if start.Offset == 0 {
			return
		}
		at := int64(math.MaxInt64)
		if o, ok := firsts.Lookup(start.Topic, start.Partition); ok && o.Timestamp > 0 {
			at = o.Timestamp
		}
		out[start.Topic] = max(out[start.Topic], at)
	})
	return out, nil
}

// absent returns what follows for an event that is in none of the topics. A topic
// that does not exist has no entry in retained.
//
// Only the topic of the event decides, also if the relay may have had other names of topics
// when the row was written: a topic that another name had, and that was trimmed, deleted or
// never created, proves nothing, and a duplicate is better than a loss.
func (d *Proofs) absent(a *proofAsk, denied map[string]bool, retained map[string]int64) ProofResult {
	switch since := retained[a.topic]; {
	case denied[a.topic]:
		return ProofUnproven
	case since > 0 && since >= a.written/1000-d.cfg.ReadBackMargin.Milliseconds():
		return ProofPublished
	}
	return ProofUnpublished
}
