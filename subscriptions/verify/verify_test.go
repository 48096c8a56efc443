package verify

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/schema"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/internal/deadletter"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/internal/position"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/store"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// fixture is a subscription "s" on the topic "a" with one partition.
type fixture struct {
	Config
	t        *testing.T
	client   *kgo.Client
	resource store.Resource
	epoch    int64
	topicID  [16]byte
}

func setup(t *testing.T, start string, records int) *fixture {
	t.Helper()
	w := world.Start(t)
	broker := world.StartBroker(t, kfake.SeedTopics(1, "a", "other"))
	b := &fixture{t: t}
	b.client = world.Connect(t, broker, kgo.DefaultProduceTopic("a"))
	b.Kafka = kadm.NewClient(b.client)
	var err error
	b.Store, err = store.Open(w.Session, schema.DefaultKeyspace, store.WithTimeouts(30*time.Second, 2*time.Minute))
	must(t, err)
	b.DeadLetters, err = dlq.Open(w.Session, schema.DefaultKeyspace, dlq.WithTimeouts(30*time.Second, 2*time.Minute))
	must(t, err)
	topics, err := b.Kafka.ListTopics(t.Context(), "a")
	must(t, err)
	b.topicID = topics["a"].ID
	b.produce(records, time.Now().Add(-time.Hour))
	sub := subscriptions.Subscription{Name: "s", Topics: []string{"a*"}, Start: start}
	b.resource, err = b.Store.Put(t.Context(), sub.WithDefaults(), "ada")
	must(t, err)
	return b
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (b *fixture) produce(n int, at time.Time) {
	b.t.Helper()
	for i := range n {
		must(b.t, b.client.ProduceSync(b.t.Context(), &kgo.Record{Value: fmt.Append(nil, i), Timestamp: at}).FirstErr())
	}
}

// commit commits a position with settled offsets behind it.
func (b *fixture) commit(offset int64, settled ...int64) {
	b.t.Helper()
	var set position.Set
	for _, o := range settled {
		set.Add(o)
	}
	b.commitText(offset, set.Encode(offset, position.Origin{TopicID: b.topicID, Generation: 1}))
}

func (b *fixture) commitText(offset int64, metadata string) {
	b.t.Helper()
	var offsets kadm.Offsets
	offsets.Add(kadm.Offset{Topic: "a", At: offset, LeaderEpoch: -1, Metadata: metadata})
	must(b.t, b.Kafka.CommitAllOffsets(b.t.Context(), b.resource.Incarnation(), offsets))
}

func (b *fixture) partition() store.Partition {
	return store.Partition{Subscription: b.resource.Incarnation(), Topic: "a"}
}

// save stores messages.
func (b *fixture) save(deadLetter gocql.UUID, offsets ...int64) {
	b.t.Helper()
	if b.epoch == 0 {
		var err error
		b.epoch, err = b.Store.ClaimPartition(b.t.Context(), b.partition(), "i-1")
		must(b.t, err)
	}
	for _, o := range offsets {
		must(b.t, b.Store.Save(b.t.Context(), b.partition(), b.epoch, []store.Stored{{Offset: o, State: store.StateDeferred, DeadLetter: deadLetter, Record: &kgo.Record{}}}))
	}
}

// truncate deletes the records before an offset, as retention does.
func (b *fixture) truncate(before int64) {
	b.t.Helper()
	var offsets kadm.Offsets
	offsets.Add(kadm.Offset{Topic: "a", At: before})
	_, err := b.Kafka.DeleteRecords(b.t.Context(), offsets)
	must(b.t, err)
}

func (b *fixture) check(want Counts, problems ...Problem) *Report {
	b.t.Helper()
	r, err := Check(context.Background(), b.Config, "s")
	must(b.t, err)
	if len(r.Partitions) != 1 || r.Partitions[0].Counts != want || r.Counts != want || len(r.Problems)+len(problems) > 0 && !reflect.DeepEqual(r.Problems, problems) {
		b.t.Errorf("Check() = %+v\nwant %+v, %+v", r, want, problems)
	}
	return r
}

func TestCheck_EveryOffset(t *testing.T) {
	t.Parallel()
	b := setup(t, subscriptions.StartEarliest, 20)
	b.check(Counts{Waiting: 20})
	b.commit(5, 7, 8, 19)
	b.check(Counts{Settled: 8, Waiting: 12})
	// 3 is settled in the position and stored; 6 is stored and not settled yet.
	b.save(gocql.UUID{}, 3, 6, 7)
	b.check(Counts{Settled: 6, Waiting: 11, Stored: 3})
	b.commit(20)
	b.check(Counts{Settled: 17, Stored: 3})
	if _, err := Check(t.Context(), b.Config, "none"); !errors.Is(err, subscriptions.ErrNotFound) {
		t.Errorf("Check() of a missing subscription: %v, want ErrNotFound", err)
	}
}

// Without a position, records before the beginning of the subscription do not wait.
func TestCheck_BeginsWithTheSubscription(t *testing.T) {
	t.Parallel()
	b := setup(t, subscriptions.StartLatest, 4)
	b.produce(3, time.Now().Add(time.Hour))
	b.check(Counts{Settled: 4, Waiting: 3})
}

// Records that the topic has deleted before they were settled are lost, unless they are
// stored.
func TestCheck_DeletedRecords(t *testing.T) {
	t.Parallel()
	b := setup(t, subscriptions.StartEarliest, 20)
	b.commit(5, 7, 8, 19)
	b.save(gocql.UUID{}, 3, 5)
	b.truncate(10)
	b.check(Counts{Settled: 1, Waiting: 9, Stored: 2, Lost: 2}, Problem{Kind: Lost, Topic: "a", Offset: 6, Count: 2})
	b.commit(10, 19)
	b.check(Counts{Settled: 1, Waiting: 9, Stored: 2})
	// The owner has stored the skip of the offsets that it passed over.
	must(t, b.Store.AddSkip(t.Context(), b.partition(), subscriptions.Skip{Generation: 1, From: 6, To: 10, Count: 2, Reason: subscriptions.SkipDeleted, At: time.Now()}))
	must(t, b.Store.AddSkip(t.Context(), b.partition(), subscriptions.Skip{Generation: 1, From: 6, To: 10, Count: 2, Reason: subscriptions.SkipDeleted, At: time.Now()}))
	b.check(Counts{Settled: 1, Waiting: 9, Stored: 2, Lost: 2}, Problem{Kind: Skipped, Topic: "a", Offset: 6, Count: 2})
	if n, err := b.Store.AcknowledgeSkips(t.Context(), b.resource.Incarnation(), "ada"); err != nil || n != 1 {
		t.Errorf("AcknowledgeSkips() = %d, %v", n, err)
	}
	if r := b.check(Counts{Settled: 1, Waiting: 9, Stored: 2, Lost: 2}); len(r.Skips) != 1 || r.Skips[0].AcknowledgedBy != "ada" {
		t.Errorf("skips %+v, want the acknowledged one", r.Skips)
	}
}

func TestCheck_WrongPositions(t *testing.T) {
	t.Parallel()
	b := setup(t, subscriptions.StartEarliest, 20)
	b.commit(25)
	b.check(Counts{Settled: 20}, Problem{Kind: BeyondEnd, Topic: "a", Offset: 20, Count: 5})
	former := position.Origin{TopicID: [16]byte{1}}
	b.commitText(5, (&position.Set{}).Encode(5, former))
	b.check(Counts{Waiting: 20}, Problem{Kind: OtherTopic, Topic: "a", Offset: 5, Count: 1})
	b.commitText(5, "by hand")
	b.check(Counts{Settled: 5, Waiting: 15}, Problem{Kind: BadPosition, Topic: "a", Offset: 5, Count: 1})
}

// A claimed dead letter whose replay is neither requested nor stored is never delivered.
func TestCheck_UndeliveredReplays(t *testing.T) {
	t.Parallel()
	b := setup(t, subscriptions.StartEarliest, 20)
	b.commit(20)
	l := deadletter.New(&deadletter.Message{Table: b.resource.DeadLetterTable(), Incarnation: b.resource.Incarnation(), Record: &kgo.Record{Topic: "a", Offset: 4}})
	_, err := b.DeadLetters.Write(t.Context(), l)
	must(t, err)
	ok := Counts{Settled: 20}
	if r := b.check(ok); r.DeadLetters != 1 {
		t.Errorf("%d dead letters, want 1", r.DeadLetters)
	}
	must(t, b.DeadLetters.Replay(t.Context(), l.EventID, dlq.Actor{Name: "ada", Reason: "fixed"}))
	_, err = b.DeadLetters.Claim(t.Context(), l.EventID, b.resource.Incarnation(), time.Hour)
	must(t, err)
	b.check(ok)
	requests, err := b.DeadLetters.Requests(t.Context(), l.Table, nil)
	must(t, err)
	must(t, b.DeadLetters.Done(t.Context(), requests...))
	b.check(ok, Problem{Kind: Undelivered, Topic: "a", Offset: 4, Count: 1, DeadLetter: &l.EventID})
	b.save(l.EventID, store.ReplayOffset(4))
	b.check(Counts{Settled: 20, Stored: 1})
}
