package producer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/scylla-outbox/scylla-outbox/relay/internal/fence"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/topics"
)

// client is a Kafka client with its producer id.
//
// A broker takes a batch whose producer id and sequence number it has seen for a repetition:
// it acknowledges the batch and drops it. A client counts the numbers of a partition from 0
// again once it has given up the partition's buffer, as it does for a topic with a new id. So
// there is one rule: a client never sends to a topic again after it was replaced there. What
// replaces it is the newest client, or a new one if that had the topic before.
type client struct {
	*kgo.Client
	// passed counts the records passed to the client. written is its value when a produce
	// request was last written: no request contained later records. lost is its value
	// when a produce request last failed without an answer.
	passed, written, lost atomic.Uint64
	flights               atomic.Int64 // in progress
	// failed means that the producer id is not usable: the broker refused it, or it does not
	// have the records before the next one.
	failed atomic.Bool
	nodes  sync.Map            // ids of the brokers to which it has connected
	topics map[string]struct{} // that it sends or sent to; Producer.mu guards it
	begins chan struct{}       // has a token while the producer id is requested
}

// route is the client that sends the records of a topic.
type route struct {
	*client
	found topics.Found
	// used means that the client must not begin another flight: a broker did not know the
	// id of the topic that the client has, or the topic was created again.
	used bool
}

// usable reports whether records of the topic may be sent.
func (r *route) usable() bool { return r != nil && !r.used && !r.failed.Load() }

// serves reports whether the client may send to the topic as it was found now.
func (r *route) serves(found *topics.Found) bool {
	return r.usable() && !found.Replaces(&r.found) && found.Limit == r.found.Limit
}

// newClient returns a client, not connected yet.
func (p *Producer) newClient() (*client, error) {
	c := &client{topics: make(map[string]struct{}), begins: make(chan struct{}, 1)}
	// The relay's own options come last: nothing in p.cfg.Kafka overrides them.
	opts := append([]kgo.Opt{
		kgo.ClientID("outbox-relay"), kgo.ProducerLinger(0),
		kgo.MetadataMinAge(retryAfter), // nothing is published earlier after a leader change
	}, p.cfg.Kafka...)
	opts = append(opts,
		kgo.SeedBrokers(p.cfg.Brokers...),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		// A broker that shuts down also closes connections that were just opened. Without
		// this option the client treats that as a configuration error and fails a record
		// that an earlier attempt may have written.
		kgo.AlwaysRetryEOF(),
		kgo.RecordPartitioner(partitioner(&p.Partitions)),
		// The caller's budget is the bound; the client's own bound must never be reached.
		kgo.MaxBufferedRecords(p.cfg.MaxRecords+1),
		kgo.WithHooks(hooks{p, c}),
		// Otherwise the client sends a record again that the broker may have.
		kgo.StopProducerOnDataLossDetected(),
		kgo.ProducerBatchMaxBytesFn(p.Catalog.MaxBytes), // called once for each topic
	)
	if p.cfg.Fence != nil {
		var err error
		if opts, err = fence.Connections(opts, p.cfg.Fence); err != nil {
			return nil, err
		}
	}
	var err error
	if c.Client, err = kgo.NewClient(opts...); err != nil {
		return nil, fmt.Errorf("kafka client: %w", err)
	}
	return c, nil
}

// errProducerID wraps the error of a producer id that the broker refused.
var errProducerID = errors.New("the broker refused a producer id")

// IsProducerIDRefused reports whether the error is the refusal of a producer id.
func IsProducerIDRefused(err error) bool { return errors.Is(err, errProducerID) }

// begin loads the producer id. The client keeps a refusal for ever and then fails every
// record with it.
func (c *client) begin(ctx context.Context) error {
	select { // the client has a mutex there, which cannot be cancelled
	case c.begins <- struct{}{}:
		defer func() { <-c.begins }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	_, _, err := c.ProducerID(ctx)
	if ke, ok := errors.AsType[*kerr.Error](err); ok {
		c.failed.Store(c.failed.Load() || !ke.Retriable)
		return fmt.Errorf("%w: %w", errProducerID, err)
	}
	return err
}

// drain waits until no broker has a produce request of the client that it may still process: a
// broker answers the requests of a connection in order, an empty one thus after those before it,
// and a request on a connection that fails is processed or lost.
func (c *client) drain(ctx context.Context) {
	var wg sync.WaitGroup
	for id := range c.nodes.Range {
		wg.Go(func() {
			req := kmsg.NewPtrProduceRequest()
			req.Acks, req.TimeoutMillis = -1, int32(retryAfter.Milliseconds())
			_, _ = c.Broker(int(id.(int32))).Request(ctx, req)
		})
	}
	wg.Wait()
}

// losesNumbers reports whether the error of a record ends the client's producer id: the broker
// does not have the batches before it, or does not know the id.
func losesNumbers(err error) bool {
	return errors.Is(err, kerr.OutOfOrderSequenceNumber) || errors.Is(err, kerr.UnknownProducerID) ||
		errors.Is(err, kerr.InvalidProducerIDMapping) || errors.Is(err, kerr.InvalidProducerEpoch)
}

// choose returns the client for a topic that was found in this state.
func (p *Producer) choose(topic string, found *topics.Found) (*client, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := p.mu.routes[topic]; r.serves(found) {
		r.found.Partitions = found.Partitions
		return r.client, nil
	}
	c := p.mu.clients[len(p.mu.clients)-1]
	if _, had := c.topics[topic]; had || c.failed.Load() {
		var err error
		if c, err = p.newClient(); err != nil {
			return nil, err
		}
		p.mu.clients = append(p.mu.clients, c)
	}
	c.topics[topic] = struct{}{}
	p.mu.routes[topic] = &route{client: c, found: *found}
	p.closeUnusedLocked()
	return c, nil
}

// pick returns the client for a flight of the topic, and counts the flight.
func (p *Producer) pick(topic string) *client {
	p.mu.RLock()
	defer p.mu.RUnlock()
	c := p.client
	if r := p.mu.routes[topic]; r != nil {
		c = r.client
	}
	c.flights.Add(1)
	return c
}

// leave ends a flight of the client, and closes the client if it was the last one and the
// client is used for no topic.
func (p *Producer) leave(c *client) {
	if c.flights.Add(-1) > 0 || c == p.client {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closeUnusedLocked()
}

// closeUnusedLocked closes the clients that have no topic and no flight. The first one is the
// administrator's, and the newest takes further topics.
func (p *Producer) closeUnusedLocked() {
	if p.ctx.Err() != nil {
		return // Close closes them
	}
	for i := len(p.mu.clients) - 2; i > 0; i-- {
		c := p.mu.clients[i]
		used := c.flights.Load() > 0
		for _, r := range p.mu.routes {
			used = used || r.client == c
		}
		if !used {
			p.mu.clients = append(p.mu.clients[:i], p.mu.clients[i+1:]...)
			p.wg.Go(c.Close)
		}
	}
}

// retire ends the use of a client, nil for any, for a topic that is not the one that the client has.
func (p *Producer) retire(topic string, c *client) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := p.mu.routes[topic]; r != nil && (c == nil || r.client == c) {
		r.used = true
	}
}
