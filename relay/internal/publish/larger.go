package publish

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// largerClient sends records to a topic whose limit was raised. A client takes
// the limit of a topic once and keeps it; to make it forget the topic would begin
// the sequence numbers of its partitions anew, and the broker may take that for
// a repetition and drop the record. So there is another client, with a producer id
// of its own. Only suspects go by it: they are sent alone, so nothing is under
// way to the topic by the other one.
type largerClient struct {
	client *kgo.Client
	limit  int32
}

func tooLarge(err error) bool {
	return errors.Is(err, kerr.MessageTooLarge) || errors.Is(err, kerr.RecordListTooLarge)
}

// recordOverhead is more than a record of a small event is larger than its
// payload and the event's own headers: key, headers of CloudEvents, batch header.
const recordOverhead = 2048

// mayBeTooLarge says whether the producer may find the record too large for its
// topic. It then fails the record alone, before it is in a batch, unlike all
// other failures, which give back what is behind it too.
func (p *Publisher) mayBeTooLarge(it *item) bool {
	e := &it.event
	size := len(e.Payload) + recordOverhead + 4*(len(e.Type)+len(e.AggregateType)+len(e.AggregateText)+len(e.IDText)+len(e.ContentType)+len(p.cfg.Source))
	for k, v := range e.Headers {
		size += len(k) + len(v) + 20
	}
	return size > int(p.topics.maxBytes(it.topic))
}

// clientFor is the client that sends the item. Called locked.
func (p *Publisher) clientFor(l *lane, it *item) *kgo.Client {
	if c, ok := p.larger[it.topic]; ok && l.suspect {
		return c.client
	}
	return p.client
}

// measure asks how large a record the topic takes now, since one was refused,
// and then goes on with the lane, unless it is nil. Called locked.
func (p *Publisher) measure(l *lane, topic string) {
	if l != nil {
		l.paused = true
	}
	p.wg.Go(func() {
		ctx, cancel := context.WithTimeout(p.ctx, p.cfg.AttemptTimeout)
		defer cancel()
		n, ok := p.topics.messageBytes(ctx, topic)
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

// enlarge makes a client for larger records, if the topic takes any. Called locked.
func (p *Publisher) enlarge(topic string, limit int32) {
	before := p.topics.maxBytes(topic)
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
