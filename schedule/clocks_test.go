package schedule

import (
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/scyllatest"
)

// A slot that was removed by a process with a fast clock exists again after it
// is written again.
func TestClocks_SlotIsWrittenAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	clock := new(scyllatest.Clock)
	clock.Set(2 * time.Minute)
	ahead := NewStore(clock.Connect(t, b.Node), gocql.LocalQuorum, 30*time.Second)
	m := message(time.Now().Add(time.Hour))
	x := slot{bucket: bucketOf(m.DeliverAt), at: m.DeliverAt, id: m.ID, topic: m.Topic}
	for i, step := range []func() error{
		func() error { return ahead.putSlot(t.Context(), x) },
		func() error { return b.dropSlot(t.Context(), x) },
		func() error { return b.putSlot(t.Context(), x) },
		func() error { return ahead.dropSlot(t.Context(), x) },
		func() error { return b.putSlot(t.Context(), x) },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
		var n int
		if err := b.Session.Query("SELECT COUNT(*) FROM schedule_slots").Scan(&n); err != nil || n != (i+1)%2 {
			t.Errorf("after step %d there are %d slots, %v, want %d", i, n, err, (i+1)%2)
		}
	}
}
