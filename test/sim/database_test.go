package sim

import (
	"testing"
	"time"
)

// The database is down for an hour: connections end and new ones are refused.
func TestDatabase_GoneForAnHour(t *testing.T) {
	seen := simulate(t, 3, nil, func(w *world) {
		w.traffic(500, 2*time.Hour)
		time.Sleep(30 * time.Minute)
		w.net.cut(database)
		time.Sleep(time.Hour)
		w.net.mend(database)
	})
	wantStall(t, seen, time.Hour)
	wantOnce(t, seen)
}

// The database is frozen for an hour; its connections stay open until it resumes. Then
// they end, and it executes the requests it received.
func TestDatabase_HungForAnHour(t *testing.T) {
	seen := simulate(t, 4, nil, func(w *world) {
		w.traffic(500, 2*time.Hour)
		time.Sleep(30 * time.Minute)
		w.faults().Freeze()
		time.Sleep(time.Hour)
		w.net.cut(database)
		w.faults().Thaw()
		w.net.mend(database)
	})
	wantStall(t, seen, time.Hour)
	wantOnce(t, seen)
}

// The database is frozen repeatedly for a minute and then executes the requests it
// received. That is within the confidence window: the rows appear with the times at which
// their writes were sent.
func TestDatabase_Pauses(t *testing.T) {
	seen := simulate(t, 5, nil, func(w *world) {
		w.traffic(600, time.Hour)
		for range 20 {
			time.Sleep(2 * time.Minute)
			w.faults().Freeze()
			time.Sleep(time.Minute)
			w.faults().Thaw()
		}
	})
	wantOnce(t, seen)
}

// First the broker is down, then the database too, then only the database.
func TestBoth_Gone(t *testing.T) {
	seen := simulate(t, 6, nil, func(w *world) {
		w.traffic(500, 2*time.Hour)
		time.Sleep(20 * time.Minute)
		w.net.cut(broker)
		time.Sleep(20 * time.Minute)
		w.net.cut(database)
		time.Sleep(20 * time.Minute)
		w.net.mend(broker)
		time.Sleep(20 * time.Minute)
		w.net.mend(database)
	})
	wantStall(t, seen, 40*time.Minute)
	wantOnce(t, seen)
}

// Connections to both break continuously.
func TestBoth_Flap(t *testing.T) {
	seen := simulate(t, 7, nil, func(w *world) {
		w.traffic(400, time.Hour)
		for i := range 120 {
			time.Sleep(25 * time.Second)
			server := []string{database, broker}[i%2]
			w.net.cut(server)
			time.Sleep(5 * time.Second)
			w.net.mend(server)
		}
	})
	wantOnce(t, seen)
}
