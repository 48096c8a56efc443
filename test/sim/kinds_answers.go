package sim

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// believedAfter is less than the time for which all brokers must deny a topic before the
// relay takes it for deleted (docs/promises.md).
const believedAfter = 4 * time.Second

// answerKinds contains answers of brokers that are wrong, or that are lost and followed by
// wrong ones.
var answerKinds = []*kind{
	{
		// As of brokers that have lost their controller: for seconds.
		name: "topic unknown to all brokers", most: 20 * time.Minute, excluding: []string{"topic unknown to all brokers"},
		begin: func(r *rand.Rand, w *world) func() {
			return w.nowAndThen(func() time.Duration { return believedAfter + upTo(r, 2*time.Minute) }, func() {
				known := w.kafka.unknownTopic(topics[r.IntN(len(topics))], unknownIn[r.IntN(len(unknownIn))], nil)
				time.Sleep(upTo(r, believedAfter))
				known()
				w.tap.refresh()
			})
		},
	},
	{
		// As of a broker whose metadata are behind.
		name: "topic unknown to a broker", most: 20 * time.Minute,
		when: func(p *plan) bool { return p.Brokers > 1 },
		begin: func(r *rand.Rand, w *world) func() {
			node := r.Int32N(int32(w.kafka.brokers))
			return w.kafka.unknownTopic(topics[r.IntN(len(topics))], unknownIn[r.IntN(len(unknownIn))], []int32{node})
		},
	},
	{
		name: "topic unknown to leaders", most: 20 * time.Minute,
		begin: func(r *rand.Rand, w *world) func() {
			return w.kafka.refuse(topics[r.IntN(len(topics))], 0.1+0.9*r.Float64(), r, w.kafka.unknownErrors()...)
		},
	},
	{
		// The broker has the records.
		name: "answers to produces lost, then errors", most: 30 * time.Minute,
		begin: func(r *rand.Rand, w *world) func() {
			end := func() {}
			stop := w.nowAndThen(func() time.Duration { return upTo(r, 4*time.Minute) }, func() {
				end()
				l := lostAnswers[r.IntN(len(lostAnswers))]
				end = w.loseAnswer(l.err, l.times)
			})
			return func() { stop(); end() }
		},
	},
	{
		// Another client makes the topic; the brokers learn of it one after the other.
		name: "new topic exists already", most: 10 * time.Minute,
		begin: func(r *rand.Rand, w *world) func() {
			p := w.newLateParcel(r)
			p.kind = fmt.Sprint("ParcelHeld", r.IntN(1_000_000))
			known := w.topicOfAnother(p.kind, 1+r.IntN(20))
			var over atomic.Bool
			w.ledger.customers.Go(func() {
				for last := false; !last; {
					last = over.Load()
					p.onTime(1)
					time.Sleep(upTo(p.rnd, 2*time.Minute))
				}
			})
			return func() { known(); over.Store(true) }
		},
	},
}

// lostAnswers are the errors of the attempts after a lost answer, and the number of attempts
// that they end.
var lostAnswers = []struct {
	err   *kerr.Error
	times int
}{
	{kerr.UnknownTopicOrPartition, 5},
	{kerr.UnknownTopicOrPartition, 20},
	{kerr.UnknownTopicID, 8},
	{kerr.UnknownServerError, 1},
	{kerr.UnknownServerError, 3},
	{kerr.CorruptMessage, 1},
	{kerr.OutOfOrderSequenceNumber, 1},
	{kerr.UnknownProducerID, 2},
	{kerr.NotLeaderForPartition, 8},
}

// loseAnswer makes the answer to the next produce request be lost, and those after it be
// errors, until end is called.
func (w *world) loseAnswer(err *kerr.Error, times int) (end func()) {
	var lost atomic.Bool
	w.net.loseNextProduce(func() {
		lost.Store(true)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.seen.lost++
	})
	w.kafka.refuses = true
	f := w.kafka.cluster.Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.Produce}, Count: times, Err: err, When: func(kmsg.Request) bool { return lost.Load() },
	})
	return func() { w.net.loseNextProduce(nil); f.Remove() }
}

// unknownErrors returns the answers of a broker that does not know a topic.
func (k *kafka) unknownErrors() []*kerr.Error {
	if k.version.TopicIDs {
		return []*kerr.Error{kerr.UnknownTopicOrPartition, kerr.UnknownTopicID}
	}
	return []*kerr.Error{kerr.UnknownTopicOrPartition}
}

// unknownIn are the requests to which brokers answer that they do not know a topic.
var unknownIn = [][]kmsg.Key{
	{kmsg.Metadata},
	{kmsg.Metadata, kmsg.Produce},
	{kmsg.Metadata, kmsg.Produce, kmsg.Fetch, kmsg.ListOffsets, kmsg.OffsetForLeaderEpoch},
	{kmsg.Fetch, kmsg.ListOffsets},
}

// unknownTopic makes brokers, all without nodes, not know a topic in the answers to these
// requests.
func (k *kafka) unknownTopic(topic string, in []kmsg.Key, nodes []int32) (known func()) {
	return k.cluster.Fault(kfake.Fault{
		Keys: in, Nodes: nodes, Topic: topic, Count: -1, Err: kerr.UnknownTopicOrPartition, When: notTaps,
	}).Remove
}

// topicOfAnother creates a topic that brokers do not know yet: they deny it so many times, and
// refuse to create it.
func (w *world) topicOfAnother(topic string, denied int) (known func()) {
	w.t.Helper()
	if err := w.kafka.cluster.CreateTopic(topic, partitions, nil); err != nil {
		w.t.Errorf("create topic %s: %v", topic, err)
	}
	w.tap.follow(topic)
	return w.kafka.cluster.Fault(
		kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: topic, Count: denied, Err: kerr.UnknownTopicOrPartition, When: notTaps},
		kfake.Fault{Keys: []kmsg.Key{kmsg.CreateTopics}, Topic: topic, Count: -1, Err: kerr.TopicAlreadyExists},
	).Remove
}
