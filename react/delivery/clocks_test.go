package delivery

import (
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/scyllatest"
	"github.com/scylla-outbox/scylla-outbox/schema"
)

// ahead returns a store on a host whose clock is two minutes fast.
func (b *bundle) ahead(t *testing.T, clock *scyllatest.Clock) *Store {
	t.Helper()
	clock.Set(2 * time.Minute)
	s, err := Open(Config{Session: clock.Connect(t, b.Node), Keyspace: schema.DefaultKeyspace, Now: clock.Now})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A report is readable after the clock of its process was set back.
func TestClocks_ReportAfterTheClockIsSetBack(t *testing.T) {
	t.Parallel()
	b := setup(t)
	clock := new(scyllatest.Clock)
	s := b.ahead(t, clock)
	for _, n := range []int64{1, 2} {
		r := Report{Rule: "mail", Instance: "i"}
		r.Repeats = n
		if err := s.Report(t.Context(), []Report{r}); err != nil {
			t.Fatal(err)
		}
		clock.Set(0)
	}
	if got, err := b.Reports(t.Context()); err != nil || len(got) != 1 || got[0].Repeats != 2 {
		t.Errorf("Reports() = %+v, %v, want the second", got, err)
	}
}

// For any clocks of an operator and of the owner, a requested repeat is on the
// list until the owner has made it.
func TestClocks_RepeatsOfAnOperator(t *testing.T) {
	t.Parallel()
	for name, operatorAhead := range map[string]bool{"operator ahead": true, "owner ahead": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.now = time.Now()
			operator, owner := b.Store, b.ahead(t, new(scyllatest.Clock))
			if operatorAhead {
				operator, owner = owner, operator
			}
			b.now = time.Now().Add(-time.Minute)
			d := b.saved(t, "mail", 1, Failed)
			for i := range 3 {
				if _, err := operator.Repeat(t.Context(), d.ID, "ada", "again"); err != nil {
					t.Fatal(err)
				}
				asked, err := owner.Repeats(t.Context(), d.Rule, [16]byte{}, 10)
				if err != nil || len(asked) != 1 {
					t.Fatalf("Repeats() = %+v, %v, want one", asked, err)
				}
				if i == 0 { // as if the delivery had expired
					if err := owner.Repeated(t.Context(), asked[0].Delivery(d.Rule)); err != nil {
						t.Fatal(err)
					}
				}
				got, err := owner.Read(t.Context(), d.ID)
				if err != nil || got.State != Pending {
					t.Fatalf("Read() = %+v, %v, want it pending", got, err)
				}
				got.State = Delivered
				if err := owner.Save(t.Context(), got); err != nil {
					t.Fatal(err)
				}
				if err := owner.Repeated(t.Context(), got); err != nil {
					t.Fatal(err)
				}
				if got, err = operator.Read(t.Context(), d.ID); err != nil || got.State != Delivered {
					t.Fatalf("Read() = %+v, %v, want it delivered", got, err)
				}
				if asked, err := owner.Repeats(t.Context(), d.Rule, [16]byte{}, 10); err != nil || len(asked) != 0 {
					t.Errorf("Repeats() = %+v, %v, want none", asked, err)
				}
			}
		})
	}
}
