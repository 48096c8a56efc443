package testkit

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/internal/daemon"
)

// records are the records of all topics, as a consumer receives them.
type records struct {
	admin *kadm.Client

	mu   sync.Mutex
	all  []*kgo.Record // in the order of each partition
	next map[string]map[int32]int64
}

// follow begins to consume all topics from their starts.
func (k *Kit) follow(teardown *daemon.Teardown) {
	k.t.Helper()
	client, err := k.conf.Kafka.Client(
		kgo.ConsumeRegex(), kgo.ConsumeTopics(".*"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.MetadataMinAge(50*time.Millisecond), kgo.MetadataMaxAge(500*time.Millisecond), kgo.KeepControlRecords(),
	)
	if err != nil {
		k.t.Fatal(err)
	}
	k.records = &records{admin: kadm.NewClient(client), next: make(map[string]map[int32]int64)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			fetches := client.PollFetches(context.Background())
			if fetches.IsClientClosed() {
				return
			}
			k.records.add(fetches)
		}
	}()
	teardown.AddFunc("consumer", func() { client.Close(); <-ended })
}

func (r *records) add(fetches kgo.Fetches) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fetches.EachRecord(func(one *kgo.Record) {
		if r.next[one.Topic] == nil {
			r.next[one.Topic] = make(map[int32]int64)
		}
		r.next[one.Topic][one.Partition] = one.Offset + 1
		if !one.Attrs.IsControl() {
			r.all = append(r.all, one)
		}
	})
}

// of returns the records of a topic, by partition and offset; an empty name is any topic.
func (r *records) of(topic string) []*kgo.Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.all), func(one *kgo.Record) bool { return topic != "" && one.Topic != topic })
}

// hasReached reports whether all records before these offsets have been consumed.
func (r *records) hasReached(ends kadm.ListedOffsets) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := true
	ends.Each(func(o kadm.ListedOffset) {
		all = all && (o.Err != nil || r.next[o.Topic][o.Partition] >= o.Offset)
	})
	return all
}

// Records returns the records that a topic has now, in the order of each partition. A topic that
// does not exist has none. outbox.FromRecord returns the event of a record.
func (k *Kit) Records(topic string) []*kgo.Record {
	k.t.Helper()
	ends, err := k.records.admin.ListEndOffsets(k.t.Context(), topic)
	if err != nil {
		k.t.Fatalf("list the ends of topic %s: %v", topic, err)
	}
	k.Until("the records of topic "+topic, func() bool { return k.records.hasReached(ends) })
	return k.records.of(topic)
}
