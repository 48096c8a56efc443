package relay

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/failure"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/chains"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/publish"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
	testworld "github.com/scylla-outbox/scylla-outbox/test/world"
)

// A topic that the broker refuses costs its own events a dead letter each. The relay
// continues, at the next start too, and once the cause is fixed a replay publishes them.
func TestTopics_ARefusedOneStopsNoOther(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		fault kfake.Fault
		code  string
	}{
		"describe denied":      {kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Err: kerr.TopicAuthorizationFailed}, "TOPIC_AUTHORIZATION_FAILED"},
		"create denied":        {kfake.Fault{Keys: []kmsg.Key{kmsg.CreateTopics}, Err: kerr.TopicAuthorizationFailed}, "TOPIC_AUTHORIZATION_FAILED"},
		"create denied by old": {kfake.Fault{Keys: []kmsg.Key{kmsg.CreateTopics}, Err: kerr.ClusterAuthorizationFailed}, "CLUSTER_AUTHORIZATION_FAILED"},
		"policy violated":      {kfake.Fault{Keys: []kmsg.Key{kmsg.CreateTopics}, Err: kerr.PolicyViolation}, "POLICY_VIOLATION"},
		"name invalid":         {kfake.Fault{Keys: []kmsg.Key{kmsg.CreateTopics}, Err: kerr.InvalidTopicException}, "INVALID_TOPIC_EXCEPTION"},
		"write denied":         {kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.TopicAuthorizationFailed}, "TOPIC_AUTHORIZATION_FAILED"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				w := newWorld(t, scyllafake.Config{Tokens: 4}, nil)
				defer w.close()
				tt.fault.Topic, tt.fault.Count = "Secret", -1
				refused := w.cluster.Fault(tt.fault)
				var all, secret []outbox.Event
				for run := range 2 {
					r, stop := w.run()
					for i := range 3 {
						all = append(all, relaytest.Event(10*run+i, 1, "OrderUpdated"))
						w.write(all[len(all)-1])
						secret = append(secret, relaytest.Event(100+i, int64(run+1), "Secret"))
						w.write(secret[len(secret)-1])
					}
					time.Sleep(10 * time.Second)
					if s := r.Status(); s.Breaker.State != publish.BreakerClosed || s.DeadLetters != len(secret) {
						t.Errorf("run %d: breaker %s, %d dead letters, want it closed and %d", run, s.Breaker.State, s.DeadLetters, len(secret))
					}
					if err := stop(); err != nil {
						t.Fatalf("run %d ended with %v", run, err)
					}
				}
				relaytest.CheckOrder(t, w.consume("OrderUpdated"), all)
				for id, e := range w.open() {
					l, err := w.deadLetters().Read(t.Context(), id)
					class := chains.ClassTopicRefused
					if tt.code == "INVALID_TOPIC_EXCEPTION" {
						class = chains.ClassTopicInvalid
					}
					if err != nil || e.Sequence == 1 && (e.ErrorClass != class || l.ErrorCode != tt.code) {
						t.Errorf("dead letter of seq %d: %s %s, %v, want %s %s", e.Sequence, e.ErrorClass, l.ErrorCode, err, class, tt.code)
					}
				}
				refused.Remove()
				_, stop := w.run()
				for _, e := range secret[:3] { // the ones of the second run follow
					if err := w.deadLetters().Replay(t.Context(), e.ID.UUID(), dlq.Actor{Name: "ada"}); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(20 * time.Second)
				if err := stop(); err != nil {
					t.Error(err)
				}
				relaytest.CheckOrder(t, w.consume("Secret"), secret)
			})
		})
	}
}

// A new topic that the cluster cannot hold while a broker is away, or has no memory for it, is
// created when it can. Other topics do not wait for it, and the breaker stays closed: the broker answers.
func TestTopics_WaitsForBrokersThatHoldTheReplicas(t *testing.T) {
	t.Parallel()
	relaytest.Long(t)
	for name, fault := range map[string]kfake.Fault{
		"too few brokers": {Keys: []kmsg.Key{kmsg.CreateTopics}, Err: kerr.InvalidReplicationFactor},
		"no leaders":      {Keys: []kmsg.Key{kmsg.Metadata}, Err: kerr.LeaderNotAvailable},
		"no memory":       {Keys: []kmsg.Key{kmsg.CreateTopics}, Err: kerr.InvalidPartitions}, // of Redpanda for more partitions
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) { waitsForTopic(t, fault) })
		})
	}
}

func waitsForTopic(t *testing.T, fault kfake.Fault) {
	w := newWorld(t, scyllafake.Config{Tokens: 4}, nil, testworld.Redpanda().Options()...)
	defer w.close()
	fault.Topic, fault.Count = "New", -1
	away := w.cluster.Fault(fault)
	r, stop := w.run()
	fresh := relaytest.Event(1, 1, "New")
	w.write(fresh)
	time.Sleep(30 * time.Second)
	var all []outbox.Event
	for i := range 3 {
		all = append(all, relaytest.Event(10+i, 1, "OrderUpdated"))
		w.write(all[i])
	}
	time.Sleep(5 * time.Second)
	if n := relaytest.Count(r.metrics.Breaker.Changes.WithLabelValues(publish.BreakerOpen.String())); n != 0 {
		t.Errorf("the breaker opened %v times, want 0", n)
	}
	relaytest.CheckOrder(t, w.consume("OrderUpdated"), all)
	away.Remove()
	time.Sleep(3 * time.Minute)
	if err := stop(); err != nil {
		t.Error(err)
	}
	relaytest.CheckOrder(t, w.consume("New"), []outbox.Event{fresh})
}

// Only an error of the connection to the cluster ends the relay.
func TestTopics_ARefusedClusterEndsTheRelay(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, nil)
		defer w.close()
		w.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.ClusterAuthorizationFailed, Count: -1})
		cfg := w.cfg
		cfg.Session, cfg.Registerer = w.session, nil
		r, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		w.write(relaytest.Event(1, 1, "OrderUpdated"))
		if err := r.Run(ctx); err == nil || failure.Classify(err) != failure.Fatal {
			t.Errorf("Run() error = %v, want a fatal one", err)
		}
	})
}

// A topic's name that no broker takes is not a missing right: the operator corrects the mapping.
func TestDeadLetters_TopicWithoutAValidName(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, nil)
		defer w.close()
		_, stop := w.run()
		e := relaytest.Event(1, 1, "not a topic!")
		w.write(e)
		time.Sleep(10 * time.Second)
		if err := stop(); err != nil {
			t.Error(err)
		}
		l, err := w.deadLetters().Read(t.Context(), e.ID.UUID())
		if err != nil || l.Status != dlq.Suspended || l.ErrorClass != chains.ClassTopicInvalid {
			t.Errorf("Read() = %s %s, %v, want it suspended as %s", l.Status, l.ErrorClass, err, chains.ClassTopicInvalid)
		}
	})
}
