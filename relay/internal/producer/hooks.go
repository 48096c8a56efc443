package producer

import (
	"errors"
	"net"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Observer receives the events of the connections to the brokers. Its methods are called by
// goroutines of the Kafka client, without locks and before the client processes the
// response; they do not block.
type Observer interface {
	// Responded is called when a broker answered a request.
	Responded()
	// ConnectionFailed is called when a broker refuses a connection, or when a connection
	// is lost before a produce request was answered.
	ConnectionFailed(err error)
	// DataLost is called when a partition no longer has records that it acknowledged.
	DataLost(topic string, partition int32)
	// Recreated is called when a topic was deleted and created again.
	Recreated(topic string)
}

// hooks observes the connections of a client.
type hooks struct {
	p *Producer
	c *client
}

var (
	_ kgo.HookBrokerConnect = hooks{}
	_ kgo.HookBrokerWrite   = hooks{}
	_ kgo.HookBrokerE2E     = hooks{}
)

// OnBrokerConnect records a connection, or reports one that cannot be established.
func (h hooks) OnBrokerConnect(b kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	if err != nil {
		h.p.observer.ConnectionFailed(err)
	} else if b.NodeID >= 0 { // records are sent to no other one
		h.c.nodes.Store(b.NodeID, nil)
	}
}

// OnBrokerWrite records that a produce request was written.
func (h hooks) OnBrokerWrite(_ kgo.BrokerMetadata, key int16, bytes int, _, _ time.Duration, _ error) {
	if key == int16(kmsg.Produce) && bytes > 0 {
		raise(&h.c.written, &h.c.passed)
	}
}

var errDisconnected = errors.New("the connection to the broker was lost")

// OnBrokerE2E reports a response, and records that a produce request was written, because
// a response may precede OnBrokerWrite. It reports a produce request that fails without a
// response.
func (h hooks) OnBrokerE2E(_ kgo.BrokerMetadata, key int16, e kgo.BrokerE2E) {
	if e.Err() == nil && e.BytesRead > 0 {
		h.p.observer.Responded()
	}
	if key != int16(kmsg.Produce) {
		return
	}
	if e.BytesWritten > 0 {
		raise(&h.c.written, &h.c.passed)
	}
	if err := errors.Join(e.WriteErr, e.ReadErr); err != nil {
		raise(&h.c.lost, &h.c.passed)
		h.p.observer.ConnectionFailed(errors.Join(errDisconnected, err))
	}
}

// raise sets mark to passed: what happened now may concern every record passed so far.
func raise(mark, passed *atomic.Uint64) {
	now := passed.Load()
	for {
		before := mark.Load()
		if before >= now || mark.CompareAndSwap(before, now) {
			return
		}
	}
}
