package sim

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	testworld "github.com/scylla-outbox/scylla-outbox/test/world"
)

// The answer to a produce request is lost after the broker has appended its records, and the
// attempts after it end in each of the errors.
func TestAnswers_LostThenErrors(t *testing.T) {
	seen := simulate(t, 70, nil, func(w *world) {
		w.traffic(300, 2*time.Hour)
		for _, l := range lostAnswers {
			for range 3 {
				end := w.loseAnswer(l.err, l.times)
				time.Sleep(4 * time.Minute)
				end()
			}
		}
	})
	wantOnce(t, seen)
	if seen.lost < len(lostAnswers) {
		t.Errorf("%d answers were lost, want most of %d", seen.lost, 3*len(lostAnswers))
	}
}

// Any answer of the broker may be lost while most produce requests end in an error that leaves the
// outcome of the records unknown.
func TestAnswers_LostAmongUnknownErrors(t *testing.T) {
	seen := simulate(t, 81, nil, func(w *world) {
		rnd := rand.New(rand.NewPCG(w.seed, 'a'))
		w.traffic(500, time.Hour)
		w.net.loseAnswers(broker, 0.2)
		stop := w.kafka.refuse("", 0.6, rnd, kerr.UnknownServerError)
		time.Sleep(time.Hour)
		stop()
		w.net.loseAnswers(broker, 0)
	})
	wantOnce(t, seen)
}

// The brokers do not know a topic for seconds while the relay runs and while it starts, or one of
// three does not for minutes.
func TestAnswers_TopicsUnknown(t *testing.T) {
	seen := simulate(t, 71, func(s *settings) { s.brokers = 3 }, func(w *world) {
		w.traffic(600, 2*time.Hour)
		for i := range 4 * len(unknownIn) {
			time.Sleep(2 * time.Minute)
			var nodes []int32
			if i%4 > 1 {
				nodes = []int32{int32(i/4) % 3}
			}
			if i%2 == 0 {
				w.crashRelay()
			}
			known := w.kafka.unknownTopic(topics[0], unknownIn[i/4], nodes)
			if i%2 == 0 {
				w.startRelay()
			}
			if nodes != nil {
				time.Sleep(2 * time.Minute)
			}
			time.Sleep(believedAfter)
			known()
			w.tap.refresh()
		}
	})
	wantOnce(t, seen)
}

// Another client creates the topic of the first event of its type; brokers deny it for a while
// and refuse to create it.
func TestAnswers_TopicExistsAlready(t *testing.T) {
	for _, denied := range []int{1, 5, 20} {
		seen := simulate(t, 72, nil, func(w *world) {
			p := w.newLateParcel(rand.New(rand.NewPCG(w.seed, 'e')))
			p.kind = "ParcelHeld"
			known := w.topicOfAnother(p.kind, denied)
			p.onTime(5)
			time.Sleep(10 * time.Minute)
			known()
			if n := w.relay().relay.Status().DeadLetters; n > 0 {
				t.Errorf("%d dead letters of a topic that exists", n)
			}
		})
		wantOnce(t, seen)
	}
}

// A topic is deleted, and created again at once or later, under a relay that runs until the end or
// between two relays, whatever the broker knows of topic ids. Events are written before the
// client of the relay refreshes its metadata, and after.
func TestTopics_DeletedAndMadeAgain(t *testing.T) {
	for i := range testworld.BrokerVersions {
		for _, stopped := range []bool{false, true} {
			seen := simulate(t, 70+uint64(i), nil, func(w *world) { // the seed chooses the version
				rnd := rand.New(rand.NewPCG(w.seed, 'd'))
				write := func(n int) {
					for range n {
						w.newLateParcel(rnd).onTime(1)
						time.Sleep(100 * time.Millisecond)
					}
				}
				write(1)
				for n := range 4 {
					time.Sleep(time.Minute)
					if stopped {
						w.stopRelay()
					}
					w.deleteTopic(parcelMoved)
					time.Sleep(time.Duration(n/3) * 20 * time.Second)
					w.makeTopic(parcelMoved)
					if stopped {
						w.startRelay()
					}
					write(6)
					time.Sleep(6 * time.Minute)
					write(12)
				}
			})
			wantOnce(t, seen)
		}
	}
}

// All records of one partition are deleted. Rows of other partitions of its topic that become
// visible late are published.
func TestTopics_OnePartitionIsTrimmed(t *testing.T) {
	seen := simulate(t, 74, nil, func(w *world) {
		rnd := rand.New(rand.NewPCG(w.seed, 't'))
		var parcels []*lateParcel
		for range 12 {
			p := w.newLateParcel(rnd)
			p.onTime(2)
			parcels = append(parcels, p)
		}
		time.Sleep(30 * time.Minute)
		w.stopRelay()
		w.trim(parcelMoved, 1, 1)
		w.startRelay()
		time.Sleep(5 * time.Minute)
		for _, p := range parcels {
			p.late()
			p.onTime(1)
		}
		time.Sleep(5 * time.Minute)
	})
	wantOnce(t, seen)
}

// Another source, and a relay of another table, write records with the keys, ids and numbers of
// events before these are published, and afterwards.
func TestTopics_AnotherSource(t *testing.T) {
	seen := simulate(t, 75, nil, func(w *world) {
		rnd, s := rand.New(rand.NewPCG(w.seed, 's')), w.newStranger()
		defer s.close()
		w.traffic(100, time.Hour)
		for range 6 {
			for range 3 {
				w.newLateParcel(rnd).onTime(2)
			}
			time.Sleep(2 * time.Minute)
			s.write(w.ledger.lastStored()...)
			w.stopRelay()
			for range 3 {
				w.newLateParcel(rnd).onTime(2)
			}
			s.write(w.ledger.lastStored()...)
			time.Sleep(time.Minute)
			w.startRelay()
		}
	})
	wantOnce(t, seen)
	if seen.foreign == 0 {
		t.Error("the topics contain no record of another source")
	}
}

// The log is off for a while, or dropped and made, under a relay that runs until the end, or
// between two relays: the events that it lacks are found in the table.
func TestLog_LacksEvents(t *testing.T) {
	for _, tablets := range []bool{false, true} {
		for _, statements := range [][]string{{cdcOff}, {cdcOff, dropLog}} {
			for _, stopped := range []bool{false, true} {
				seen := simulate(t, 76, func(s *settings) {
					if !tablets {
						onVnodes(s)
					}
				}, func(w *world) {
					w.traffic(200, time.Hour)
					for range 2 {
						time.Sleep(10 * time.Minute)
						if stopped {
							w.stopRelay()
						}
						w.alter(statements...)
						time.Sleep(10 * time.Minute)
						w.alter(cdcOn(keep))
						if stopped {
							w.startRelay()
						}
					}
				})
				wantOnce(t, seen)
				wantScan(t, seen)
			}
		}
	}
}

// Rows of the log keep the ttl with which they were written: they expire while no relay runs,
// although the ttl is long before and afterwards.
func TestLog_TTLIsShortForAWhile(t *testing.T) {
	seen := simulate(t, 82, nil, func(w *world) {
		w.traffic(300, 3*time.Hour)
		time.Sleep(30 * time.Minute)
		w.stopRelay()
		w.alter(cdcOn(20 * time.Minute))
		time.Sleep(20 * time.Minute)
		w.alter(cdcOn(keep))
		time.Sleep(30 * time.Minute)
		w.startRelay()
	})
	wantOnce(t, seen)
	wantScan(t, seen)
}

// Records are dated by a clock that is an hour off, in both directions, while relays restart.
func TestClock_OfRecords(t *testing.T) {
	seen := simulate(t, 77, nil, func(w *world) {
		w.traffic(400, 2*time.Hour)
		for i := range 8 {
			w.recordAhead.Store(int64([...]time.Duration{-wrongClock, 0, wrongClock, -wrongClock}[i%4]))
			time.Sleep(7 * time.Minute)
			w.crashRelay()
			w.startRelay()
			time.Sleep(7 * time.Minute)
		}
	})
	wantOnce(t, seen)
}

// The clock of the relay's host is an hour off, in both directions.
func TestClock_OfTheRelaysHost(t *testing.T) {
	for _, ahead := range []time.Duration{wrongClock, -wrongClock} {
		t.Run(ahead.String(), func(t *testing.T) {
			seen := simulate(t, 78, func(s *settings) { s.hostAhead = ahead }, func(w *world) {
				rnd := rand.New(rand.NewPCG(w.seed, 'h'))
				time.Sleep(2 * time.Hour) // the log knows the time of before
				w.traffic(300, time.Hour)
				for range 6 {
					time.Sleep(5 * time.Minute)
					p := w.newLateParcel(rnd)
					p.onTime(1)
					p.late()
					p.onTime(1)
					w.crashRelay()
					w.startRelay()
					time.Sleep(5 * time.Minute)
				}
			})
			wantOnce(t, seen)
		})
	}
}

// The clock of the relay's host is set back by an hour while a relay runs: it was an hour ahead, or
// falls an hour behind.
func TestClock_OfTheRelaysHostIsSetBack(t *testing.T) {
	for _, ahead := range []time.Duration{wrongClock, -time.Minute} {
		t.Run(ahead.String(), func(t *testing.T) {
			seen := simulate(t, 84, func(s *settings) { s.hostAhead = ahead }, func(w *world) {
				rnd := rand.New(rand.NewPCG(w.seed, 'j'))
				write := func() {
					p := w.newLateParcel(rnd)
					p.onTime(1)
					p.late()
					p.onTime(1)
					time.Sleep(5 * time.Minute)
				}
				time.Sleep(2 * time.Hour) // the log knows the time of before
				w.traffic(300, 90*time.Minute)
				for range 3 {
					write()
				}
				w.clock.Set(wrongClock - ahead)
				for i := range 6 {
					write()
					if i%2 > 0 {
						w.crashRelay()
						w.startRelay()
					}
				}
			})
			wantOnce(t, seen)
		})
	}
}

// Rows that other writers store: some are no events, and are dead letters with a reason; events
// that contradict each other are reported.
func TestWriters_OfOtherRows(t *testing.T) {
	seen := simulate(t, 79, nil, func(w *world) {
		rnd := rand.New(rand.NewPCG(w.seed, 'o'))
		for range 30 {
			w.newLateParcel(rnd).writeRefused()
		}
		for range 3 {
			w.newLateParcel(rnd).typeInHeader()
			w.newLateParcel(rnd).twoOfOneNumber()
			w.newLateParcel(rnd).twoOfOneID()
		}
		time.Sleep(10 * time.Minute)
	})
	if seen.deadLetters < 30 {
		t.Errorf("%d dead letters of 30 rows that are no events", seen.deadLetters)
	}
	for _, kind := range []string{"has the id of another event", "has two events"} {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(seen.problems)), func(p string) bool { return strings.Contains(p, kind) }) {
			t.Errorf("no relay reports that an event %s: %v", kind, seen.problems)
		}
	}
}

// The outbox table has the last event of an aggregate first. Events become visible together, and
// late.
func TestWriters_DescendingTable(t *testing.T) {
	for _, tail := range []bool{true, false} {
		seen := simulate(t, 80, func(s *settings) {
			s.descending = true
			if !tail {
				s.relay.Tail = "off"
			}
			s.schema.CDCTTL = time.Hour
		}, func(w *world) {
			rnd := rand.New(rand.NewPCG(w.seed, 'd'))
			w.traffic(300, 4*time.Hour)
			for range 10 {
				p := w.newLateParcel(rnd)
				p.onTime(1 + rnd.IntN(5))
				time.Sleep(4 * time.Minute)
			}
			w.stopRelay() // for longer than the log lives
			for range 10 {
				p := w.newLateParcel(rnd)
				p.onTime(1 + rnd.IntN(5))
			}
			time.Sleep(2 * time.Hour)
			w.startRelay()
			time.Sleep(30 * time.Minute)
		})
		wantOnce(t, seen)
		wantScan(t, seen)
	}
}
