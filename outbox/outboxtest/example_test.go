package outboxtest_test

import (
	"fmt"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/outboxtest"
)

// pay is a function of a service: it adds its statements to a batch.
func pay(b *gocql.Batch, invoice gocql.UUID, amount string) error {
	b.Query("UPDATE invoices SET paid = ? WHERE id = ?", amount, invoice)
	return outbox.Append(b, outbox.Event{
		ID: outbox.NewID(), AggregateID: outbox.IDFromUUID(invoice), Sequence: 1, AggregateType: "invoice", Type: "InvoicePaid",
		Payload: fmt.Appendf(nil, `{"amount":%q}`, amount), CreatedAt: time.Now().UTC(),
	})
}

// A test of a service checks the events of its batch, without a database.
func ExampleEvents() {
	b := &gocql.Batch{Type: gocql.LoggedBatch} // with a session: session.NewBatch(gocql.LoggedBatch)
	if err := pay(b, gocql.UUID{15: 1}, "12.50"); err != nil {
		fmt.Println(err)
		return
	}
	events, err := outboxtest.Events(b)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, e := range events {
		fmt.Println(e.Type, e.AggregateID, e.Sequence, string(e.Payload))
	}
	// Output: InvoicePaid 00000000-0000-0000-0000-000000000001 1 {"amount":"12.50"}
}
