package relay

import (
	"cmp"
	"context"
	"net"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// unreachable takes the broker off the network until it is called off.
func (w *world) unreachable() (end func()) {
	w.unreached.Store(true)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.kafkaConns {
		_ = c.Close()
	}
	w.kafkaConns = nil
	return func() { w.unreached.Store(false) }
}

// dialKafka is the relay's dialer.
func (w *world) dialKafka(ctx context.Context, network, addr string) (net.Conn, error) {
	if w.unreached.Load() {
		return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
	}
	c, err := w.net.DialContext(ctx, network, addr)
	if err == nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.kafkaConns = append(w.kafkaConns, c)
	}
	return c, err
}

// brokerOutage makes the broker hang up on everybody until it is called off.
func (w *world) brokerOutage() (end func()) {
	var gone atomic.Bool
	gone.Store(true)
	w.cluster.Control(func(kmsg.Request) (kmsg.Response, error, bool) {
		w.cluster.KeepControl()
		return nil, net.ErrClosed, gone.Load()
	})
	return func() { gone.Store(false) }
}

func (w *world) deadLetters() *dlq.Store {
	w.t.Helper()
	s, err := dlq.Open(w.session, "outbox")
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// open returns the open dead letters of the relay's table by event.
func (w *world) open() map[gocql.UUID]dlq.ChainEntry {
	w.t.Helper()
	out := make(map[gocql.UUID]dlq.ChainEntry)
	if err := w.deadLetters().Chains(w.t.Context(), cmp.Or(w.cfg.TableKeyspace, "outbox")+"."+cmp.Or(w.cfg.Table, outbox.DefaultTableName), func(e dlq.ChainEntry) error {
		out[e.EventID] = e
		return nil
	}); err != nil {
		w.t.Fatalf("Chains() error = %v", err)
	}
	return out
}

// statuses counts them by status.
func (w *world) statuses() map[dlq.Status]int {
	out := make(map[dlq.Status]int)
	for _, e := range w.open() {
		out[e.Status]++
	}
	return out
}

// refuse makes the broker refuse the batches with one event.
func (w *world) refuse(id gocql.UUID, err *kerr.Error) (end func()) {
	var gone atomic.Bool
	w.cluster.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		w.cluster.KeepControl()
		if gone.Load() {
			return nil, nil, false
		}
		q := req.(*kmsg.ProduceRequest)
		found := false
		resp := q.ResponseKind().(*kmsg.ProduceResponse)
		for _, topic := range q.Topics {
			rt := kmsg.NewProduceResponseTopic()
			rt.Topic, rt.TopicID = topic.Topic, topic.TopicID
			for _, p := range topic.Partitions {
				rp := kmsg.NewProduceResponseTopicPartition()
				rp.Partition = p.Partition
				rp.ErrorCode = kerr.NotLeaderForPartition.Code // sent again
				if strings.Contains(string(p.Records), id.String()) {
					found, rp.ErrorCode = true, err.Code
				}
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		if !found {
			return nil, nil, false
		}
		return resp, nil, true
	})
	return func() { gone.Store(true) }
}
