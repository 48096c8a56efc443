package publish

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
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
		for _, in := range []string{"one record", "a batch", "a batch, and a broker without rights yet"} {
			t.Run(fmt.Sprint(tt.err.Message, " x", tt.times, ", ", in), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					var loss answerLoss
					wire := new(kfake.VirtualNetwork)
					b := setup(t, func(c *Config) { c.Kafka = []kgo.Opt{loss.dialer(wire.DialContext)} }, kfake.ListenFn(wire.Listen))
					defer b.close()
					all := []outbox.Event{relaytest.Event(1, 1, "OrderUpdated"), relaytest.Event(2, 1, "OrderUpdated")}
					var settled atomic.Int64
					submit := func(aggregate int, seq int64) {
						e := relaytest.Event(aggregate, seq, "OrderUpdated")
						all = append(all, e)
						b.submit(e, func() { settled.Add(1) })
					}
					for _, e := range all {
						b.submit(e, func() { settled.Add(1) })
					}
					b.drain(time.Minute)
					loss.next.Store(true)
					b.cluster.Fault(kfake.Fault{
						Keys: []kmsg.Key{kmsg.Produce}, Topic: "OrderUpdated", Err: tt.err, Count: tt.times,
						When: func(kmsg.Request) bool { return loss.lost.Load() },
					})
					if strings.Contains(in, "rights") {
						denied := b.cluster.Fault(kfake.Fault{
							Keys: []kmsg.Key{kmsg.ListOffsets}, Topic: "OrderUpdated", Err: kerr.TopicAuthorizationFailed, Count: 2,
							When: func(kmsg.Request) bool { return loss.lost.Load() },
						})
						time.AfterFunc(5*time.Minute, denied.Remove)
					}
					submit(1, 2)
					if in != "one record" {
						submit(2, 2)
						submit(1, 3)
						submit(1, 4)
						submit(2, 3)
					}
					time.Sleep(5 * time.Minute)
					submit(1, 5)
					b.drain(10 * time.Minute)
					relaytest.CheckOrder(t, b.consume("OrderUpdated"), all)
					if settled.Load() != int64(len(all)) {
						t.Errorf("%d of %d events are settled", settled.Load(), len(all))
					}
					if n := relaytest.Count(b.publisher.Metrics.dataLoss); n != 0 {
						t.Errorf("%v losses are reported, want none", n)
					}
				})
			})
		}
	}
}

// A batch of the partition in which a record is searched for cannot be decoded, ever. The record
// is published, perhaps once more, and the events behind it follow.
func TestPublisher_EndsASearchThatCannotReadItsPartition(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, nil)
		defer b.close()
		b.submit(relaytest.Event(1, 1, "OrderUpdated"), nil)
		b.drain(time.Minute)
		b.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "OrderUpdated", Err: kerr.UnknownServerError, Count: 1})
		b.cluster.ControlKey(int16(kmsg.Fetch), func(r kmsg.Request) (kmsg.Response, error, bool) {
			b.cluster.KeepControl()
			req := r.(*kmsg.FetchRequest)
			resp := req.ResponseKind().(*kmsg.FetchResponse)
			rt, rp := kmsg.NewFetchResponseTopic(), kmsg.NewFetchResponseTopicPartition()
			rt.Topic, rt.TopicID = req.Topics[0].Topic, req.Topics[0].TopicID
			rp.Partition, rp.HighWatermark = req.Topics[0].Partitions[0].Partition, 1
			rp.RecordBatches = make([]byte, 61)
			rp.RecordBatches[11], rp.RecordBatches[16] = 49, 2 // length, magic; the checksum is wrong
			rt.Partitions = append(rt.Partitions, rp)
			resp.Topics = append(resp.Topics, rt)
			return resp, nil, true
		})
		settled := 0
		for seq := range int64(3) {
			b.submit(relaytest.Event(1, seq+2, "OrderUpdated"), func() { settled++ })
		}
		b.drain(time.Minute)
		if settled != 3 {
			t.Errorf("%d of 3 events are settled", settled)
		}
	})
}

// An event with an unknown outcome is not found in a record of another table or source with its id
// and key, which another relay has published to the same topic: it is published.
func TestPublisher_TakesNoRecordOfAnotherTableForItsOwn(t *testing.T) {
	t.Parallel()
	for _, of := range []string{outbox.HeaderTable, outbox.HeaderSource} {
		t.Run(of, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := setup(t, nil)
				defer b.close()
				b.submit(relaytest.Event(1, 1, "OrderUpdated"), nil)
				b.drain(time.Minute)
				e := relaytest.Event(1, 2, "OrderUpdated")
				cl := b.client()
				defer cl.Close()
				headers := append(outbox.AppendHeaders[kgo.RecordHeader](nil, &e, b.cfg.Source), tableHeader(b.cfg.Table))
				for i := range headers {
					if headers[i].Key == of {
						headers[i].Value = []byte("another")
					}
				}
				b.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "OrderUpdated", Err: kerr.UnknownServerError, Count: 1})
				settled := 0
				b.submit(e, func() { settled++ })
				b.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: "OrderUpdated", Err: kerr.UnknownServerError, Count: 2})
				if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "OrderUpdated", Key: e.Key(), Headers: headers}).FirstErr(); err != nil {
					t.Fatal(err)
				}
				b.drain(time.Minute)
				if n := len(b.consume("OrderUpdated")); n != 3 || settled != 1 {
					t.Errorf("%d records and %d events settled, want the three records and the event", n, settled)
				}
			})
		})
	}
}
