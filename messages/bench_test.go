package messages

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"golang.org/x/sync/errgroup"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// BenchmarkIntake compares the handlers with the raw client that writes the same
// rows, in one run: messages a second, and by one at a time the 95th percentile.
func BenchmarkIntake(b *testing.B) {
	const batch = 1000
	body := `{"messages":[` + strings.TrimSuffix(strings.Repeat(`{"topic":"t","payload":{"n":1,"text":"some payload of a usual kind"}},`, batch), ",") + `]}`
	row := func() outbox.Event {
		id := outbox.NewID().UUID()
		return outbox.Event{
			ID: outbox.IDFromUUID(id), AggregateID: outbox.IDFromUUID(id), Sequence: 1, AggregateType: outbox.MessageAggregate, Type: "t", ContentType: "application/json",
			Payload: []byte(`{"n":1,"text":"some payload of a usual kind"}`), CreatedAt: time.Now().Truncate(time.Millisecond),
		}
	}
	insert := func(x *fixture) error {
		one := x.Session.Batch(gocql.LoggedBatch)
		if err := outbox.Append(one, row()); err != nil {
			return err
		}
		return one.Exec()
	}
	b.Run("batch/raw client", func(b *testing.B) {
		x := setup(b)
		for b.Loop() {
			var g errgroup.Group
			g.SetLimit(128)
			for range batch {
				g.Go(func() error { return insert(x) })
			}
			if err := g.Wait(); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.N*batch)/b.Elapsed().Seconds(), "messages/s")
	})
	b.Run("batch/handler", func(b *testing.B) {
		x := setup(b)
		for b.Loop() {
			if r := world.Request(b, x.handler, "POST", "/v1/messages/batch", body); r.Status != 202 {
				b.Fatal(r.Text)
			}
		}
		b.ReportMetric(float64(b.N*batch)/b.Elapsed().Seconds(), "messages/s")
	})
	single := func(name string, f func(x *fixture) error) {
		b.Run("single/"+name, func(b *testing.B) {
			x := setup(b)
			var took []time.Duration
			for b.Loop() {
				began := time.Now()
				if err := f(x); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(began))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)*95/100].Microseconds())/1000, "p95-ms")
		})
	}
	single("raw client", insert)
	single("handler", func(x *fixture) error {
		if r := world.Request(b, x.handler, "POST", "/v1/messages", `{"topic":"t","payload":{"n":1,"text":"some payload of a usual kind"}}`); r.Status != 202 {
			return fmt.Errorf("POST = %d %s", r.Status, r.Text)
		}
		return nil
	})
}
