package publish

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// largerClient sends records to a topic whose size limit was raised. A client reads the
// limit of a topic once. If it forgot the topic, the sequence numbers of the partitions
// would restart, and the broker could drop a record as a duplicate. The relay therefore
// uses a second client with its own producer id. Only suspects use it: they are sent
// alone, so the first client has no outstanding records of the topic.
type largerClient struct {
	client *kgo.Client
	limit  int32
}

func tooLarge(err error) bool {
	return errors.Is(err, kerr.MessageTooLarge) || errors.Is(err, kerr.RecordListTooLarge)
}

// recordOverhead is an upper bound of the size that key, CloudEvents headers and batch
// header add to the payload and headers of a small event.
const recordOverhead = 2048

// mayBeTooLarge reports whether the record may exceed the producer's limit for its
// topic. The producer fails such a record alone, before it is in a batch. All other
// failures also return the records after it.
func (p *Publisher) mayBeTooLarge(it *item) bool {
	e := &it.event
	size := len(e.Payload) + recordOverhead + 4*(len(e.Type)+len(e.AggregateType)+len(e.AggregateText)+len(e.IDText)+len(e.ContentType)+len(p.cfg.Source))
	for k, v := range e.Headers {
		size += len(k) + len(v) + 20
	}
	return size > int(p.topics.MaxBytes(it.topic))
}

// clientFor returns the client that sends the item. Called locked.
func (p *Publisher) clientFor(l *lane, it *item) *kgo.Client {
	if c, ok := p.larger[it.topic]; ok && l.suspect {
		return c.client
	}
	return p.client
}

// measure reads the current record size limit of the topic after a refusal, and then
// resumes the lane unless it is nil. Called locked.
func (p *Publisher) measure(l *lane, topic string) {
	if l != nil {
		l.paused = true
	}
	p.wg.Go(func() {
		ctx, cancel := context.WithTimeout(p.ctx, p.cfg.AttemptTimeout)
		defer cancel()
		n, ok := p.topics.MessageBytes(ctx, topic)
		p.mu.Lock()
		defer p.mu.Unlock()
		if ok && !p.closed {
			p.enlarge(topic, min(n, p.cfg.MaxRecordBytes))
		}
		if l == nil {
			return
		}
		if _, replays := p.replaying[l]; l.ended != nil && !replays {
			return
		}
		l.paused = false
		p.pump(l)
	})
}

// enlarge creates a client for larger records if the topic accepts them. Called locked.
func (p *Publisher) enlarge(topic string, limit int32) {
	before := p.topics.MaxBytes(topic)
	if c, ok := p.larger[topic]; ok {
		before = c.limit
	}
	if limit <= before {
		return
	}
	client, err := p.newClient(kgo.ProducerBatchMaxBytes(limit))
	if err != nil {
		p.log.Warn("no client for larger records", "topic", topic, "err", err)
		return
	}
	p.log.Info("a topic takes larger records than before", "topic", topic, "bytes", limit, "before", before)
	p.larger[topic] = largerClient{client, limit}
	p.clients = append(p.clients, client)
}
