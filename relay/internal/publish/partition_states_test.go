package publish

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// suspectLane returns a lane whose front was refused.
func suspectLane(aggregate int) *lane {
	id := relaytest.Event(aggregate, 1, "OrderUpdated").AggregateID.UUID()
	return &lane{id: id, queue: queue{state: laneSuspect}}
}

// probeBehindARecord returns a partition and its probe, which waits for a record there.
func probeBehindARecord() (ps *partitions, key Partition, probe *lane) {
	ps, key, probe = new(partitions), Partition{"OrderUpdated", 1}, suspectLane(1)
	cfg := testConfig()
	ps.init(&cfg)
	ps.begin(&item{part: key, sentAt: time.Now()})
	ps.beginProbe(key, probe, time.Now())
	return ps, key, probe
}

// The probe of a partition that stalls decides again, as the suspects behind it: it becomes a dead
// letter with the other waiting events.
func TestPartitions_StallReturnsTheProbe(t *testing.T) {
	t.Parallel()
	ps, key, probe := probeBehindARecord()
	behind := suspectLane(2)
	ps.wait(key, behind, forProbe)
	stalls, lanes, _ := ps.stall(time.Now().Add(ps.cfg.AttemptTimeout))
	if len(stalls) != 1 || !slices.Equal(lanes, []*lane{probe, behind}) {
		t.Errorf("stall() = %v and %d lanes, want the partition, its probe and the suspect behind it", stalls, len(lanes))
	}
}

// A gated partition, whose end restarts the relay, takes records again when the producer has none of it
// that a start might repeat; a stalled one with the first acknowledgement.
func TestPartitions_AGatedOneEndsWithItsLastRecord(t *testing.T) {
	t.Parallel()
	for name, gated := range map[string]bool{"gated": true, "stalled": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ps, key := new(partitions), Partition{"OrderUpdated", 1}
			cfg := testConfig()
			ps.init(&cfg)
			var sent []*item
			for range 2 {
				sent = append(sent, &item{part: key, sentAt: time.Now()})
				ps.begin(sent[len(sent)-1])
			}
			ps.stall(time.Now().Add(ps.cfg.AttemptTimeout))
			if gated {
				ps.set(key, partGated)
			}
			for i, it := range sent {
				if r := ps.end(it, true, time.Now()); r.wasStalled != (gated == (i == 1)) || r.wasGated != (gated && i == 1) {
					t.Errorf("end() = %+v after %d of 2 records", r, i+1)
				}
			}
		})
	}
}

// The share of a partition grows as soon as a stalled one answers, not with the next check.
func TestPartitions_TheShareGrowsWithAnAnswer(t *testing.T) {
	t.Parallel()
	ps, cfg := new(partitions), testConfig()
	cfg.MaxInFlightRecords = 12
	ps.init(&cfg)
	send := func(part int32, n int) (last *item) {
		for range n {
			last = &item{part: Partition{"OrderUpdated", part}, sentAt: time.Now()}
			ps.begin(last)
		}
		return last
	}
	stalled := send(0, 6)
	ps.stall(time.Now().Add(ps.cfg.AttemptTimeout))
	other := send(1, 5)
	if !ps.isFull(other.in) {
		t.Fatal("a partition with 5 records is below two thirds of the 6 that a stalled one leaves")
	}
	ps.end(stalled, true, time.Now())
	if ps.isFull(other.in) || ps.stuck.open != 0 {
		t.Errorf("a partition with 5 records is full, want a share of 8; %d records are stuck", ps.stuck.open)
	}
}

// A suspect whose partition takes nothing more waits for it. When it ends its own probe, it is not
// among the lanes that decide again then: its caller continues it.
func TestPartitions_EndProbeReturnsOthersAlone(t *testing.T) {
	t.Parallel()
	ps, key, probe := probeBehindARecord()
	other := suspectLane(2)
	other.state = laneReady
	ps.stall(time.Now().Add(ps.cfg.AttemptTimeout))
	if !ps.wait(key, probe, forPartition) || !ps.wait(key, other, forPartition) {
		t.Fatal("a stalled partition takes records")
	}
	if next := ps.endProbe(probe); !slices.Equal(next, []*lane{other}) {
		t.Errorf("endProbe() = %d lanes, want the other one", len(next))
	}
}

// The records of a suspect go to another partition once its topic has more. Its probe of the former
// one ends then: the lanes behind it would wait for ever.
func TestPublisher_ProbesOnePartition(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, nil)
		defer b.close()
		p := b.publisher
		former, now := Partition{"OrderUpdated", 1}, Partition{"OrderUpdated", 5}
		probe, behind := suspectLane(1), suspectLane(2)
		p.ask(func(c *cell) {
			c.partitions.beginProbe(former, probe, c.now)
			c.partitions.wait(former, behind, forProbe)
			c.execute(probe, &step{do: actProbe}, &view{part: now})
			if left := c.partitions.of[former]; left != nil {
				t.Errorf("the former partition has the probe %p, want none", left.probe)
			}
			if c.partitions.of[now].probe != probe {
				t.Error("the lane does not probe its partition")
			}
		})
	})
}

// The creation of a topic fails for a lane that has records with the producer: their own results decide
// about them, and the lane asks again when they are back.
func TestPublisher_RefusedTopicIsNoResultOfRecords(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, nil)
		defer b.close()
		b.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.CreateTopics}, Topic: "Secret", Err: kerr.TopicAuthorizationFailed, Count: -1})
		p := b.publisher
		lanes := []*lane{suspectLane(1), suspectLane(2)}
		p.ask(func(c *cell) {
			for i, l := range lanes {
				it := &item{event: relaytest.Event(1+i, 2, "Secret"), topic: "Secret"}
				l.state, l.items = laneReady, []*item{it}
				l.part, l.key = Partition{"Secret", 0}, it.recordKey()
				c.makeTopic("Secret", l)
			}
			lanes[1].outstanding = 1
		})
		time.Sleep(10 * time.Second)
		p.ask(func(*cell) {
			if lanes[0].state == laneReady {
				t.Error("the refusal of the topic has no effect on a lane without records")
			}
			if l := lanes[1]; l.err != nil || l.state != laneReady {
				t.Errorf("the lane with a record has the error %v and state %s, want none and ready", l.err, laneStates[l.state])
			}
		})
	})
}
