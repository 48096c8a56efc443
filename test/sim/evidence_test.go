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

// A relay that started again in its process, without a right to read, publishes again the events
// that the one before it had sent, also if the broker executes that request only afterwards. One
// run publishes an event once, but for a request that the broker held back beyond the time limit of
// the client.
func TestDuplicates_OfRunsThatMayNotRead(t *testing.T) {
	at := func(seconds int) time.Time { return time.Unix(0, 0).Add(time.Duration(seconds) * time.Second) }
	type written struct{ received, at int }
	for _, tt := range []struct {
		name     string
		restarts []int
		records  []written
		want     int
	}{
		{"a run each", []int{30}, []written{{20, 20}, {40, 40}}, 0},
		{"one run", []int{10}, []written{{20, 20}, {40, 40}}, 1},
		{"executed after the restart", []int{18}, []written{{15, 20}, {40, 40}}, 0},
		{"received after the restart", []int{14}, []written{{15, 20}, {40, 40}}, 1},
		{"executed after the restart, and again", []int{18}, []written{{15, 20}, {40, 40}, {50, 50}}, 1},
		{"executed after that of the next run", []int{18, 70}, []written{{40, 40}, {15, 60}, {80, 80}}, 0},
		{"held back in one run", nil, []written{{15, 40}, {50, 50}}, 0},
		{"held back in one run, then the next", []int{60}, []written{{15, 40}, {50, 50}, {70, 70}}, 0},
		{"held back in one run, then one run twice", []int{60}, []written{{15, 40}, {50, 50}, {70, 70}, {80, 80}}, 1},
		{"held back beyond the restart, then one run twice", []int{45}, []written{{15, 48}, {50, 50}, {70, 70}}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := &world{t: t, kafka: &kafka{refuses: true}, relays: make([]*process, 1)}
			for _, s := range tt.restarts {
				w.restarts.at = append(w.restarts.at, at(s))
			}
			var all []record
			for i, r := range tt.records {
				all = append(all, record{producer: int64(i), at: at(r.at)})
				w.kafka.delayed = append(w.kafka.delayed, delayedRequest{at(r.received), at(r.at), []int64{int64(i)}})
			}
			if got := w.unexplained(&evidence{}, all, nil, false); len(got) != tt.want {
				t.Errorf("%q, want %d", got, tt.want)
			}
		})
	}
}
