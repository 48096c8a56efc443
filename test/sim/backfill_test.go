package sim

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// logTTL is how long the CDC log keeps its rows in the scenarios here.
const logTTL = 2 * time.Hour

func shortLog(s *settings) { s.schema.CDCTTL = logTTL }

// The relay is away for longer than the CDC log keeps its rows, while orders
// come in, and before and after that.
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

// The same, and the relay is killed again and again during the scan.
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

// Everything else goes wrong during a scan: the database and the broker go away,
// reads fail, a generation begins, and the load goes on.
func TestBackfill_OutagesDuringTheScan(t *testing.T) {
	for _, tablets := range []bool{false, true} {
		t.Run(fmt.Sprint("tablets=", tablets), func(t *testing.T) {
			seen := simulate(t, 33, func(s *settings) {
				if tablets {
					onTablets(s)
				}
				shortLog(s)
				s.relay.BackfillRowsPerSecond = 1
			}, func(w *world) {
				w.traffic(900, 7*time.Hour)
				time.Sleep(time.Hour)
				w.stopRelay()
				time.Sleep(4 * time.Hour)
				if tablets {
					w.resize(false)
				} else {
					w.newGeneration(2)
				}
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
					t.Errorf("Status().Backfill = %+v, want a scan under way", s)
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

// The broker is away for longer than the log keeps its rows, while the relay
// runs: it scans the table for what it could not publish, by itself.
func TestBackfill_BrokerAwayForLongerThanTheLog(t *testing.T) {
	seen := simulate(t, 34, shortLog, func(w *world) {
		w.traffic(900, 9*time.Hour)
		time.Sleep(time.Hour)
		w.net.cut(broker)
		time.Sleep(6 * time.Hour)
		w.net.mend(broker)
	})
	wantOnce(t, seen)
	wantScan(t, seen)
}

func wantScan(t *testing.T, seen outcome) {
	t.Helper()
	if seen.scanned == 0 {
		t.Error("no event was found by a backfill")
	}
}
