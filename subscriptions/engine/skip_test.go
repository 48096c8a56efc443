package engine

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/scylla-outbox/scylla-outbox/subscriptions"
)

// truncate deletes the records of a partition before an offset, as retention does.
func (w *world) truncate(topic string, number int32, before int64) {
	w.t.Helper()
	var offsets kadm.Offsets
	offsets.Add(kadm.Offset{Topic: topic, Partition: number, At: before})
	if _, err := w.adm.DeleteRecords(context.Background(), offsets); err != nil {
		w.t.Fatal(err)
	}
}

// Records that the topic deletes before they are delivered are stored as a skip, logged,
// counted, and a problem until an operator acknowledges it: while no instance runs, while the
// owner runs, and if the topic has no record left.
func TestSkip_DeletedRecords(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		down   bool
		before int64
		from   int64
		left   int
	}{
		"while no instance runs":           {true, 25, 10, 5},
		"while the owner is away":          {false, 25, 10, 5},
		"all, while no instance runs":      {true, 30, 10, 0},
		"all, while the owner is away":     {false, 30, 10, 0},
		"only settled ones":                {true, 10, 10, 20},
		"settled ones, the owner was away": {false, 10, 10, 20},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(w *world) {
				w.put(subscriptions.Subscription{Name: "s", Topics: []string{"a"}})
				p := w.start()
				for range 10 {
					w.produce("a", "k", "before")
				}
				w.sleep(time.Second)
				var number int32
				for range 10 {
					got := p.receive(1, 10*time.Second)
					number = got[0].Partition
					p.ok(subscriptions.ActionAck, got...)
				}
				w.sleep(5 * time.Second)
				if tt.down {
					p.stop()
				} else {
					p.freeze(true)
				}
				for range 20 {
					w.produce("a", "k", "after")
				}
				w.truncate("a", number, tt.before)
				if tt.down {
					p = w.start()
				} else {
					w.sleep(2 * time.Second)
					p.freeze(false)
				}
				w.sleep(30 * time.Second)
				delivered := 0
				for more := p.receive(10, 10*time.Second); len(more) > 0; more = p.receive(10, 10*time.Second) {
					delivered += len(more)
					p.ok(subscriptions.ActionAck, more...)
				}
				st, err := p.Status(context.Background(), "s")
				if err != nil {
					t.Fatal(err)
				}
				// The request that was in flight when the network froze may have returned the first.
				extra := 0
				if !tt.down && tt.left < 20 {
					extra = delivered - tt.left
				}
				want := 20 - delivered
				if delivered != tt.left+extra || extra < 0 || extra > 1 || st.Lag != 0 {
					t.Errorf("%d messages are delivered and the lag is %d, want %d and 0", delivered, st.Lag, tt.left)
				}
				if want == 0 {
					if len(st.Skips) != 0 || len(p.Problems()) != 0 {
						t.Errorf("skips %+v, problems %q; want none", st.Skips, p.Problems())
					}
					return
				}
				if len(st.Skips) != 1 || st.Skips[0].From != tt.from+int64(extra) || st.Skips[0].To != tt.before || st.Skips[0].Count != int64(want) || st.Skips[0].Reason != subscriptions.SkipDeleted {
					t.Fatalf("skips %+v, want one of %d records from %d", st.Skips, want, tt.from)
				}
				if got := p.Problems(); len(got) != 1 || !strings.Contains(got[0], "were not delivered") || !strings.Contains(w.log.String(), "records were not delivered") {
					t.Errorf("problems %q, want one, and a line of the log", got)
				}
				if got := p.metric(t, "outbox_subscription_skipped_total"); got != float64(want) {
					t.Errorf("%v skipped records are counted, want %d", got, want)
				}
				p.stop()
				p = w.start()
				w.sleep(10 * time.Second)
				if len(p.Problems()) != 1 {
					t.Errorf("problems %q after a restart, want the same one", p.Problems())
				}
				if err := p.AcknowledgeSkips(context.Background(), "s", "ada"); err != nil {
					t.Fatal(err)
				}
				w.sleep(10 * time.Second)
				if st, err = p.Status(context.Background(), "s"); err != nil || len(st.Skips) != 1 || st.Skips[0].AcknowledgedBy != "ada" || len(p.Problems()) != 0 {
					t.Errorf("after the acknowledgement: skips %+v, problems %q, %v", st.Skips, p.Problems(), err)
				}
			})
		})
	}
}

// metric returns the sum of a counter.
func (p *process) metric(t *testing.T, name string) (sum float64) {
	t.Helper()
	all, err := p.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

// A topic that was deleted and created again is a skip of the records that the former one may have
// had left: here its position is stored for the new one, by its name.
func TestSkip_DeletedTopic(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		w.put(subscriptions.Subscription{Name: "s", Topics: []string{"a"}})
		p := w.start()
		w.produce("a", "k", "e0")
		m := p.one("e0", 1)
		w.recreate("a")
		p.ok(subscriptions.ActionAck, m)
		w.sleep(2 * time.Minute)
		st, err := p.Status(context.Background(), "s")
		if err != nil || len(st.Skips) != 1 || st.Skips[0].Reason != subscriptions.SkipTopicDeleted || st.Skips[0].From != 1 {
			t.Errorf("skips %+v, %v; want one from offset 1", st.Skips, err)
		}
	}, kfake.MaxVersions(kversion.V4_1_0()))
}

// A seek to an offset that the partition does not have is refused and changes nothing; one that
// it has no more when the seek is applied goes to the nearest one.
func TestSeek_ToAnOffsetThatDoesNotExist(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		w.put(subscriptions.Subscription{Name: "s", Topics: []string{"a"}})
		p := w.start()
		for range 5 {
			w.produce("a", "k", "e")
		}
		var number int32
		for range 5 {
			got := p.receive(1, 10*time.Second)
			number = got[0].Partition
			p.ok(subscriptions.ActionAck, got...)
		}
		seek := func(offset int64) error {
			return p.Seek(context.Background(), "s", subscriptions.Seek{To: "offset", Topic: "a", Partition: number, Offset: offset}, "ada")
		}
		for _, offset := range []int64{6, math.MaxInt64} {
			if err := seek(offset); err == nil || !strings.Contains(err.Error(), "has the offsets 0 to 5") {
				t.Errorf("Seek(%d) = %v, want a refusal with the offsets", offset, err)
			}
		}
		if err := p.Seek(context.Background(), "s", subscriptions.Seek{To: "offset", Topic: "a", Partition: 99}, "ada"); err == nil || !strings.Contains(err.Error(), "does not exist") {
			t.Errorf("Seek() of a partition that does not exist = %v", err)
		}
		w.sleep(10 * time.Second)
		if got := p.receive(10, 10*time.Second); len(got) != 0 {
			t.Errorf("%d messages after refused seeks, want none", len(got))
		}
		if err := seek(5); err != nil {
			t.Errorf("Seek() to the end = %v", err)
		}
		w.sleep(5 * time.Second)
		w.truncate("a", number, 3)
		if err := seek(2); err == nil {
			t.Error("Seek() to a deleted record is accepted")
		}
		if _, err := w.db.Seek(context.Background(), "s", subscriptions.Seek{To: "offset", Topic: "a", Partition: number, Offset: 1000}, "ada"); err != nil {
			t.Fatal(err)
		}
		w.sleep(10 * time.Second)
		w.produce("a", "k", "last")
		p.ok(subscriptions.ActionAck, p.one("last", 1))
	})
}
