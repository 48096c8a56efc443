package producer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/failure"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/fence"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/topics"
)

// Config configures a producer. All fields are required unless documented as optional.
type Config struct {
	Brokers []string
	Kafka   []kgo.Opt   // optional
	Fence   fence.Fence // optional; its error closes the connections
	// Source is the value of the header ce_source.
	Source         string
	MaxRecordBytes int32
	MaxRecords     int // that are outstanding
	Partitions     int32
	Replication    int16
	// ClockMargin is the greatest difference between the clocks of the brokers and of this
	// host, for topics whose records the broker dates.
	ClockMargin time.Duration
	Logger      *slog.Logger
}

// retryAfter is the least time between two requests of the same kind.
const retryAfter = 500 * time.Millisecond

// Producer sends records to Kafka.
type Producer struct {
	cfg      Config
	observer Observer
	client   *client // the first one, which the administrator uses too
	// Catalog contains the known topics, Partitions their partitions and the gated ones.
	*topics.Catalog
	topics.Partitions
	search search
	ctx    context.Context // ends when the producer is closed
	stop   context.CancelFunc
	wg     sync.WaitGroup

	mu struct {
		sync.RWMutex
		routes  map[string]*route // by topic
		clients []*client         // in order of creation
	}
}

// New returns a producer. It connects with the first request.
func New(cfg Config, observer Observer) (*Producer, error) {
	p := &Producer{cfg: cfg, observer: observer, Catalog: topics.NewCatalog(cfg.Partitions, cfg.Replication, cfg.MaxRecordBytes)}
	p.Partitions.Log = cfg.Logger
	p.search.init()
	p.mu.routes = make(map[string]*route)
	var err error
	if p.client, err = p.newClient(); err != nil {
		return nil, err
	}
	p.mu.clients = append(p.mu.clients, p.client)
	p.Catalog.Admin = kadm.NewClient(p.client.Client)
	p.ctx, p.stop = context.WithCancel(context.Background())
	return p, nil
}

// Clients returns the first client, and an administrator of topics that uses it.
func (p *Producer) Clients() (*kgo.Client, *kadm.Client) { return p.client.Client, p.Catalog.Admin }

// Ping sends a request that changes nothing to a broker.
func (p *Producer) Ping(ctx context.Context) error { return p.client.Ping(ctx) }

// Ready reports whether records of the topic may be sent. Otherwise Ensure has to be called.
func (p *Producer) Ready(topic string) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.Catalog.Known(topic) && p.mu.routes[topic].usable()
}

// Ensure looks the topic up, creates it if it is missing, and chooses the client of its
// records. The error is that of the broker.
func (p *Producer) Ensure(ctx context.Context, topic string) error {
	found, err := p.Catalog.Find(ctx, topic)
	if err != nil {
		return err
	}
	c, err := p.choose(topic, &found)
	if err != nil {
		return err
	}
	if err := c.begin(ctx); err != nil {
		return err
	}
	p.know(topic, &found)
	return nil
}

// know records the state of a topic. It reports whether it is another topic than before.
func (p *Producer) know(topic string, found *topics.Found) (recreated bool) {
	if !p.Catalog.Know(topic, found) {
		p.Partitions.Know(topic, found.Partitions)
		return false
	}
	p.cfg.Logger.Warn("topic was deleted and created again; its consumers do not see the events of the former topic", "topic", topic)
	p.observer.Recreated(topic)
	if found.Partitions > 0 {
		p.Partitions.Saw(topic, found.Partitions)
	}
	p.search.forget(topic)
	return true
}

// Sender receives the result of a record that it has sent.
type Sender interface {
	// Returned receives the record, and an error if it is not in its topic. Any goroutine calls it, once.
	Returned(r *kgo.Record, err error)
}

// Slot is the storage of one record while the producer has it. Once the record is returned, the slot
// may be used for another one, which then needs no allocation. The zero value is ready to use.
type Slot struct {
	Record kgo.Record
	to     Sender
	flight *Flight
	client *client
	n      uint64                   // the number of the record
	answer func(*kgo.Record, error) // the method answered
}

// Send passes the record of a slot to the client of a flight. It does not block, and the sender
// receives the result after it returns. The error of a result means that the record is not in its
// topic, unless the producer was closed or may not read the topic.
func (p *Producer) Send(f *Flight, s *Slot, to Sender) {
	s.to, s.flight, s.client = to, f, f.client
	s.n = s.client.passed.Add(1)
	f.first.CompareAndSwap(0, s.n)
	if s.answer == nil {
		s.answer = s.answered
	}
	s.client.TryProduce(f, &s.Record, s.answer)
}

// answered receives the client's result of the record.
func (s *Slot) answered(r *kgo.Record, err error) {
	p, c := s.flight.p, s.client
	if err == nil {
		p.search.acknowledged(r)
		s.to.Returned(r, nil)
		return
	}
	switch {
	case IsTooLarge(err):
		err = fmt.Errorf("a record of %d bytes before compression, where topic %s takes batches of at most %d (%s): %w", recordSize(r), r.Topic, p.Catalog.MaxBytes(r.Topic), p.limitName(r.Topic), err)
	case losesNumbers(err):
		c.failed.Store(true)
	case errors.Is(err, kerr.UnknownTopicID):
		p.retire(r.Topic, c)
	}
	if part := s.flight.partition.Load(); part >= 0 && !Rejected(r) && c.mayHaveWritten(s.n, err) {
		p.find(partition{r.Topic, part}, returned{r, c, err, s.to})
		return
	}
	s.to.Returned(r, err)
}

// mayHaveWritten reports whether a broker may have written record n, which was returned with
// an error: a request contained it, and the error is not the answer to its first attempt that a
// broker refuses it.
func (c *client) mayHaveWritten(n uint64, err error) bool {
	switch {
	case errors.Is(err, ErrRecalled), errors.Is(err, kgo.ErrClientClosed):
		return false
	case errors.Is(err, kerr.UnknownTopicID), losesNumbers(err): // it concerns other requests too: one may be about to be written
		return true
	case c.written.Load() < n:
		return false
	case failure.Classify(err) == failure.Permanent:
		return c.lost.Load() >= n
	}
	return true
}

// IsTooLarge reports whether the error of a record is that it is too large.
func IsTooLarge(err error) bool {
	return errors.Is(err, kerr.MessageTooLarge) || errors.Is(err, kerr.RecordListTooLarge)
}

// limitName says whose limit bounds the batches of a topic.
func (p *Producer) limitName(topic string) string {
	if p.Catalog.MaxBytes(topic) == p.cfg.MaxRecordBytes {
		return "the relay's max_record_bytes"
	}
	return "the topic's max.message.bytes"
}

// recordSize returns the bytes of a record's key, value and headers. A batch adds less than a hundred.
func recordSize(r *kgo.Record) int {
	n := len(r.Key) + len(r.Value)
	for _, h := range r.Headers {
		n += len(h.Key) + len(h.Value)
	}
	return n
}

// StateChanged reports whether the error of a record shows that its topic is not in the state
// that the producer knows.
func StateChanged(err error) bool {
	return errors.Is(err, kerr.UnknownTopicOrPartition) || errors.Is(err, kerr.UnknownTopicID) || IsTooLarge(err) || strings.Contains(err.Error(), lacksPartition)
}

// lacksPartition is in the error of a record for a partition that its topic had, and that its
// metadata no longer contain: the topic was created again with fewer. kgo exports no value for it,
// and keeps the partition for as long as the client uses the topic.
const lacksPartition = "metadata update is missing a partition"

// recordOverhead is an upper bound of the size that key, CloudEvents headers and batch
// header add to the payload and headers of a small event.
const recordOverhead = 2048

// MayBeTooLarge reports whether the record of an event may exceed the client's limit for
// its topic. The client fails such a record alone, before it is in a batch. All other
// failures also return the records after it.
func (p *Producer) MayBeTooLarge(e *outbox.Event, topic string) bool {
	size := len(e.Payload) + recordOverhead + 4*(len(e.Type)+len(e.AggregateType)+textSize(e.AggregateID)+textSize(e.ID)+len(e.ContentType)+len(p.cfg.Source))
	for k, v := range e.Headers {
		size += len(k) + len(v) + 20
	}
	return size > int(p.Catalog.MaxBytes(topic))
}

// textSize returns the length of an id that is no UUID: recordOverhead has room for UUIDs, and
// their text form would be an allocation.
func textSize(id outbox.ID) int {
	if id.IsUUID() {
		return 0
	}
	return len(id.String())
}

// Close closes the clients. Nothing is sent or read afterwards.
func (p *Producer) Close() {
	p.stop()
	p.mu.Lock()
	clients := p.mu.clients
	p.mu.Unlock()
	for _, c := range clients {
		c.Close()
	}
	p.search.mu.Lock()
	//lint:ignore SA2001 no other goroutine begins once a holder of the lock has seen the end
	p.search.mu.Unlock()
	p.wg.Wait()
}
