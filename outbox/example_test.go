package outbox_test

import (
	"fmt"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// A service that pays invoices stores each payment and its event together.
func ExampleAppend() {
	invoice := gocql.UUID{0x01, 0x93, 0, 0, 0, 0, 0x70, 0, 0x80, 0, 0, 0, 0, 0, 0, 1}

	// With a session this is b := session.Batch(gocql.LoggedBatch).
	b := &gocql.Batch{Type: gocql.LoggedBatch}
	b.Query("INSERT INTO invoices (id, paid) VALUES (?, ?)", invoice, true)
	err := outbox.Append(b, outbox.Event{
		ID:            outbox.NewID(),
		AggregateID:   outbox.IDFromUUID(invoice),
		Sequence:      1,
		AggregateType: "invoice",
		Type:          "InvoicePaid",
		Payload:       []byte(`{"amount":"12.50","currency":"EUR"}`),
		CreatedAt:     time.Now().UTC(),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	// b.Exec() now stores the invoice and its event, or neither.
	fmt.Println(len(b.Entries), "statements in one batch")
	// Output: 2 statements in one batch
}

// Validation reports every invalid field and how to fix it.
func ExampleEvent_Validate() {
	e := outbox.Event{
		ID:            outbox.NameID(gocql.UUID{1}, "invoice 1", "paid"),
		AggregateID:   outbox.IDFromUUID(gocql.UUID{1}),
		AggregateType: "invoice",
		CreatedAt:     time.Unix(0, 0),
	}
	fmt.Println(e.Validate())
	// Output: outbox: invalid event: Sequence is 0: number the events of one aggregate 1, 2, 3 … without gaps; Type is empty: set it to the type of the event, such as "OrderCreated"
}
