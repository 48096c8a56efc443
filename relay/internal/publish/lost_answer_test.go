package publish

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// answerLoss loses the answers to produce requests: the broker has appended the records, and the
// connection ends.
type answerLoss struct {
	next atomic.Bool // the next answer is lost
	lost atomic.Bool // one was lost
}

type lossyConn struct {
	net.Conn
	loss  *answerLoss
	loses atomic.Bool
}

func (c *lossyConn) Write(p []byte) (int, error) {
	if len(p) > 6 && binary.BigEndian.Uint16(p[4:]) == uint16(kmsg.Produce) && c.loss.next.CompareAndSwap(true, false) {
		c.loses.Store(true)
	}
	return c.Conn.Write(p)
}

func (c *lossyConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.loses.Load() {
		c.loss.lost.Store(true)
		_ = c.Conn.Close()
		return 0, io.EOF
	}
	return n, err
}

// dialer returns a dialer whose connections can lose answers.
func (l *answerLoss) dialer(dial func(context.Context, string, string) (net.Conn, error)) kgo.Opt {
	return kgo.Dialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &lossyConn{Conn: conn, loss: l}, nil
	})
}

// The answer to a produce request is lost after the broker has appended the records, and the
// attempts after that fail. The records are found in their topic, are not sent again, and count
// as published; events behind them keep their order.
func TestPublisher_FindsRecordsWhoseAnswerWasLost(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err   *kerr.Error
		times int
	}{
		{kerr.NotLeaderForPartition, 8},
		{kerr.UnknownTopicOrPartition, 3},
		{kerr.UnknownTopicOrPartition, 8},
		{kerr.UnknownTopicOrPartition, 20},
		{kerr.UnknownTopicID, 8},
		{kerr.CorruptMessage, 1},
		{kerr.UnknownServerError, 1},
		{kerr.UnknownServerError, 3},
		{kerr.OutOfOrderSequenceNumber, 1},
		{kerr.UnknownProducerID, 2},
		{kerr.PolicyViolation, 3},
		{kerr.TopicAuthorizationFailed, 1},
		{kerr.MessageTooLarge, 1},
		{kerr.InvalidRecord, 1},
	} {
		for _, in := range []string{"one record", "a batch"} {
			t.Run(fmt.Sprint(tt.err.Message, " x", tt.times, ", ", in), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					var loss answerLoss
					wire := new(kfake.VirtualNetwork)
					b := setup(t, func(c *Config) { c.Kafka = []kgo.Opt{loss.dialer(wire.DialContext)} }, kfake.ListenFn(wire.Listen))
					defer b.close()
					all := []outbox.Event{relaytest.Event(1, 1, "OrderUpdated"), relaytest.Event(2, 1, "OrderUpdated")}
					settled := 0
					submit := func(aggregate int, seq int64) {
						e := relaytest.Event(aggregate, seq, "OrderUpdated")
						all = append(all, e)
						b.submit(e, func() { settled++ })
					}
					for _, e := range all {
						b.submit(e, func() { settled++ })
					}
					b.drain(time.Minute)
					loss.next.Store(true)
					b.cluster.Fault(kfake.Fault{
						Keys: []kmsg.Key{kmsg.Produce}, Topic: "OrderUpdated", Err: tt.err, Count: tt.times,
						When: func(kmsg.Request) bool { return loss.lost.Load() },
					})
					submit(1, 2)
					if in == "a batch" {
						submit(2, 2)
						submit(1, 3)
						submit(1, 4)
						submit(2, 3)
					}
					time.Sleep(5 * time.Minute)
					submit(1, 5)
					b.drain(10 * time.Minute)
					relaytest.CheckOrder(t, b.consume("OrderUpdated"), all)
					if settled != len(all) {
						t.Errorf("%d of %d events are settled", settled, len(all))
					}
					if n := relaytest.Count(b.publisher.Metrics.dataLoss); n != 0 {
						t.Errorf("%v losses are reported, want none", n)
					}
				})
			})
		}
	}
}
