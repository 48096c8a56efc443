package sim

import (
	"testing"
	"time"
)

// A scan that another one replaces covers its rows until that one is done, if that one covers them.
func TestScans_AreReplaced(t *testing.T) {
	at := func(minutes int) time.Time { return time.Unix(0, 0).Add(time.Duration(minutes) * time.Minute) }
	running := scan{started: at(40), from: at(10), until: at(38)}
	done := running
	done.done = at(60)
	narrow := done
	narrow.from = at(15)
	for _, tt := range []struct {
		name      string
		by        scan
		published int
		want      bool
	}{
		{"by one that runs", running, 90, true},
		{"published before the other one was done", done, 59, true},
		{"published after that", done, 61, false},
		{"by one of later rows", narrow, 59, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := evidence{scans: []scan{tt.by, {started: at(27), from: at(10), until: at(25), done: at(40), replaced: true}}}
			inherit(e.scans)
			if got := e.scanCovers(at(28), at(12), at(tt.published)); got != tt.want {
				t.Errorf("a row of minute 12, published in minute %d, is covered: %t, want %t", tt.published, got, tt.want)
			}
		})
	}
}

// The database keeps the end of a scan in milliseconds: an event that the broker has stored within
// the last one was published by the scan.
func TestScan_EndsWithItsMillisecond(t *testing.T) {
	done := time.UnixMilli(1_000)
	s := scan{until: done, done: done}
	for after, want := range map[time.Duration]bool{0: true, 999 * time.Microsecond: true, time.Millisecond: false} {
		if got := s.covers(done, done, done.Add(after)); got != want {
			t.Errorf("an event published %s after the end that is stored is covered: %t, want %t", after, got, want)
		}
	}
}

// A relay that started again in its process publishes without a right to read what the one before
// it had sent, also if the broker executes that request only afterwards. It repeats an event once.
func TestDuplicates_OfRestartsWhileRequestsAreHeldBack(t *testing.T) {
	at := func(seconds int) time.Time { return time.Unix(0, 0).Add(time.Duration(seconds) * time.Second) }
	for _, tt := range []struct {
		name     string
		restart  int
		records  []int
		received int // the request of the first record
		want     int
	}{
		{"after the record", 30, []int{20, 40}, 20, 0},
		{"before its request", 10, []int{20, 40}, 20, 1},
		{"while its request was held back", 18, []int{20, 40}, 15, 0},
		{"before a request that was held back", 14, []int{20, 40}, 15, 1},
		{"one for two duplicates", 18, []int{20, 40, 50}, 15, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := &world{t: t, kafka: &kafka{}, relays: make([]*process, 1)}
			w.restarts.at = []time.Time{at(tt.restart)}
			if tt.received < tt.records[0] {
				w.kafka.delayed = []delayedRequest{{at(tt.received), at(tt.records[0])}}
			}
			var all []record
			for i, s := range tt.records {
				all = append(all, record{producer: int64(i), at: at(s)})
			}
			if got := w.unexplained(&evidence{}, all, nil, false); len(got) != tt.want {
				t.Errorf("%q, want %d", got, tt.want)
			}
			if got := w.unexplained(&evidence{}, all, nil, true); len(got) != len(all)-1 {
				t.Errorf("of a relay that reads its topics: %q, want %d", got, len(all)-1)
			}
		})
	}
}
