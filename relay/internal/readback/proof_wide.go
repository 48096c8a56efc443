package readback

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/gocql/gocql"
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
	oldest := batch[0].written
	for _, a := range batch {
		oldest = min(oldest, a.written)
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
	topics = slices.DeleteFunc(topics, func(topic string) bool {
		err := kerr.ErrorForCode(details[topic].ErrorCode)
		if isDenied(err) {
			denied[topic] = true
			d.refused(topic, err)
		}
		return denied[topic]
	})
	var mu sync.Mutex // guards found
	found := make(map[gocql.UUID]bool)
	for _, a := range batch {
		found[a.event.ID] = false
	}
	t := &Topics{
		Client: d.client, Admin: d.admin, Source: d.cfg.Source, owns: nil,
		Parts: make(map[string]map[int32]*Partition),
		Take: func(events []Event) {
			mu.Lock()
			defer mu.Unlock()
			for i := range events {
				if _, ok := found[events[i].ID]; ok {
					found[events[i].ID] = true
				}
			}
		},
		Refuse: func(topic string, err error) { denied[topic] = true; d.refused(topic, err) },
	}
	if err := d.readAll(ctx, t, topics, time.UnixMicro(oldest).Add(-d.cfg.ReadBackMargin)); err != nil {
		return err
	}
	for _, a := range batch {
		answer := proofAnswer{result: ProofUnpublished}
		switch {
		case found[a.event.ID]:
			answer.result = ProofPublished
		case denied[a.topic]:
			answer.result = ProofUnproven
		case a.topic != "":
			var kept bool
			if kept, answer.err = d.kept(ctx, a); !kept {
				answer.result = ProofPublished
			}
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

// kept reports whether the topic still has all records since the row was written.
func (d *Proofs) kept(ctx context.Context, a *proofAsk) (bool, error) {
	admin := d.admin
	starts, err := admin.ListStartOffsets(ctx, a.topic)
	if err == nil {
		err = starts.Error()
	}
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		return true, nil // nothing was ever published to it
	}
	if err != nil {
		return false, fmt.Errorf("look up where topic %s begins: %w", a.topic, err)
	}
	since, err := admin.ListOffsetsAfterMilli(ctx, max(a.written/1000-d.cfg.ReadBackMargin.Milliseconds(), 0), a.topic)
	if err == nil {
		err = since.Error()
	}
	if err != nil {
		return false, fmt.Errorf("look up the retained offsets of topic %s: %w", a.topic, err)
	}
	for partition, start := range starts[a.topic] {
		if start.Offset > 0 && since[a.topic][partition].Offset <= start.Offset {
			return false, nil
		}
	}
	return true, nil
}
