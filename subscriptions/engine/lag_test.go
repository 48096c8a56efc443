package engine

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/subscriptions"
)

// lag checks the lag in status, metric and, if the committed positions are enough, a process
// without partitions.
func (p *process) lag(step string, want int64, idle bool) {
	p.w.t.Helper()
	st, err := p.Status(context.Background(), "s")
	if err != nil {
		p.w.t.Fatal(err)
	}
	sum := int64(0)
	for _, s := range st.Partitions {
		sum += s.Lag
	}
	if metric := p.readMetrics("s")["outbox_subscription_lag"]; st.Lag != want || sum != want || metric != float64(want) {
		p.w.t.Errorf("%s: the lag is %d in the status, %d in its partitions and %v in the metric, want %d", step, st.Lag, sum, metric, want)
	}
	if st, err := p.w.idle().Status(context.Background(), "s"); idle && (err != nil || st.Lag != want) {
		p.w.t.Errorf("%s: without a partition the lag is %d, %v, want %d", step, st.Lag, err, want)
	}
}

// The lag is the number of messages that are not settled, everywhere: deferred ones too, and unread
// ones.
func TestEngine_LagIsOneNumber(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		w.put(subscriptions.Subscription{Name: "s", Topics: []string{"a"}, Ordering: subscriptions.OrderingNone})
		p := w.start()
		for i := range 7 {
			w.produce("a", "k", fmt.Sprint("e", i))
		}
		w.sleep(time.Second)
		p.lag("waiting", 7, true)
		got := p.receive(7, time.Second)
		p.lag("leased", 7, true)
		if codes := p.settleDelayed(2*time.Hour, got[:5]...); len(codes) != 5 {
			t.Fatalf("%v", codes)
		}
		p.ok(subscriptions.ActionAck, got[5])
		p.ok(subscriptions.ActionReject, got[6])
		w.sleep(10 * time.Second)
		p.lag("5 deferred", 5, false)
		if err := p.Pause(context.Background(), "s", "test"); err != nil {
			t.Fatal(err)
		}
		p.stop()
		w.produce("a", "k", "later")
		q := w.start()
		w.sleep(10 * time.Second)
		q.lag("paused, at the next owner", 6, false)
	})
}

// settleDelayed returns messages for a delivery after a delay.
func (p *process) settleDelayed(delay time.Duration, messages ...subscriptions.Message) (codes []subscriptions.Code) {
	actions := make([]subscriptions.Settle, len(messages))
	for i := range messages {
		actions[i] = subscriptions.Settle{Action: subscriptions.ActionNack, Receipt: messages[i].Receipt, Delay: delay}
	}
	results, err := p.Settle(context.Background(), "s", actions)
	if err != nil {
		p.w.t.Fatal(err)
	}
	for _, r := range results {
		codes = append(codes, r.Code)
	}
	return codes
}

// The lag does not count offsets without a message: control records, records of aborted
// transactions, and offsets whose records are gone.
func TestEngine_LagCountsMessages(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		w.put(subscriptions.Subscription{Name: "s", Topics: []string{"a"}, Start: subscriptions.StartEarliest})
		p := w.start()
		producer, err := kgo.NewClient(kgo.SeedBrokers("127.0.0.1:9092"), kgo.Dialer(w.net.DialContext), kgo.TransactionalID("tx"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
		if err != nil {
			t.Fatal(err)
		}
		defer producer.Close()
		transaction := func(name string, commit kgo.TransactionEndTry) {
			t.Helper()
			if err := producer.BeginTransaction(); err != nil {
				t.Fatal(err)
			}
			if err := producer.ProduceSync(context.Background(), event("a", "k", name)).FirstErr(); err != nil {
				t.Fatal(err)
			}
			if err := producer.EndTransaction(context.Background(), commit); err != nil {
				t.Fatal(err)
			}
		}
		settle := func(step string, names ...string) {
			t.Helper()
			for _, name := range names {
				p.ok(subscriptions.ActionAck, p.one(name, 1))
			}
			w.sleep(10 * time.Second)
			p.lag(step, 0, true)
		}
		transaction("e0", kgo.TryCommit)
		w.sleep(time.Second)
		if st, err := p.Status(context.Background(), "s"); err != nil || st.Lag != 1 {
			t.Errorf("the lag of one message is %d, %v", st.Lag, err)
		}
		settle("after a transaction", "e0")
		transaction("e1", kgo.TryAbort)
		settle("after an aborted one")
		transaction("e2", kgo.TryCommit)
		transaction("e3", kgo.TryAbort)
		settle("after both", "e2")
		p.stop()
		p = w.start()
		p.lag("after a restart", 0, true)

		// Records at the end are gone, unread, as after a compaction.
		p.stop()
		w.produce("a", "k", "gone")
		ends, err := w.adm.ListEndOffsets(context.Background(), "a")
		if err != nil {
			t.Fatal(err)
		}
		del := make(kadm.Offsets)
		ends.Each(func(o kadm.ListedOffset) { del.AddOffset(o.Topic, o.Partition, o.Offset, -1) })
		if _, err := w.adm.DeleteRecords(context.Background(), del); err != nil {
			t.Fatal(err)
		}
		p = w.start()
		w.sleep(20 * time.Second)
		p.lag("after deleted records", 0, false)
		w.produce("a", "k", "next")
		w.sleep(time.Second)
		p.lag("the next message", 1, false)
	})
}
