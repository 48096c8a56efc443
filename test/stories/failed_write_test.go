package stories

import (
	"errors"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/orders"
	"github.com/scylla-outbox/scylla-outbox/test/sim"
)

// The database refuses the write. The caller receives an error, and nothing is
// stored or published, then or later.
func TestStory_FailedWrite(t *testing.T) {
	sim.Tell(t, func(s *sim.Story) {
		mend := s.RefuseWrites()
		_, err := s.Place("536365")
		var unavailable *orders.UnavailableError
		if !errors.As(err, &unavailable) || unavailable.Unknown {
			t.Fatalf("Place() error = %v, want an *UnavailableError with a known outcome", err)
		}
		mend()
		s.Wait(10 * time.Minute)
		if o, e, p := s.Orders(), s.Events(), s.Published(); o != 0 || e != 0 || p != 0 {
			t.Errorf("%d orders and %d events are stored, %d published, want none", o, e, p)
		}
		if _, err := s.Place("536366"); err != nil {
			t.Errorf("Place() error = %v after the database has recovered", err)
		}
	})
}
