package sim

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/relay"
)

// logTTL is the TTL of the CDC log in these scenarios.
const logTTL = 2 * time.Hour

func shortLog(s *settings) { s.schema.CDCTTL = logTTL }

// The relay is down for longer than the CDC log keeps its rows, while orders arrive
// before, during and after.
func TestBackfill_AwayForLongerThanTheLog(t *testing.T) {
	seen := simulate(t, 31, shortLog, func(w *world) {
		w.traffic(600, 7*time.Hour)
		time.Sleep(time.Hour)
		w.stopRelay()
		time.Sleep(5 * time.Hour)
		w.startRelay()
		time.Sleep(2 * time.Hour)
	})
	wantOnce(t, seen)
	wantScan(t, seen)
}

// As above, and the relay is killed repeatedly during the scan.
func TestBackfill_CrashesDuringTheScan(t *testing.T) {
	seen := simulate(t, 32, func(s *settings) {
		shortLog(s)
		s.relay.BackfillRowsPerSecond = 1
	}, func(w *world) {
		rnd := rand.New(rand.NewPCG(w.seed, 'b'))
		w.traffic(600, 7*time.Hour)
		time.Sleep(time.Hour)
		w.crashRelay()
		time.Sleep(5 * time.Hour)
		w.startRelay()
		for range 12 {
			if rnd.IntN(2) == 0 {
				w.crashWhen(w.kafka.onProduce, 1+rnd.IntN(15), time.Minute)
			} else {
				time.Sleep(time.Duration(rnd.Int64N(int64(time.Minute))))
				w.crashRelay()
			}
			w.startRelay()
		}
	})
	wantOnce(t, seen)
	wantScan(t, seen)
}

// Further faults occur during a scan: the database and the broker are down, reads fail, a
// generation begins, and the load continues.
func TestBackfill_OutagesDuringTheScan(t *testing.T) {
	for _, tablets := range []bool{false, true} {
		t.Run(fmt.Sprint("tablets=", tablets), func(t *testing.T) {
			seen := simulate(t, 33, func(s *settings) {
				if !tablets {
					onVnodes(s)
				}
				shortLog(s)
				s.relay.BackfillRowsPerSecond = 1
			}, func(w *world) {
				w.traffic(900, 7*time.Hour)
				time.Sleep(time.Hour)
				w.stopRelay()
				time.Sleep(4 * time.Hour)
				w.newStreams()
				time.Sleep(time.Hour)
				mend := w.failReads(0.2)
				w.startRelay()
				for range 4 {
					time.Sleep(20 * time.Second)
					w.net.cut(database)
					time.Sleep(40 * time.Second)
					w.net.mend(database)
					time.Sleep(20 * time.Second)
					w.net.cut(broker)
					time.Sleep(40 * time.Second)
					w.net.mend(broker)
				}
				if s := w.relay().relay.Status().Backfill; !s.Running {
					t.Errorf("Status().Backfill = %+v, want a running scan", s)
				}
				mend()
				w.crashRelay()
				w.startRelay()
			})
			wantOnce(t, seen)
			wantScan(t, seen)
		})
	}
}

// The broker is down for longer than the log keeps its rows, while the relay runs: it
// scans the table for the unpublished events without a restart.
func TestBackfill_BrokerAwayForLongerThanTheLog(t *testing.T) {
	seen := simulate(t, 34, func(s *settings) { shortLog(s); holds(s) }, func(w *world) {
		w.traffic(900, 9*time.Hour)
		time.Sleep(time.Hour)
		w.net.cut(broker)
		time.Sleep(6 * time.Hour)
		w.net.mend(broker)
	})
	wantOnce(t, seen)
	wantScan(t, seen)
}

// The relay is down repeatedly, for minutes or for longer than the log keeps its rows,
// and is killed at any moment: during a scan, after one, before the next.
func TestBackfill_AgainAndAgain(t *testing.T) {
	for seed := uint64(40); seed < 44; seed++ {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 'a'))
			seen := simulate(t, seed, func(s *settings) {
				if seed%3 == 0 {
					onVnodes(s)
				}
				s.schema.CDCTTL = time.Hour
				s.relay.BackfillRowsPerSecond = 1 + rnd.IntN(5)
				s.relay.MaxAggregates = 5 + rnd.IntN(500)
				s.skews = []time.Duration{-4 * time.Second, 3 * time.Second}
				if rnd.IntN(3) == 0 {
					s.relay.Tail = relay.TailOff
				}
			}, func(w *world) {
				w.traffic(700, 10*time.Hour)
				for range 6 {
					time.Sleep(time.Duration(rnd.Int64N(int64(20 * time.Minute))))
					w.crashRelay()
					time.Sleep(time.Duration(rnd.Int64N(int64(2 * time.Hour))))
					w.startRelay()
					for range rnd.IntN(4) {
						w.crashWhen(w.kafka.onProduce, 1+rnd.IntN(30), 2*time.Minute)
						w.startRelay()
					}
				}
			})
			wantOnce(t, seen)
			wantScan(t, seen)
		})
	}
}

func wantScan(t *testing.T, seen outcome) {
	t.Helper()
	if seen.scanned == 0 {
		t.Error("a backfill found no event")
	}
}
