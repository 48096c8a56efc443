package store

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
)

// However many flushes there are, compactions keep up and end.
func TestCompactions_KeepUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, err := Open(Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		tbl := kvTable(1)
		var wg sync.WaitGroup
		for w := range 4 {
			wg.Go(func() {
				for i := range 50 {
					apply(t, s, rowMutation(tbl, fmt.Sprint(w), Row{Marker: live(int64(i), "")}))
					if err := s.db.Flush(); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		synctest.Wait() // until compactions have nothing to do
		m := s.db.Metrics()
		if m.Levels[0].Sublevels > 4 || m.Compact.NumInProgress != 0 || m.Compact.Count == 0 {
			t.Errorf("after 200 flushes: %d sublevels, %d compactions in progress, %d done", m.Levels[0].Sublevels, m.Compact.NumInProgress, m.Compact.Count)
		}
		want(t, "Scan()", dump(t, s, one(tbl, "0")), "0@-52\n () M@49\n")
	})
}
