package main

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/devkit/bench"
)

// A start of the relay reads back records that were consumed a while ago, so only older ones
// are deleted.
func TestTrimmer_KeepsWhatWasConsumedRecently(t *testing.T) {
	t.Parallel()
	broker, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "T"))
	if err != nil {
		t.Fatal(err)
	}
	defer broker.Close()
	client, err := kgo.NewClient(kgo.SeedBrokers(broker.ListenAddrs()...), kgo.DefaultProduceTopic("T"))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for range 10 {
		if err := client.ProduceSync(t.Context(), kgo.StringRecord("x")).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	trim := trimmer{admin: kadm.NewClient(client), topic: "T"}
	for _, step := range []struct {
		consumed, start int64
		later           time.Duration
	}{{3, 0, 0}, {5, 0, 40 * time.Minute}, {8, 3, 30 * time.Minute}, {9, 5, 50 * time.Minute}} {
		for i := range trim.marks {
			trim.marks[i].at = trim.marks[i].at.Add(-step.later)
		}
		if err := trim.trim(t.Context(), map[int32]int64{0: step.consumed}, time.Hour); err != nil {
			t.Fatal(err)
		}
		starts, err := trim.admin.ListStartOffsets(t.Context(), "T")
		if err != nil {
			t.Fatal(err)
		}
		if start, _ := starts.Lookup("T", 0); start.Offset != step.start {
			t.Errorf("with %d records consumed the topic begins at %d, want %d", step.consumed, start.Offset, step.start)
		}
	}

	client.AddConsumeTopics("T")
	arrivals := bench.NewArrivals(bench.NewEvents("T", 1, 100), 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	go arrivals.Consume(ctx, client)
	for arrivals.Positions()[0] != 10 && stoppable(ctx, time.Millisecond) == nil {
	}
	if got := arrivals.Positions(); got[0] != 10 || len(got) != 1 {
		t.Errorf("positions after 10 records: %v", got)
	}
}
