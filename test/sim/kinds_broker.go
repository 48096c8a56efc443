package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// unknown contains the kinds that leave the outcome of requests unknown.
var unknown = []string{
	"broker gone", "broker unreachable", "broker frozen", "broker cut off now and then",
	"answers of the broker lost", "answers to produces lost, then errors", "produces slow", "produces fail",
}

// refusals contains the kinds in which the broker refuses a record permanently.
var refusals = []string{"topic refuses records", "topic denied"}

// brokerKinds contains the faults of the broker and of the connections to it.
var brokerKinds = []*kind{
	{
		name: "broker gone", most: untilSpan, excluding: []string{"broker gone"},
		begin: func(_ *rand.Rand, w *world) func() {
			w.net.cut(broker)
			return func() { w.net.mend(broker) }
		},
	},
	{
		// No request is in progress at its start, so all events during it are spilled.
		name: "broker unreachable", most: untilSpan, excluding: []string{"broker gone", "broker unreachable"},
		begin: func(_ *rand.Rand, w *world) func() {
			w.net.refuse(broker)
			return func() { w.net.mend(broker) }
		},
	},
	{
		name: "broker frozen", most: 20 * time.Minute, excluding: []string{"broker frozen"},
		begin: func(_ *rand.Rand, w *world) func() {
			w.kafka.freeze()
			return w.kafka.unfreeze
		},
	},
	{
		name: "partitions without a leader", most: untilSpan,
		begin: func(r *rand.Rand, w *world) func() { return w.takeLeaders(r) },
	},
	{
		// As if the cluster started together with the relay.
		name: "no leaders as the relay starts", most: 20 * time.Minute,
		excluding: []string{
			"relay restarts", "relay crashes", "database frozen", "no leaders as the relay starts", "rows late across a restart",
		},
		begin: func(r *rand.Rand, w *world) func() {
			if !w.relayRuns() {
				return func() {}
			}
			if r.IntN(3) == 0 {
				w.stopRelay()
			} else {
				w.crashRelay()
			}
			defer w.launchRelay()
			return w.takeLeaders(r)
		},
	},
	{
		name: "broker cut off now and then", most: 20 * time.Minute,
		begin: func(r *rand.Rand, w *world) func() {
			return w.nowAndThen(func() time.Duration { return upTo(r, 2*time.Minute) }, func() {
				if !w.net.isAway(broker) {
					w.net.drop(broker)
				}
			})
		},
	},
	{
		// Requests may have been executed without an answer.
		name: "answers of the broker lost", most: 30 * time.Minute, excluding: []string{"answers of the broker lost"},
		begin: func(r *rand.Rand, w *world) func() {
			w.net.loseAnswers(broker, 0.3*r.Float64())
			return func() { w.net.loseAnswers(broker, 0) }
		},
	},
	{
		name: "produces slow", most: 30 * time.Minute, excluding: []string{"produces slow"},
		begin: func(r *rand.Rand, w *world) func() {
			most := []time.Duration{time.Second, 12 * time.Second, 2 * time.Minute}[r.IntN(3)]
			w.kafka.slowProduces(func() time.Duration { return upTo(r, most) })
			return func() { w.kafka.slowProduces(nil) }
		},
	},
	{
		name: "produces fail", most: untilSpan, excluding: []string{"produces fail"},
		begin: func(r *rand.Rand, w *world) func() {
			p := 0.1 + 0.9*r.Float64()
			return w.kafka.refuse("", p, r, kerr.NotLeaderForPartition, kerr.NotEnoughReplicas, kerr.RequestTimedOut,
				kerr.NotEnoughReplicasAfterAppend, kerr.KafkaStorageError)
		},
	},
	{
		// The client does not retry it; the relay searches for the records.
		name: "produces end in an unknown error", most: time.Hour, excluding: refusals,
		begin: func(r *rand.Rand, w *world) func() {
			return w.kafka.refuse("", 0.1+0.9*r.Float64(), r, kerr.UnknownServerError)
		},
	},
	{
		name: "parcels too large", most: 30 * time.Minute, excluding: []string{"parcels too large"},
		begin: func(_ *rand.Rand, w *world) func() {
			w.largeParcels.Store(true)
			return func() { w.largeParcels.Store(false) }
		},
	},
	{
		// If an event was sent with an unknown outcome and its retry is refused, it is
		// unknown whether it is in the topic; so these kinds do not overlap.
		name: "topic refuses records", most: 2 * time.Hour, excluding: slices.Concat(unknown, refusals),
		begin: func(r *rand.Rand, w *world) func() {
			return w.kafka.refuse(topics[r.IntN(len(topics))], 1, r, kerr.InvalidRecord, kerr.PolicyViolation, kerr.MessageTooLarge)
		},
	},
	{
		// As above. After a start, the content of a topic without read access is unknown;
		// see plan.Denied.
		name: "topic denied", most: 2 * time.Hour, excluding: slices.Concat(unknown, refusals),
		begin: func(r *rand.Rand, w *world) func() {
			stop := w.kafka.deny(topics[r.IntN(len(topics))], w.settings.denied && r.IntN(2) == 0)
			return func() { stop(); w.tap.refresh() }
		},
	},
	{
		name: "new topic refused", most: 2 * time.Hour,
		begin: func(r *rand.Rand, w *world) func() {
			p := w.newLateParcel(r)
			fresh := fmt.Sprint("ParcelSeen", r.IntN(1_000_000))
			errs := []*kerr.Error{
				kerr.InvalidReplicationFactor, kerr.TopicAuthorizationFailed, kerr.ClusterAuthorizationFailed, kerr.PolicyViolation, kerr.InvalidPartitions,
			}
			stop := w.kafka.refuseNew(fresh, errs[r.IntN(len(errs))])
			var over atomic.Bool
			w.ledger.customers.Go(func() {
				for last := false; !last; {
					last = over.Load()
					p.kind = parcelMoved
					if p.rnd.IntN(2) == 0 {
						p.kind = fresh
					}
					p.onTime(1)
					time.Sleep(upTo(p.rnd, 10*time.Minute))
				}
			})
			return func() { stop(); over.Store(true) }
		},
	},
}

// takeLeaders removes the leaders of some or all partitions of one or all topics.
func (w *world) takeLeaders(r *rand.Rand) (giveBack func()) {
	var topic string
	if r.IntN(3) > 0 {
		topic = topics[r.IntN(len(topics))]
	}
	var some []int32
	if r.IntN(3) > 0 {
		for _, p := range r.Perm(partitions)[:1+r.IntN(partitions)] {
			some = append(some, int32(p))
		}
	}
	stop := w.kafka.leaderless(topic, some, r.IntN(2) == 0)
	return func() { stop(); w.tap.refresh() }
}
